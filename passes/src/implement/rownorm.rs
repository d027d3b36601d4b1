//! Row-wise kernels: normalization, and the operations it absorbs (a gather before it; a gain, a
//! bias and the residual stream after it).

use super::{Context, KernelNode, OpNode};
use crate::egraph::Head;
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::BinaryOp;
use llmcc_ir::kernel::{Body, Norm, ParamId, ParamKind, RowElem, RowNorm};

/// Adds the row-wise kernels of one operation.
pub fn run(cx: &mut Context<'_>, class: Id, op: &OpNode) {
    if let Some(norm) = op.norm() {
        return normalize(cx, class, op.args[0], norm);
    }
    match op.op.head() {
        Head::Binary(BinaryOp::Mul) => {
            let free = |b: &RowNorm| b.gain.is_none() && b.bias.is_none() && b.residual.is_none();
            followed_by(cx, class, [op.args[0], op.args[1]], free, |b, gain| RowNorm { gain, ..b });
        }
        Head::Binary(BinaryOp::Add) => {
            let free = |b: &RowNorm| b.bias.is_none() && b.residual.is_none();
            followed_by(cx, class, [op.args[0], op.args[1]], free, |b, bias| RowNorm { bias, ..b });
            residual(cx, class, [op.args[0], op.args[1]]);
            residual(cx, class, [op.args[1], op.args[0]]);
        }
        _ => {}
    }
}

/// Row-wise kernels that compute `class` in f32.
fn row_norms(cx: &Context<'_>, class: Id) -> Vec<(KernelNode, RowNorm)> {
    let body = |n: KernelNode| {
        let Body::RowNorm(r) = n.0.kernel.body.clone() else { return None };
        Some((n, r))
    };
    cx.row_kernels(class).into_iter().filter_map(body).collect()
}

fn normalize(cx: &mut Context<'_>, class: Id, x: Id, norm: Norm) {
    let norm = Some(norm);
    let (Some((rows, cols)), Some(kind)) = (cx.rows_of(class), cx.rows_kind(x)) else { return };
    cx.put(
        class,
        Draft::new(rows, |d| {
            let x = d.input(x, kind);
            let out = d.output(cols, RowElem::F32);
            Body::RowNorm(RowNorm { norm, ..RowNorm::plain(x, out) })
        }),
    );
    for ((spec, children), body) in row_norms(cx, x) {
        if body == (RowNorm { gather: body.gather, ..RowNorm::plain(body.x, body.out) }) {
            let mut d = Draft::open(&spec, &children);
            d.body = Body::RowNorm(RowNorm { norm, ..body });
            cx.put(class, d);
        }
    }
}

/// A vector that multiplies, or is added to, the result of row-wise kernels with a place for it.
fn followed_by(
    cx: &mut Context<'_>,
    class: Id,
    [x, vector]: [Id; 2],
    free: fn(&RowNorm) -> bool,
    with: fn(RowNorm, Option<ParamId>) -> RowNorm,
) {
    let Some(len) = cx.vector_of(vector) else { return };
    for ((spec, children), body) in row_norms(cx, x) {
        if free(&body) {
            let mut d = Draft::open(&spec, &children);
            let vector = Some(d.input(vector, ParamKind::Vector { len }));
            d.body = Body::RowNorm(with(body, vector));
            cx.put(class, d);
        }
    }
}

/// A normalized value that is added to the rows `x`.
fn residual(cx: &mut Context<'_>, class: Id, [x, normed]: [Id; 2]) {
    let (Some((rows, _)), Some(kind)) = (cx.rows_of(x), cx.rows_kind(x)) else { return };
    if !cx.read_once(normed) {
        return;
    }
    for ((spec, children), body) in row_norms(cx, normed) {
        if body.norm.is_some() && !body.gather && body.residual.is_none() && spec.kernel.rows == rows {
            let mut d = Draft::open(&spec, &children);
            let residual = Some(d.input(x, kind.clone()));
            d.body = Body::RowNorm(RowNorm { residual, ..body });
            cx.put(class, d);
        }
    }
}
