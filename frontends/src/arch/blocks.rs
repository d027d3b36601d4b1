//! Blocks that architectures share: a function each, that asks for its weights where it uses them.

use super::lifter::Draft;
use super::names::{
    ATTN_K, ATTN_K_NORM, ATTN_OUT, ATTN_Q, ATTN_Q_NORM, ATTN_QKV, ATTN_V, Kind, MLP_DOWN, MLP_GATE, MLP_GATE_UP,
    MLP_UP, Part,
};
use super::weights::split_rows;
use crate::config::common::Heads;
use llmcc_ir::graph::{F32, Op, UnaryOp, Value};

/// RMSNorm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Norm {
    /// Added to the mean square.
    pub eps: f32,
    /// The gain is one more than what is stored.
    pub from_one: bool,
}

/// What an attention block is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention {
    /// Heads.
    pub heads: Heads,
    /// Multiplies scores.
    pub scale: f32,
    /// Q, K and V are stored as one matrix.
    pub fused: bool,
    /// Biases on Q, K and V.
    pub qkv_bias: bool,
    /// Bias on the output.
    pub out_bias: bool,
    /// Norm of Q and K, before the rotation.
    pub qk_norm: Option<QkNorm>,
    /// The rotary table, by its number; `None` = positions are not rotated.
    pub rotary: Option<usize>,
    /// Sliding window.
    pub window: Option<usize>,
}

impl Attention {
    /// Without biases, norms or scale of its own.
    pub(super) fn plain(heads: Heads, window: Option<usize>) -> Attention {
        let scale = heads.scale();
        Attention {
            heads,
            scale,
            fused: false,
            qkv_bias: false,
            out_bias: false,
            qk_norm: None,
            rotary: Some(0),
            window,
        }
    }
}

/// What the norm of queries and keys takes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QkNorm {
    /// Each head, all with the same gains.
    Head,
    /// The whole row.
    Row,
}

/// What an MLP with a gate is.
#[derive(Clone, Copy, Debug)]
pub(super) struct GatedMlp {
    /// Width.
    pub ffn: usize,
    /// Activation.
    pub act: UnaryOp,
    /// Biases on all three matrices.
    pub bias: bool,
    /// Gate and up are stored as one matrix.
    pub fused: bool,
}

/// RMSNorm over runs of `width` columns.
#[track_caller]
pub(super) fn norm(f: &mut Draft, part: Part, spec: Norm, x: Value, width: usize) -> Value {
    let mut gain = f.weight(part, Kind::Gain, &[width]);
    if spec.from_one {
        let one = f.scalar(1.0);
        gain = f.add(gain, one);
    }
    f.rms_norm(x, gain, spec.eps, width)
}

/// `x·wᵀ (+ b)` with a matrix of `shape` `[out, in]`.
#[track_caller]
pub(super) fn linear(f: &mut Draft, part: Part, shape: [usize; 2], bias: bool, x: Value) -> Value {
    let w = f.matrix(part, shape);
    let b = bias.then(|| f.bias(part, shape[0]));
    product(f, x, w, b)
}

/// `x·wᵀ (+ b)`
#[track_caller]
fn product(f: &mut Draft, x: Value, w: Value, b: Option<Value>) -> Value {
    let y = f.matmul(x, w);
    b.map_or(y, |b| f.add(y, b))
}

/// Several products of one input whose matrices are stored one below the other as `part`.
#[track_caller]
fn fused<const N: usize>(
    f: &mut Draft,
    part: Part,
    rows: [usize; N],
    inner: usize,
    bias: bool,
    x: Value,
) -> [Value; N] {
    let all = rows.iter().fold(0, |n: usize, r| n.saturating_add(*r));
    let w = f.matrix(part, [all, inner]);
    let b = bias.then(|| f.bias(part, all));
    let w = split_rows(f, w, rows);
    let b = b.map(|b| split_rows(f, b, rows));
    std::array::from_fn(|i| product(f, x, w[i], b.map(|b| b[i])))
}

/// `x` times a number, if there is one.
pub(super) fn scaled(f: &mut Draft, x: Value, by: Option<f32>) -> Value {
    by.map_or(x, |by| {
        let by = f.scalar(by);
        f.mul(x, by)
    })
}

/// `cap·tanh(x/cap)`, if there is a cap.
pub(super) fn capped(f: &mut Draft, x: Value, cap: Option<f32>) -> Value {
    let Some(cap) = cap else { return x };
    let x = scaled(f, x, Some(1.0 / cap));
    let x = f.unary(UnaryOp::Tanh, x);
    scaled(f, x, Some(cap))
}

/// Grouped-query attention over `h`, a row per token; `kv` is its state, `rope` its rotary table.
#[track_caller]
pub(super) fn attention(
    f: &mut Draft,
    a: &Attention,
    eps: Norm,
    h: Value,
    kv: Value,
    positions: Value,
    rope: Option<Value>,
) -> Value {
    let hidden = f.facts().hidden;
    let (q_width, kv_width) = (a.heads.queries * a.heads.dim, a.heads.kv * a.heads.dim);
    let qkv = match a.fused {
        true => fused(f, ATTN_QKV, [q_width, kv_width, kv_width], hidden, a.qkv_bias, h),
        false => [(ATTN_Q, q_width), (ATTN_K, kv_width), (ATTN_V, kv_width)]
            .map(|(part, n)| linear(f, part, [n, hidden], a.qkv_bias, h)),
    };
    let y = attend(f, a, eps, qkv, kv, positions, rope);
    linear(f, ATTN_OUT, [hidden, q_width], a.out_bias, y)
}

/// [`attention`] of projected rows, before the output's projection.
#[track_caller]
pub(super) fn attend(
    f: &mut Draft,
    a: &Attention,
    eps: Norm,
    [mut q, mut k, v]: [Value; 3],
    kv: Value,
    positions: Value,
    rope: Option<Value>,
) -> Value {
    let head_dim = a.heads.dim;
    if let Some(of) = a.qk_norm {
        let (q_width, kv_width) = (a.heads.queries * head_dim, a.heads.kv * head_dim);
        let width = |row| if of == QkNorm::Head { head_dim } else { row };
        q = norm(f, ATTN_Q_NORM, eps, q, width(q_width));
        k = norm(f, ATTN_K_NORM, eps, k, width(kv_width));
    }
    if let Some(rope) = rope {
        q = f.op(Op::Rope { head_dim }, &[q, rope]);
        k = f.op(Op::Rope { head_dim }, &[k, rope]);
    }
    let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
    f.op(Op::Attention { heads: a.heads.queries, scale: F32::new(a.scale) }, &[q, kv, positions])
}

/// `down(act(gate(h)) · up(h))`
#[track_caller]
pub(super) fn gated_mlp(f: &mut Draft, m: &GatedMlp, h: Value) -> Value {
    let hidden = f.facts().hidden;
    let gate_up = m.fused.then(|| fused(f, MLP_GATE_UP, [m.ffn, m.ffn], hidden, m.bias, h));
    let gate = gate_up.map_or_else(|| linear(f, MLP_GATE, [m.ffn, hidden], m.bias, h), |[gate, _]| gate);
    let gate = f.unary(m.act, gate);
    let up = gate_up.map_or_else(|| linear(f, MLP_UP, [m.ffn, hidden], m.bias, h), |[_, up]| up);
    let h = f.mul(gate, up);
    linear(f, MLP_DOWN, [hidden, m.ffn], m.bias, h)
}
