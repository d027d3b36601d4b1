//! How far LLVM takes a module.

/// Stage to which a module is lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// MLIR in the `llvm` dialect.
    Lowered,
    /// Optimized LLVM IR.
    LlvmIr,
    /// PTX.
    Ptx,
}

impl Stage {
    const NAMES: [(Stage, &'static str); 3] =
        [(Stage::Lowered, "lowered"), (Stage::LlvmIr, "llvm"), (Stage::Ptx, "ptx")];

    pub(crate) fn name(self) -> &'static str {
        Stage::NAMES.iter().find(|(s, _)| *s == self).map_or("", |(_, n)| n)
    }

    #[cfg(feature = "llvm")]
    pub(crate) fn parse(name: &str) -> Option<Stage> {
        Stage::NAMES.iter().find(|(_, n)| *n == name).map(|(s, _)| *s)
    }
}
