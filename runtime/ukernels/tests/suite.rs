//! Tests of the crate in one program, which links faster than one for each file.

mod attend;
mod evict;
mod map;
mod panels;
mod recur;
mod rows;
mod select;
mod support;
mod windows;
