//! Tests of the crate in one program, which links faster than one for each file.

mod docs;
mod text;
mod verify;
