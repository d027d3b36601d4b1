//! What the benchmarks of microkernels share: threads that work side by side, and what the machine
//! can do at best.

pub mod peaks;
#[path = "../../cli/src/cmd/bench/stream.rs"]
pub mod stream;
pub mod team;
