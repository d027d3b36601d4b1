//! Tests of the crate in one program, which links faster than one for each file.

mod attention;
mod experts;
mod families;
mod fp8;
mod matmul;
mod products;
mod program;
mod recurrent;
mod sample;
mod skeletons;
mod snapshots;
mod support;
mod supported;
