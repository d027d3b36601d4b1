//! Experts that read and write a row narrower than the layers', so that more of them cost as much (latent
//! experts of Nemotron 3, arXiv 2512.20856, and of Kimi K3): one matrix makes it of the layer's row, another
//! brings back what all chosen experts add up to.

use super::super::blocks::{Norm, linear, norm};
use super::super::lifter::Draft;
use super::super::names::Part;
use llmcc_ir::graph::Value;

/// From the layer's row, `[width, hidden]`.
pub(in super::super) const ROW_DOWN: Part = Part("experts.row_down");
/// Norm of the weighted sum of experts, `[width]`.
pub(in super::super) const ROW_NORM: Part = Part("experts.row_norm");
/// Back, `[hidden, width]`.
pub(in super::super) const ROW_UP: Part = Part("experts.row_up");

/// The row of experts.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Row {
    /// Its columns.
    pub width: usize,
    /// Both matrices have biases.
    pub bias: bool,
    /// Norm of what the chosen experts add up to.
    pub norm: Option<Norm>,
}

impl Row {
    /// What experts read of `h`, a row per token.
    #[track_caller]
    pub(super) fn entered(self, f: &mut Draft, h: Value) -> Value {
        linear(f, ROW_DOWN, [self.width, f.facts().hidden], self.bias, h)
    }

    /// What the layer gets of `y`, their weighted sum.
    #[track_caller]
    pub(super) fn left(self, f: &mut Draft, y: Value) -> Value {
        let y = self.norm.map_or(y, |spec| norm(f, ROW_NORM, spec, y, self.width));
        linear(f, ROW_UP, [f.facts().hidden, self.width], self.bias, y)
    }
}
