//! Passes from modules to modules: they come before the [pipeline](crate::pipeline).

pub mod layers;
pub mod migrate;
pub mod parts;
pub mod policy;
pub mod scales;
pub mod tap;
