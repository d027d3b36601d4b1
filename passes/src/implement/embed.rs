//! What a look-up absorbs: a scale of the rows, and rows that they are added to (another embedding).

use super::{Context, KernelNode, OpNode};
use crate::egraph::Head;
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::{BinaryOp, F32};
use llmcc_ir::kernel::{Body, Embed};

/// Adds the look-ups of one operation.
pub fn run(cx: &mut Context<'_>, class: Id, op: &OpNode) {
    match op.head {
        Head::Binary(BinaryOp::Mul) => scaled(cx, class, op.args[0], op.args[1]),
        Head::Binary(BinaryOp::Add) => {
            added(cx, class, op.args[0], op.args[1]);
            added(cx, class, op.args[1], op.args[0]);
        }
        _ => {}
    }
}

/// Look-ups that compute `class` and add nothing yet.
fn lookups(cx: &Context<'_>, class: Id) -> Vec<(KernelNode, Embed)> {
    let body = |n: KernelNode| match n.0.kernel.body.clone() {
        Body::Embed(e) if e.add.is_none() => Some((n, e)),
        _ => None,
    };
    let kernels = if cx.read_once(class) { cx.row_kernels(class) } else { vec![] };
    kernels.into_iter().filter_map(body).collect()
}

fn scaled(cx: &mut Context<'_>, class: Id, x: Id, by: Id) {
    let Some(by) = cx.graph[by].data.constant else { return };
    for ((spec, children), body) in lookups(cx, x) {
        // Two factors would round once more than their product.
        if body.scale == F32::new(1.0) {
            let mut d = Draft::open(&spec, &children);
            d.body = Body::Embed(Embed { scale: by, ..body });
            cx.put(class, d);
        }
    }
}

fn added(cx: &mut Context<'_>, class: Id, x: Id, to: Id) {
    let Some(kind) = cx.rows_kind(to) else { return };
    for ((spec, children), body) in lookups(cx, x) {
        let mut d = Draft::open(&spec, &children);
        let add = Some(d.input(to, kind.clone()));
        d.body = Body::Embed(Embed { add, ..body });
        cx.put(class, d);
    }
}
