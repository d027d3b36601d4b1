//! Experts that read and write a row narrower than the layers', so that more of them cost as much
//! (latent experts of Nemotron 3, arXiv 2512.20856, of Kimi K3 and of Muse Spark): one matrix makes
//! it of the layer's row, another brings the chosen experts' sum back.

use crate::arch::blocks::attention::{Norm, linear, norm};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{Kind, Part};
use llmcc_ir::graph::{F32, Op, Value};

/// From the layer's row, `[width, hidden]`.
pub(crate) const ROW_DOWN: Part = Part("experts.row_down");
/// Norm of the experts' input, `[width]`.
pub(crate) const ROW_ENTRY_NORM: Part = Part("experts.row_entry_norm");
/// Norm of each expert's output, `[width]`.
pub(crate) const ROW_EACH_NORM: Part = Part("experts.row_each_norm");
/// Norm of the weighted sum of experts, `[width]`.
pub(crate) const ROW_NORM: Part = Part("experts.row_norm");
/// Back, `[hidden, width]`.
pub(crate) const ROW_UP: Part = Part("experts.row_up");

/// The row of experts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertRow {
    /// Its columns.
    pub width: usize,
    /// Both matrices have biases.
    pub bias: bool,
    /// Norm of the experts' input.
    pub entry: Option<Norm>,
    /// Each one's output is [`scaled_first`], with this added to mean squares.
    pub each: Option<f32>,
    /// Norm of the chosen experts' sum.
    pub norm: Option<Norm>,
}

impl ExpertRow {
    /// One of so many columns, without biases and norms.
    pub(crate) fn plain(width: usize) -> ExpertRow {
        ExpertRow { width, bias: false, entry: None, each: None, norm: None }
    }

    /// The experts' input from `h`, a row per token.
    #[track_caller]
    pub(crate) fn entered(self, f: &mut Draft, h: Value) -> Value {
        let x = linear(f, ROW_DOWN, [self.width, f.facts().hidden], self.bias, h);
        self.entry.map_or(x, |spec| norm(f, ROW_ENTRY_NORM, spec, x, self.width))
    }

    /// The chosen experts' outputs, side by side, before they are weighted.
    #[track_caller]
    pub(crate) fn each(self, f: &mut Draft, y: Value) -> Value {
        self.each.map_or(y, |eps| scaled_first(f, ROW_EACH_NORM, eps, y, self.width))
    }

    /// The layer's row from `y`, their weighted sum.
    #[track_caller]
    pub(crate) fn left(self, f: &mut Draft, y: Value) -> Value {
        let y = self.norm.map_or(y, |spec| norm(f, ROW_NORM, spec, y, self.width));
        linear(f, ROW_UP, [f.facts().hidden, self.width], self.bias, y)
    }
}

/// RMSNorm of runs of `width` columns that are multiplied by one more than a learned row before, not after.
#[track_caller]
pub(crate) fn scaled_first(f: &mut Draft, part: Part, eps: f32, y: Value, width: usize) -> Value {
    let gain = f.weight(part, Kind::Gain, &[width]);
    let one = f.scalar(1.0);
    let gain = f.add(gain, one);
    let y = f.mul(y, gain);
    f.op(Op::Normalize { eps: F32::new(eps), width }, &[y])
}
