//! The rows of a cache that an indexer selects, and attention over them.

use super::generic::{Attended, attentions_over};
use super::{Context, OpNode};
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::Op;
use llmcc_ir::kernel::{Attention, Body, ParamId, ParamKind, RowElem, Select};
use llmcc_ir::kv::KvSpec;

/// A choice from each form of the state.
pub fn selections(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    cx.states(op.args[2]).into_iter().filter_map(|state| selection(cx, class, op, state)).collect()
}

/// Attention over selected rows of each form of its state.
pub fn attentions(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    let Op::SelectedAttention { heads, scale, sums, by_head } = op.op else { return vec![] };
    let attended = Attended { q: op.args[0], own: None, selected: Some(op.args[3]), sinks: op.args.get(4).copied() };
    let of = |operands: [ParamId; 3]| Attention { sums, by_head, ..Attention::usual(operands, heads, scale) };
    attentions_over(cx, class, op.args[1], attended, of)
}

/// The same over a latent state with a part stored as keys.
pub fn latent_attentions(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    let Op::SelectedLatentAttention { heads, scale } = op.op else { return vec![] };
    let (own, selected, sinks) = (Some(op.args[1]), Some(op.args[4]), op.args.get(5).copied());
    let attended = Attended { q: op.args[0], own, selected, sinks };
    attentions_over(cx, class, op.args[2], attended, |operands| Attention::usual(operands, heads, scale))
}

fn selection(cx: &mut Context<'_>, class: Id, op: &OpNode, (spec, kv): (KvSpec, Id)) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let Op::Select { heads, top } = op.op else { return None };
    let [(q, q_kind), (w, w_kind)] = [(op.args[0], cx.rows_kind(op.args[0])?), (op.args[1], cx.rows_kind(op.args[1])?)];
    Some(Draft::new(rows, |d| {
        Body::Select(Select {
            q: d.input(q, q_kind),
            weights: d.input(w, w_kind),
            kv: d.input(kv, ParamKind::State(spec.into())),
            heads,
            top,
            out: d.output(cols, RowElem::F32),
        })
    }))
}
