//! Methods: how weights become codes of a format. A table, with a file for each that computes.
//!
//! A format says which values a weight may have; a method chooses among them. All methods serve all formats of codes
//! with scales (floats are rounded, whichever is asked for), so a new one is a file here and a line of [`METHODS`].
//!
//! Weights may become zero before: [`PRUNERS`] is the table of ways to choose them, which go with all methods and with
//! all formats that have a code of zero.
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
mod magnitude;
mod moments;
mod moves;
mod path;
mod plain;
mod pruner;
mod rose;
mod smooth;
mod sparsegpt;
mod sparsity;
#[cfg(test)]
mod testing;
mod wanda;

pub use coder::Coder;
pub use inputs::runs;
pub use job::{Columns, Method, Moves, Needs};
pub use moments::{Inputs, Moments, Run};
pub use moves::{Moved, move_scales};
pub use plain::{LEAST_SQUARES, NEAREST};
pub use pruner::{Fill, Pruner, Pruning, has_zero};
pub use sparsity::Sparsity;

/// All methods.
pub const METHODS: &[Method] =
    &[NEAREST, LEAST_SQUARES, clip::CLIP, gptq::GPTQ, awq::AWQ, awq::AWQ_CLIP, awq::AWQ_GPTQ, smooth::SMOOTHQUANT];

/// The method called `name`.
pub fn named(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|m| m.name == name)
}

/// All ways to choose the weights that become zero.
pub const PRUNERS: &[Pruner] = &[magnitude::MAGNITUDE, wanda::WANDA, sparsegpt::SPARSEGPT, rose::ROSE];

/// The pruner called `name`.
pub fn pruner(name: &str) -> Option<&'static Pruner> {
    PRUNERS.iter().find(|p| p.name == name)
}
