//! Tests of the crate in one program, which links faster than one for each file.

#[cfg(feature = "llvm")]
mod attention;
#[cfg(feature = "llvm")]
mod experts;
#[cfg(feature = "llvm")]
mod families;
#[cfg(feature = "llvm")]
mod fp8;
#[cfg(feature = "llvm")]
mod matmul;
#[cfg(feature = "llvm")]
mod products;
#[cfg(feature = "llvm")]
mod program;
#[cfg(feature = "llvm")]
mod recurrent;
#[cfg(feature = "llvm")]
mod sample;
#[cfg(feature = "llvm")]
mod select;
mod skeletons;
mod snapshots;
#[cfg(feature = "llvm")]
mod support;
mod supported;
