//! Common parts of the benchmarks of microkernels: threads that work side by side, and the
//! machine's limits.

pub mod peaks;
#[path = "../../cli/src/cmd/bench/stream.rs"]
pub mod stream;
pub mod team;
