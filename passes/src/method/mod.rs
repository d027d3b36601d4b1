//! Methods: how weights become codes of a format. A table, with a file for each that computes.
//!
//! A format says which values a weight may have; a method chooses among them. All methods serve all formats of codes
//! with scales (floats are rounded, whichever is asked for), so a new one is a file here and a line of [`METHODS`].
//!
//! The rows of a matrix are coded independently of each other, in blocks, on all cores: results depend neither on
//! threads nor on blocks.

mod awq;
mod cholesky;
mod clip;
mod coder;
mod gptq;
mod inputs;
mod job;
mod lanes;
mod moments;
mod moves;
mod path;
mod plain;
mod smooth;
#[cfg(test)]
mod testing;

pub use coder::Coder;
pub use inputs::runs;
pub use job::{Columns, Method, Moves, Needs};
pub use moments::{Inputs, Moments, Run};
pub use moves::{Moved, move_scales};
pub use plain::{LEAST_SQUARES, NEAREST};

/// All methods.
pub const METHODS: &[Method] =
    &[NEAREST, LEAST_SQUARES, clip::CLIP, gptq::GPTQ, awq::AWQ, awq::AWQ_CLIP, awq::AWQ_GPTQ, smooth::SMOOTHQUANT];

/// The method called `name`.
pub fn named(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|m| m.name == name)
}
