//! The text side of a model: tokenizer and chat template. Compiler and runtime share this crate:
//! the compiler checks and tries the texts the runtime then uses.
//!
//! Both come from files of strangers. Templates run in an interpreter with limits ([`jinja`]);
//! tokenizers are checked before an artifact is made ([`check`]), because the `tokenizers` crate
//! panics on some files.

pub mod adapter;
pub mod alphabet;
pub mod base64;
pub mod check;
mod config;
mod continued;
mod error;
pub mod expression;
pub mod fuzz;
pub mod generation;
pub mod jinja;
pub mod json;
mod long;
mod longest;
mod lossy;
mod pieces;
mod searches;
mod template;
mod tokenizer;
mod types;

pub use config::Config;
pub use error::{Error, Kind, Result};
pub use lossy::Lossy;
pub use template::{Clock, Template, Trial, local_time};
pub use tokenizer::Tokenizer;
pub use types::TypesAlone;
