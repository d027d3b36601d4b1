//! Tests that read the sources and run nothing of the compiler: `make quick` has them, too.

mod circles;
mod tidy;
