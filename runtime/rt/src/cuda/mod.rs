//! Running a model on an NVIDIA GPU, with nothing but its driver.
//!
//! [`ffi`] is the driver's API, [`device`] an open GPU and its memory, [`module`] turns the
//! artifact's code into functions, [`budget`] knows beforehand what a model needs, [`exec`] runs
//! steps, from a [`graph`] where the sizes of launches are bounded, and [`results`] brings back
//! what is wanted of them.
//!
//! **Invariant:** everything a model has on the device is allocated when it is opened, so nothing
//! can run out later and captured graphs stay valid.

pub mod budget;
pub mod device;
pub mod event;
pub mod exec;
pub mod ffi;
pub mod graph;
pub mod inputs;
mod launch;
pub mod module;
pub mod results;

pub use device::{Device, Facts};
pub(crate) use exec::Gpu;
