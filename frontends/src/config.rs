//! `config.json`: the numbers of a model, checked.
//!
//! Nothing here knows an architecture: they declare their [`fields`], read them with the readers of
//! [`common`] and `rope` or by themselves, and [`known`] judges the rest.

pub mod common;
pub(crate) mod dictionary;
mod error;
pub mod fields;
pub mod known;
pub(crate) mod parts;
pub(crate) mod rope;
pub(crate) mod rope_base;
pub(crate) mod rope_kinds;
pub(crate) mod sections;

pub use common::Facts;
pub use error::ConfigError;
pub(crate) use error::show;
