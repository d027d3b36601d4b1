//! Verifiers of all three levels. They collect every error they find, each with its place.

mod access;

pub use access::{Access, accesses};
