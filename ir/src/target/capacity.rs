//! The memory of the largest machine that a target has the rates of.

use super::TargetSpec;

const GB: u64 = 1_000_000_000;

impl TargetSpec {
    /// Bytes of memory of the largest GPU with the target's instructions and the rates it is compiled
    /// for, and which GPU that is; `None` for processors, whose memory is anyone's choice.
    pub fn capacity(&self) -> Option<(u64, &'static str)> {
        let gpu = self.gpu()?;
        Some(match (gpu.sm, self.name.contains("h100")) {
            (..=80, _) => (80 * GB, "the largest, an A100 80GB,"),
            (81..=88, _) => (48 * GB, "the largest, an RTX A6000,"),
            (89, _) => (48 * GB, "the largest, an L40S,"),
            (90..=99, true) => (80 * GB, "an H100"),
            (90..=99, false) => (141 * GB, "the largest, an H200,"),
            (100.., _) => (192 * GB, "the largest, a B200,"),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::target::all;

    /// Every GPU says it, no processor does.
    #[test]
    fn gpus_have_so_much_memory() {
        for t in all() {
            assert_eq!(t.capacity().is_some(), t.gpu().is_some(), "{}", t.name);
        }
    }
}
