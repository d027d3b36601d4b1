//! Gates of attention (arXiv 2505.06708): the heads' results are multiplied by activations of the
//! same row.

use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{ATTN_GATE, Kind, Part};
use llmcc_ir::graph::{Op, UnaryOp, Value};

/// Bias common to each head's columns of a gate, `[heads]`.
pub(crate) const ATTN_GATE_BIAS: Part = Part("attn.gate_bias");

/// Where a gate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Per column; in the matrix of queries, after each head's.
    BesideQueries,
    /// Per column, by a matrix of its own.
    Columns,
    /// The same, whose columns of a head have a bias in common.
    ColumnsBiased,
    /// One for each head, by a matrix of its own.
    Heads,
}

/// `y`, the result of `heads` of `cols` columns for `h`, times the gates `act(gate)`; `beside` is
/// the gate that [`Gate::BesideQueries`] has made already.
#[track_caller]
pub(crate) fn gated(
    f: &mut Draft,
    (gate, act): (Option<Gate>, UnaryOp),
    beside: Option<Value>,
    h: Value,
    y: Value,
    [heads, cols]: [usize; 2],
) -> Value {
    let hidden = f.facts().hidden;
    let made = match (gate, beside) {
        (None, _) | (Some(Gate::BesideQueries), None) => return y,
        (Some(_), Some(made)) => made,
        (Some(Gate::Columns), None) => {
            let w = f.weight(ATTN_GATE, Kind::Matrix, &[heads.saturating_mul(cols), hidden]);
            f.matmul(h, w)
        }
        (Some(Gate::ColumnsBiased), None) => {
            let w = f.weight(ATTN_GATE, Kind::Matrix, &[heads.saturating_mul(cols), hidden]);
            let bias = f.weight(ATTN_GATE_BIAS, Kind::Bare, &[heads]);
            let bias = f.op(Op::RepeatEach { times: cols }, &[bias]);
            let made = f.matmul(h, w);
            f.add(made, bias)
        }
        (Some(Gate::Heads), None) => {
            let w = f.weight(ATTN_GATE, Kind::Matrix, &[heads, hidden]);
            f.matmul(h, w)
        }
    };
    let mut gate_of_each = f.unary(act, made);
    if gate == Some(Gate::Heads) {
        let order = (0..heads).flat_map(|i| std::iter::repeat_n(i as f32, cols)).collect();
        let order = f.shared_constant("attn.gate_order", &format!("$attn.gate_order{heads}x{cols}"), order);
        gate_of_each = f.op(Op::PickCols, &[gate_of_each, order]);
    }
    f.mul(y, gate_of_each)
}
