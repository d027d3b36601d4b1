//! Tests of the crate in one program, which links faster than one for each file.

mod asynchronous;
mod common;
mod faults;
mod float;
mod integer;
mod matrix;
mod memory;
mod parse;
mod robust;
mod warp;
mod warpgroup;
