//! The runtime inside every compiled artifact.
//!
//! The compiler appends code, data and weights to a prebuilt copy of this library ([`image`]). From
//! bottom to top: [`memory`] reserves, [`threads`] run side by side, [`cuda`] drives a GPU, [`kv`]
//! keeps sequences, [`engine`] takes ragged batches through the kernels, [`select`] opens the
//! version of the model that suits the machine, [`sample`] chooses tokens (after a [`bias`] and the
//! model's own [`rules`]), where it can from [`candidates`] alone, [`logprob`] tells how probable
//! they were, [`text`] turns tokens into text and back, [`grammar`] gives texts a form, [`generate`]
//! puts these together, for several tokens at once with [`speculate`], several sequences at once in
//! [`continuous`], many requests at once in [`serve`], [`embed`] makes one row of a text's,
//! [`hearing`] rows of sounds, [`eyes`] rows of images, [`tap`] moments of the inputs of products,
//! and [`capi`], the API of `include/llmcc.h`, is the only thing exported.
//!
//! **Invariant:** nothing here knows the mathematics of the kernels; the tables of the ABI are all
//! the runtime sees of a model. **Invariant:** no panic and no unwinding crosses the C API; user
//! input is validated before it reaches a kernel.

pub mod bias;
pub mod candidates;
pub mod capi;
pub mod compress;
pub mod continuous;
pub mod cores;
pub mod cuda;
pub mod desk;
pub mod embed;
pub mod engine;
mod error;
#[cfg(feature = "media")]
pub mod eyes;
#[cfg(not(feature = "media"))]
#[path = "eyes_none.rs"]
pub mod eyes;
pub mod generate;
#[cfg(feature = "grammar")]
pub mod grammar;
#[cfg(not(feature = "grammar"))]
#[path = "grammar_none.rs"]
pub mod grammar;
#[cfg(any(feature = "heap", test))]
mod heap;
#[cfg(feature = "media")]
pub mod hearing;
#[cfg(not(feature = "media"))]
#[path = "hearing_none.rs"]
pub mod hearing;
pub mod image;
pub mod interrupt;
pub mod json;
pub mod kv;
mod language;
pub mod limits;
pub mod logprob;
pub mod memory;
pub mod reserve;
pub mod rules;
pub mod sample;
pub mod select;
pub mod serve;
pub mod spawn;
pub mod speculate;
pub mod stream;
pub mod tap;
#[cfg(feature = "text")]
pub mod text;
#[cfg(not(feature = "text"))]
#[path = "text_none.rs"]
pub mod text;
pub mod threads;
pub mod unload;

pub use engine::{Batch, Engine, Options};
pub use error::{Error, Result, Status};
pub use image::Image;
pub use kv::SeqId;
