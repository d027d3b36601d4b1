//! Rows made of the inputs of three layers (EAGLE-3, arXiv 2503.01840, section 3.1), which a decoder leaves to its
//! caller in place of its hidden states.

use crate::arch::blocks::lifter::{Carried, Lifter};
use crate::arch::blocks::names::Kind;
use crate::arch::blocks::outputs::Fused;
use crate::error::FrontendError;
use llmcc_ir::graph::Op;

/// The rows so far.
pub(crate) struct FusedRows {
    of: Option<Fused>,
    taken: Vec<Carried>,
}

impl FusedRows {
    /// Nothing yet of the rows that the entry asks for.
    pub(crate) fn of(l: &Lifter) -> FusedRows {
        FusedRows { of: l.entry.fused.clone(), taken: vec![] }
    }

    /// Takes `x` where it is the input of a wanted layer.
    pub(crate) fn take(&mut self, layer: usize, x: &Carried) {
        let wanted = self.of.iter().flat_map(|of| of.layers).filter(|i| *i == layer);
        self.taken.extend(wanted.map(|_| x.clone()));
    }

    /// `fuse`: leaves the rows `[T, hidden]` to the caller, if they are wanted.
    ///
    /// # Errors
    /// The draft lacks the matrix, or has it in another shape.
    pub(crate) fn lift(self, l: &mut Lifter) -> Result<(), FrontendError> {
        let Some(of) = self.of else { return Ok(()) };
        let mut f = l.func("fuse");
        let hidden = f.facts().hidden;
        let rows: Vec<_> =
            self.taken.iter().zip(["low", "middle", "high"]).map(|(x, name)| f.carried(name, x)).collect();
        let rows = f.op(Op::ConcatCols, &rows);
        let w = f.named_weight("fuse.w", of.tensor, Kind::Matrix, &[hidden, of.layers.len() * hidden]);
        let rows = f.matmul(rows, w);
        f.keep(rows);
        f.call(&[])?;
        Ok(())
    }
}
