//! How long opening a model took.

use std::time::Duration;

/// Parts of opening a model on a GPU; nothing on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The driver's start, and that of its context.
    pub driver: Duration,
    /// Allocating and clearing memory on the GPU.
    pub memory: Duration,
    /// Copying the weights there, and loading code beside it.
    pub weights: Duration,
    /// Loading code, beside the weights or after them.
    pub code: Duration,
}

impl Opened {
    /// `{"all", "driver", "memory", "weights", "code"}` in nanoseconds, where opening took `all`.
    pub fn json(&self, all: Duration) -> String {
        let parts = [
            ("all", all),
            ("driver", self.driver),
            ("memory", self.memory),
            ("weights", self.weights),
            ("code", self.code),
        ];
        let parts = parts.map(|(name, took)| format!("\"{name}\":{}", took.as_nanos()));
        format!("{{{}}}", parts.join(","))
    }
}
