//! The work of a launch on any machine: bytes from memory and multiply-adds, by which a measured
//! time becomes a rate.

use llmcc_ir::kernel::{Kernel, Matmul, ParamKind, RowElem};
use llmcc_ir::target::TargetSpec;

/// Work of one launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Bytes of weights and cache that come from main memory. Activations are taken to stay in the
    /// processor's caches.
    pub bytes: f64,
    /// Multiply-adds.
    pub macs: f64,
    /// Type of their rows.
    pub elem: RowElem,
}

impl Default for Work {
    fn default() -> Work {
        Work { bytes: 0.0, macs: 0.0, elem: RowElem::F32 }
    }
}

impl Work {
    /// Multiply-adds of that kind that a core of the target does per second at most; 0 where it
    /// does not multiply such rows.
    pub fn peak(&self, target: &TargetSpec) -> f64 {
        target.macs(self.elem)
    }
}

/// A launch, whatever the machine.
#[derive(Clone, Copy)]
pub(crate) struct Launched<'a> {
    pub kernel: &'a Kernel,
    /// Rows of the kernel.
    pub m: usize,
    pub sequences: usize,
    /// Tokens that each token attends to.
    pub context: usize,
}

/// How the rows are stored that a product multiplies.
pub(crate) fn multiplied(kernel: &Kernel, b: &Matmul) -> RowElem {
    let stored = match kernel.params[b.x].kind {
        ParamKind::Rows { elem, .. } => elem,
        _ => RowElem::F32,
    };
    b.prologue.map_or(stored, |p| p.elem)
}
