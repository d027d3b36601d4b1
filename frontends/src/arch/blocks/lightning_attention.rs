//! Lightning attention (MiniMax-01, arXiv 2501.08313; TransNormerLLM, 2307.14995): linear attention
//! whose states decay by a number of the head and the layer, between an activation and a norm.

use crate::arch::blocks::attention::{Norm, linear, norm};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{ATTN_QKV, Table, names};
use crate::arch::blocks::recurrent::{DELTA_GATE, SSM_NORM, SSM_OUT};
use crate::arch::blocks::weight_forms::run_parts;
use llmcc_ir::graph::{Op, UnaryOp, Update, Value};

/// A layer with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lightning {
    /// Heads.
    pub heads: usize,
    /// Columns of each.
    pub dim: usize,
    /// Activation of queries, keys and values.
    pub act: UnaryOp,
    /// The layer, and how many there are.
    pub layer: [usize; 2],
}

/// Names of its tensors in checkpoints.
pub(crate) const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_QKV => "self_attn.qkv_proj", SSM_NORM => "self_attn.norm", DELTA_GATE => "self_attn.output_gate",
        SSM_OUT => "self_attn.out_proj",
    }
};

/// The norm's addend to mean squares; no file has it.
const EPS: f32 = 1e-6;

impl Lightning {
    /// Decay of each head's states per token: `e^−s` with the slopes of ALiBi, `2^(−8h/heads)`,
    /// which fall from layer to layer, to next to nothing in the last.
    fn decays(&self) -> Vec<f32> {
        let [layer, layers] = self.layer.map(|n| n as f64);
        let factor = 1.0 - layer / (layers - 1.0 + 1e-5) + 1e-5;
        let slope = |head: usize| libm::exp2(-8.0 * (head + 1) as f64 / self.heads as f64) * factor;
        (0..self.heads).map(|head| libm::exp(-slope(head)) as f32).collect()
    }
}

/// Its output for `h`, a row per token.
#[track_caller]
pub(crate) fn lightning(f: &mut Draft, m: &Lightning, h: Value) -> Value {
    let (hidden, width, run) = (f.facts().hidden, m.heads * m.dim, 3 * m.dim);
    let all = f.matrix(ATTN_QKV, [3 * width, hidden]);
    // Head by head: its queries, its keys, its values.
    let [q, k, v] = [0, 1, 2].map(|part| {
        let w = run_parts(f, all, run, part * m.dim, m.dim);
        let x = f.matmul(h, w);
        f.unary(m.act, x)
    });
    let decays = f.computed("lightning.decays", &format!("$lightning.decays{}", m.layer[0]), m.decays());
    let ones = f.shared_constant("lightning.rates", "$lightning.rates", vec![1.0; m.heads]);
    let state = f.fixed("lightning", [m.heads, m.dim, m.dim]);
    let y = f.op(Op::Recurrence { update: Update::Plain }, &[q, k, v, decays, ones, state]);
    let y = norm(f, SSM_NORM, Norm::rms(EPS), y, width);
    let gate = linear(f, DELTA_GATE, [width, hidden], false, h);
    let gate = f.unary(UnaryOp::Sigmoid, gate);
    let y = f.mul(gate, y);
    linear(f, SSM_OUT, [hidden, width], false, y)
}
