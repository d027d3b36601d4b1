//! Tests of the crate in one program, which links faster than one for each file.

#[path = "../../tests/client/mod.rs"]
mod client;
mod faults;
mod fuse;
mod kept;
mod load;
mod routed;
#[allow(dead_code)]
#[path = "../../tests/stand_in/mod.rs"]
mod stand_in;
mod streams;
