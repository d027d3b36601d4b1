//! What GPU kernels are made of, as data.

pub mod schedule;
