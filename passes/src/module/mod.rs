//! Passes from modules to modules: they come before the [pipeline](crate::pipeline).

pub mod parts;
pub mod tap;
