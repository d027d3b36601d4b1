//! Running a model on an NVIDIA GPU, with nothing but its driver.
//!
//! [`ffi`] is the driver's API, [`device`] an open GPU and its memory, [`module`] turns the
//! artifact's code into functions, [`budget`] knows beforehand how much memory a model needs,
//! [`exec`] runs steps, from a [`graph`] where the sizes of launches are bounded, and [`results`]
//! brings back the requested rows. [`upload`] brings the weights, and [`copier`] has threads for
//! whatever is copied within the host's memory.
//!
//! **Invariant:** everything a model has on the device is allocated when it is opened, so nothing
//! can run out later and captured graphs stay valid.
//!
//! **Invariant:** one thread at a time calls the driver for a model: that of the caller.

pub mod budget;
pub mod copier;
pub mod device;
pub mod event;
pub mod exec;
pub mod ffi;
pub mod graph;
pub mod inputs;
mod launch;
pub mod module;
pub mod results;
pub mod upload;

pub use device::{Device, Facts};
pub(crate) use exec::Gpu;
