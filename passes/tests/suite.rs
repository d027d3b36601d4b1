//! Tests of the crate in one program, which links faster than one for each file.

mod bisect;
mod budget;
mod common;
mod gpu;
mod methods;
mod parts;
mod plans;
mod pruning;
mod scales;
mod shapes;
mod size;
mod taps;
