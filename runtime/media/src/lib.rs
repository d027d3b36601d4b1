//! Sounds and images, made into the rows that encoders of models read.
//!
//! Only the runtime of artifacts with such an encoder links this crate.

pub mod audio;
mod error;
pub mod image;

pub use error::{Error, Result};
