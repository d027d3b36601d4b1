//! What GPU kernels are made of, as data.

pub mod attention;
pub mod layout;
mod print;
pub mod program;
mod run;
pub mod schedule;
#[cfg(test)]
mod tests;
mod unroll;
pub mod verify;
