//! Differential attention (arXiv 2410.05258): of two maps of scores one is subtracted from the other, times
//! a learned number, over values that two heads have together.

use crate::arch::blocks::attention::{Attention, Norm, attend, linear, product, stored};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{ATTN_K, ATTN_OUT, ATTN_Q, ATTN_V, Kind, Part};
use crate::config::common::Heads;
use llmcc_ir::graph::{BinaryOp, F32, Op, UnaryOp, Value};

/// Vectors whose products make the number.
pub(crate) const LAMBDAS: [[Part; 2]; 2] =
    [[Part("attn.lambda_q1"), Part("attn.lambda_k1")], [Part("attn.lambda_q2"), Part("attn.lambda_k2")]];

/// The number without learned vectors, in layer `i`.
pub(crate) fn first_lambda(i: usize) -> f32 {
    (0.8 - 0.6 * libm::exp(-0.3 * i as f64)) as f32
}

/// Attention over `h`, a row per token, of as many query heads in either map; `first`: [`first_lambda`].
#[track_caller]
pub(crate) fn attention(
    f: &mut Draft,
    (a, first): (&Attention, f32),
    eps: Norm,
    h: Value,
    kv: Value,
    positions: Value,
    rope: Option<Value>,
) -> Value {
    let (hidden, own, Heads { queries, kv: groups, dim }) = (f.facts().hidden, a.own(), a.heads);
    let q = linear(f, ATTN_Q, [queries * dim, hidden], own.qkv_bias, h);
    let k = linear(f, ATTN_K, [groups * dim, hidden], own.qkv_bias, h);
    let (w, b) = stored(f, ATTN_V, [groups * dim, hidden], own.qkv_bias, false);
    let (w, b) = (paired(f, w, groups, dim), b.map(|b| paired(f, b, groups, dim)));
    let v = product(f, h, w, b);
    let y = attend(f, a, eps, [q, k, v], kv, positions, rope);
    let cols = queries * dim;
    let [y, less] = [0, cols].map(|start| f.op(Op::SliceCols { start, len: cols }, &[y]));
    let lambda = lambda(f, first, dim);
    let less = f.mul(less, lambda);
    let y = f.op(Op::Binary(BinaryOp::Sub), &[y, less]);
    let y = f.op(Op::Normalize { eps: F32::new(eps.eps), width: 2 * dim }, &[y]);
    let rest = f.computed("attn.rest", &format!("$attention.rest{first}"), vec![1.0 - first]);
    let y = f.mul(y, rest);
    linear(f, ATTN_OUT, [hidden, cols], own.out_bias, y)
}

/// Rows of values for each group of queries: a head's of the first half, and its counterpart's in
/// the second.
#[track_caller]
fn paired(f: &mut Draft, w: Value, groups: usize, dim: usize) -> Value {
    let half = (groups / 2).max(1);
    let heads = (0..groups).flat_map(|g| [g % half, half + g % half]);
    let rows: Vec<Value> = heads.map(|g| f.op(Op::SliceRows { start: g * dim, len: dim }, &[w])).collect();
    f.op(Op::ConcatRows, &rows)
}

/// `exp(q₁·k₁) − exp(q₂·k₂)`, plus the initial number.
#[track_caller]
fn lambda(f: &mut Draft, first: f32, dim: usize) -> Value {
    let [plus, minus] = LAMBDAS.map(|parts| {
        let [q, k] = parts.map(|part| f.weight(part, Kind::Bare, &[dim]));
        let products = f.mul(q, k);
        let sum = sum(f, products, dim);
        f.unary(UnaryOp::Exp, sum)
    });
    let learned = f.op(Op::Binary(BinaryOp::Sub), &[plus, minus]);
    let first = f.computed("attn.lambda", &format!("$attention.lambda{first}"), vec![first]);
    f.add(learned, first)
}

/// The sum of the elements of a stored vector, by halves.
#[track_caller]
fn sum(f: &mut Draft, x: Value, len: usize) -> Value {
    if len < 2 {
        return x;
    }
    let half = len / 2;
    let [first, second] = [0, half].map(|start| f.op(Op::SliceRows { start, len: half }, &[x]));
    let both = f.add(first, second);
    let both = sum(f, both, half);
    if len.is_multiple_of(2) {
        return both;
    }
    let last = f.op(Op::SliceRows { start: len - 1, len: 1 }, &[x]);
    f.add(both, last)
}
