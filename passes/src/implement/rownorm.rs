//! Row-wise kernels: normalization, and what it absorbs (a gather before it, a gain after it).

use super::generic::{float, int};
use super::{Context, KernelNode, OpNode};
use crate::egraph::Head;
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::BinaryOp;
use llmcc_ir::kernel::{Body, Norm, ParamKind, RowElem, RowNorm};

/// Adds the row-wise kernels of one operation.
pub fn run(cx: &mut Context<'_>, class: Id, op: &OpNode) {
    match op.head {
        Head::Normalize => normalize(cx, class, op),
        Head::Binary(BinaryOp::Mul) => {
            gain(cx, class, op.args[0], op.args[1]);
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

fn normalize(cx: &mut Context<'_>, class: Id, op: &OpNode) {
    let (Some(eps), Some(width)) = (float(cx.graph, op.attrs[0]), int(cx.graph, op.attrs[1])) else { return };
    let norm = Some(Norm { eps, width });
    let x = op.args[0];
    let (Some((rows, cols)), Some(kind)) = (cx.rows_of(class), cx.rows_kind(x)) else { return };
    cx.put(
        class,
        Draft::new(rows, |d| {
            let x = d.input(x, kind);
            let out = d.output(cols, RowElem::F32);
            Body::RowNorm(RowNorm { x, gather: false, norm, gain: None, out })
        }),
    );
    for ((spec, children), body) in row_norms(cx, x) {
        if body.norm.is_none() && body.gain.is_none() {
            let mut d = Draft::open(&spec, &children);
            d.body = Body::RowNorm(RowNorm { norm, ..body });
            cx.put(class, d);
        }
    }
}

fn gain(cx: &mut Context<'_>, class: Id, x: Id, g: Id) {
    let Some(len) = cx.vector_of(g) else { return };
    for ((spec, children), body) in row_norms(cx, x) {
        if body.gain.is_none() {
            let mut d = Draft::open(&spec, &children);
            let gain = Some(d.input(g, ParamKind::Vector { len }));
            d.body = Body::RowNorm(RowNorm { gain, ..body });
            cx.put(class, d);
        }
    }
}
