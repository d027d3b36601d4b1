//! Models that `llmcc compile` turned into shared objects, in safe Rust.
//!
//! [`Model::open`] loads an artifact and is the only unsafe function: an artifact is a program, and
//! whoever opens one runs it. A model tokenizes, generates, embeds and scores; it is `Send` and
//! `Sync`, and calls of several threads wait for each other. [`Sequence`] and [`Generation`] borrow
//! their model, so they cannot outlive it.
//!
//! ```no_run
//! use llmcc_model::{Model, Options, Params};
//!
//! # fn main() -> Result<(), llmcc_model::Error> {
//! // SAFETY: we compiled this file ourselves.
//! let model = unsafe { Model::open("tiny.so", &Options::default()) }?;
//! let prompt = model.tokenize("Once upon a time")?;
//! for piece in model.generate(&prompt, &Params { max_tokens: 40, ..Params::default() })? {
//!     print!("{}", piece?.text);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The functions are declared in `include/llmcc.h`, whose comments say the rest. [`sys`] has them as
//! they are.

mod adapter;
mod audio;
#[doc(hidden)]
pub mod capi;
mod compress;
mod engine;
mod error;
mod generation;
mod guesses;
mod images;
mod info;
mod judged;
mod model;
mod params;
mod rows;
mod sequence;
mod spelling;
pub mod sys;
pub mod taps;
mod text;
mod version;

pub use adapter::Adapter;
pub use audio::{Clip, Sound};
pub use compress::Compressed;
pub use engine::{End, Engine, EngineOptions, Event, Terms};
pub use error::{Error, Result, Status};
pub use generation::{Finish, Generation, Piece, Stats, next_of_each};
pub use guesses::{Corpus, Drafter, Guesses};
pub use info::{Info, Output};
pub use judged::Judged;
pub use model::{Model, Options};
pub use params::{Grammar, Params, Sampling};
pub use rows::Normalize;
pub use sequence::Sequence;
pub use taps::{Moments, Tap};
pub use text::Message;
pub use version::Version;

/// A number of the vocabulary.
pub type Token = i32;
