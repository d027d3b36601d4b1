//! llama.cpp's own interface: `/completion`, `/infill`, `/embedding`, `/props` and others.
//!
//! A request becomes the [`crate::ask::Ask`] that every interface has. Members which ask for something that the engine
//! does not do (other samplers, say) are refused, unless their values ask for nothing.

mod about;
mod completion;
mod embedding;
mod given;
mod infill;
mod native;
mod probs;
mod shown;

pub(crate) use about::{adapters, places, props, set_adapters, template};
pub(crate) use completion::completion;
pub(crate) use embedding::embedding;
pub(crate) use given::{Given, texts};
pub(crate) use infill::infill;
