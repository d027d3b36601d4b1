//! Descriptions of GPU kernels, as data.

pub mod attention;
pub mod cost;
pub mod layout;
#[cfg(test)]
mod linear;
mod print;
pub mod program;
pub mod rates;
#[cfg(test)]
mod recorded;
mod recorder;
mod run;
pub mod schedule;
mod slice;
#[cfg(test)]
mod tests;
mod unroll;
pub mod value;
pub mod verify;
mod weights;
pub mod wish;

/// Threads of a warp, which execute an instruction together: the same on all GPUs of NVIDIA.
pub const WARP: usize = 32;
