//! The rows of a cache that an indexer selects, and attention over them.

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
    let Op::SelectedAttention { heads, scale, sums } = op.op else { return vec![] };
    let of = |[q, kv, out]: [ParamId; 3]| Attention { sums, ..Attention::usual([q, kv, out], heads, scale) };
    let states = cx.states(op.args[1]);
    states.into_iter().filter_map(|state| attention(cx, class, (op.args[0], None, &op.args[3..]), state, of)).collect()
}

/// The same over a latent state with a part stored as keys.
pub fn latent_attentions(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    let Op::SelectedLatentAttention { heads, scale } = op.op else { return vec![] };
    let of = |operands: [ParamId; 3]| Attention::usual(operands, heads, scale);
    let (states, own) = (cx.states(op.args[2]), Some(op.args[1]));
    states.into_iter().filter_map(|state| attention(cx, class, (op.args[0], own, &op.args[4..]), state, of)).collect()
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

/// Attention of queries, in one part or two, over a selection; `more` has it, and sinks after it.
fn attention(
    cx: &mut Context<'_>,
    class: Id,
    (q, own, more): (Id, Option<Id>, &[Id]),
    (spec, kv): (KvSpec, Id),
    of: impl FnOnce([ParamId; 3]) -> Attention,
) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let (selection, sinks) = more.split_first()?;
    let (q_kind, selection_kind) = (cx.rows_kind(q)?, cx.rows_kind(*selection)?);
    let own = match own {
        Some(own) => Some((own, cx.rows_kind(own)?)),
        None => None,
    };
    let sinks = match sinks.first() {
        Some(sinks) => Some((*sinks, cx.vector_of(*sinks)?)),
        None => None,
    };
    Some(Draft::new(rows, |d| {
        let q = d.input(q, q_kind);
        let own = own.map(|(own, kind)| d.input(own, kind));
        let kv = d.input(kv, ParamKind::State(spec.into()));
        let sinks = sinks.map(|(v, len)| d.input(v, ParamKind::Vector { len }));
        let selected = Some(d.input(*selection, selection_kind));
        let out = d.output(cols, RowElem::F32);
        Body::Attention(Attention { own, sinks, selected, ..of([q, kv, out]) })
    }))
}
