//! Kernels of bounds of windows, and of the windows that queries select by them.

use super::{Context, OpNode};
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::Op;
use llmcc_ir::kernel::{Body, ParamKind, RowElem, SelectWindows, WindowBounds};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::state::FixedSpec;

/// Bounds of the windows at hand.
pub fn bounds(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let Op::WindowBounds { width } = op.op else { return None };
    let (rows, columns) = cx.rows_of(class)?;
    let [x, _positions, state] = op.args[..] else { return None };
    let spec: FixedSpec = cx.graph[state].data.ty.as_ref()?.state()?.fixed().copied()?;
    let (x, start) = cx.columns_of(x);
    let kind = cx.rows_kind(x)?;
    Some(Draft::new(rows, |d| {
        Body::WindowBounds(WindowBounds {
            x: d.input(x, kind),
            start,
            width,
            state: d.input(state, ParamKind::State(spec.into())),
            out: d.output(columns, RowElem::F32),
        })
    }))
}

/// A choice by each form of the bounds.
pub fn selections(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    cx.states(op.args[1]).into_iter().filter_map(|state| selection(cx, class, op, state)).collect()
}

fn selection(cx: &mut Context<'_>, class: Id, op: &OpNode, (spec, kv): (KvSpec, Id)) -> Option<Draft> {
    let Op::SelectWindows { heads, kv_heads, windows } = op.op else { return None };
    let (rows, columns) = cx.rows_of(class)?;
    let (q, kind) = (op.args[0], cx.rows_kind(op.args[0])?);
    Some(Draft::new(rows, |d| {
        Body::SelectWindows(SelectWindows {
            q: d.input(q, kind),
            kv: d.input(kv, ParamKind::State(spec.into())),
            heads,
            kv_heads,
            windows,
            out: d.output(columns, RowElem::F32),
        })
    }))
}
