//! A kernel of its own for every operation that is not elementwise (those are `elementwise.rs`,
//! with all operands read from buffers).

use super::{Context, OpNode, quantize};
use crate::egraph::Head;
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::{Balance, Op, RowScale};
use llmcc_ir::kernel::{
    AbsMaxScale, Attention, Body, Embed, Expr, Index, Matmul, ParamId, ParamKind, RopeTable, RowElem, RowNorm, Segment,
    Sinkhorn, Store,
};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::quant::Format;

/// A product for each format of the matrix.
pub fn matmuls(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    cx.packed(op.args[1]).into_iter().filter_map(|packed| matmul(cx, class, op, packed)).collect()
}

/// Attention for each type of the cache.
pub fn attentions(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    cx.states(op.args[1]).into_iter().filter_map(|state| attention(cx, class, op, state)).collect()
}

/// Attention over each form of its latent state.
pub fn latent_attentions(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    let Op::LatentAttention { heads, scale } = op.op else { return vec![] };
    let attended = Attended { q: op.args[0], own: Some(op.args[1]), selected: None, sinks: op.args.get(4).copied() };
    attentions_over(cx, class, op.args[2], attended, |operands| Attention::usual(operands, heads, scale))
}

/// Attention with keys and queries of distances, for each type of the cache.
pub fn relative_attentions(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    cx.states(op.args[1]).into_iter().filter_map(|state| relative_attention(cx, class, op, state)).collect()
}

/// A look-up for each format of the table.
pub fn embeds(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    cx.packed(op.args[0]).into_iter().filter_map(|packed| embed(cx, class, op, packed)).collect()
}

fn matmul(cx: &mut Context<'_>, class: Id, op: &OpNode, (format, packed): (Format, Id)) -> Option<Draft> {
    let (x, w) = (op.args[0], op.args[1]);
    let (rows, cols) = cx.rows_of(x)?;
    let (n, k) = cx.matrix_of(w)?;
    let elem = quantize::read_as(cx, x, format);
    let x = quantize::stored(cx, x, elem);
    debug_assert!(cx.rows_of(class).is_none_or(|(r, c)| r == rows && c == n));
    Some(Draft::new(rows, |d| {
        let x = d.input(x, ParamKind::Rows { rows, cols, elem });
        let w = d.input(packed, ParamKind::Matrix { n, k, format });
        let store = Store::Rows { param: d.output(n, RowElem::F32), start: 0 };
        let segment = Segment { n, weights: vec![w], tile_n: 0, expr: Expr::Acc(0), store };
        Body::Matmul(Matmul { x, prologue: None, segments: vec![segment], tile_m: 0, k_parts: 1 })
    }))
}

fn attention(cx: &mut Context<'_>, class: Id, op: &OpNode, (spec, kv): (KvSpec, Id)) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let Op::Attention { heads, scale, softcap, causal, chunked, biased, sums } = op.op else { return None };
    let softcap = Some(softcap).filter(|cap| cap.get() != 0.0);
    let q = op.args[0];
    let mut more = op.args.get(3..)?.iter().map(|id| Some((*id, cx.vector_of(*id)?))).collect::<Option<Vec<_>>>()?;
    let bias = if biased { more.pop() } else { None };
    let sinks = more.pop();
    let q_kind = cx.rows_kind(q)?;
    Some(Draft::new(rows, |d| {
        let q = d.input(q, q_kind);
        let kv = d.input(kv, ParamKind::State(spec.into()));
        let [sinks, bias] = [sinks, bias].map(|v| v.map(|(v, len)| d.input(v, ParamKind::Vector { len })));
        let out = d.output(cols, RowElem::F32);
        let usual = Attention::usual([q, kv, out], heads, scale);
        Body::Attention(Attention { softcap, sinks, bias, causal, chunked, sums, ..usual })
    }))
}

/// Operands of attention beside its state.
#[derive(Clone, Copy)]
pub(super) struct Attended {
    /// Queries.
    pub q: Id,
    /// Those for the part of a latent state that is stored as keys.
    pub own: Option<Id>,
    /// Rows that are selected.
    pub selected: Option<Id>,
    /// Sinks.
    pub sinks: Option<Id>,
}

/// Attention over each form of a state, which `of` makes of the queries, the state and the result.
pub(super) fn attentions_over(
    cx: &Context<'_>,
    class: Id,
    state: Id,
    attended: Attended,
    of: impl Fn([ParamId; 3]) -> Attention,
) -> Vec<Draft> {
    cx.states(state).into_iter().filter_map(|state| attention_over(cx, class, state, attended, &of)).collect()
}

fn attention_over(
    cx: &Context<'_>,
    class: Id,
    (spec, kv): (KvSpec, Id),
    Attended { q, own, selected, sinks }: Attended,
    of: impl Fn([ParamId; 3]) -> Attention,
) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let rows_kind = |part: Option<Id>| match part {
        Some(id) => Some(Some((id, cx.rows_kind(id)?))),
        None => Some(None),
    };
    let (q_kind, own, selected) = (cx.rows_kind(q)?, rows_kind(own)?, rows_kind(selected)?);
    let sinks = match sinks {
        Some(sinks) => Some((sinks, cx.vector_of(sinks)?)),
        None => None,
    };
    Some(Draft::new(rows, |d| {
        let q = d.input(q, q_kind);
        let own = own.map(|(own, kind)| d.input(own, kind));
        let kv = d.input(kv, ParamKind::State(spec.into()));
        let sinks = sinks.map(|(v, len)| d.input(v, ParamKind::Vector { len }));
        let selected = selected.map(|(selected, kind)| d.input(selected, kind));
        let out = d.output(cols, RowElem::F32);
        Body::Attention(Attention { own, sinks, selected, ..of([q, kv, out]) })
    }))
}

fn relative_attention(cx: &mut Context<'_>, class: Id, op: &OpNode, (spec, kv): (KvSpec, Id)) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let Op::RelativeAttention { heads, scale } = op.op else { return None };
    let (q, q_kind) = (op.args[0], cx.rows_kind(op.args[0])?);
    let [keys, queries] = [op.args[3], op.args[4]].map(|v| Some((v, cx.vector_of(v)?)));
    let tables = [keys?, queries?];
    Some(Draft::new(rows, |d| {
        let q = d.input(q, q_kind);
        let kv = d.input(kv, ParamKind::State(spec.into()));
        let relative = Some(tables.map(|(v, len)| d.input(v, ParamKind::Vector { len })));
        let out = d.output(cols, RowElem::F32);
        Body::Attention(Attention { relative, causal: false, ..Attention::usual([q, kv, out], heads, scale) })
    }))
}

fn embed(cx: &mut Context<'_>, class: Id, op: &OpNode, (format, packed): (Format, Id)) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let (n, k) = cx.matrix_of(op.args[0])?;
    Some(Draft::new(rows, |d| {
        let table = d.input(packed, ParamKind::Matrix { n, k, format });
        let out = d.output(cols, RowElem::F32);
        let others = [(Head::EmbedPositions, Index::Positions), (Head::EmbedTypes, Index::Types)];
        let index = others.iter().find(|(head, _)| *head == op.op.head()).map_or(Index::Tokens, |(_, index)| *index);
        let (every, shift) = if let Op::EmbedPositions { every, shift } = op.op {
            (every, Some(shift).filter(|shift| *shift > 0))
        } else {
            (1, None)
        };
        Body::Embed(Embed { index, every, shift, ..Embed::of_tokens(table, out) })
    }))
}

/// The table of sines and cosines, by places in sequences or by positions along axes.
pub fn rope_table(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let given = |n: usize| Some(n).filter(|n| *n != 0);
    let (scale, border, most, axes) = if let Op::RopeTable { scale, border, most } = op.op {
        (scale, given(border), given(most), false)
    } else if let Op::RopeAxes { scale } = op.op {
        (scale, None, None, true)
    } else {
        return None;
    };
    let len = cx.vector_of(op.args[1])?;
    Some(Draft::new(rows, |d| {
        let inv_freq = d.input(op.args[1], ParamKind::Vector { len });
        let out = d.output(cols, RowElem::F32);
        Body::RopeTable(RopeTable { inv_freq, scale, border, most, axes, out })
    }))
}

/// A kernel that makes rows of the rows that an operation reads first.
fn rows_of_rows(
    cx: &Context<'_>,
    class: Id,
    op: &OpNode,
    body: impl FnOnce(ParamId, ParamId) -> Body,
) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let kind = cx.rows_kind(op.args[0])?;
    Some(Draft::new(rows, |d| {
        let x = d.input(op.args[0], kind);
        let out = d.output(cols, RowElem::F32);
        body(x, out)
    }))
}

/// A copy of rows.
pub fn gather(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    rows_of_rows(cx, class, op, |x, out| Body::RowNorm(RowNorm { gather: true, ..RowNorm::plain(x, out) }))
}

/// Scales of rows.
pub fn absmax_scale(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let Op::AbsMaxScale { width, most, least } = op.op else { return None };
    let scale = RowScale { width, most, least };
    rows_of_rows(cx, class, op, |x, out| Body::AbsMaxScale(AbsMaxScale { x, scale, out }))
}

/// Square matrices with sums near one.
pub fn sinkhorn(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let Op::Sinkhorn { side, rounds, eps } = op.op else { return None };
    let balance = Balance { side, rounds, eps };
    rows_of_rows(cx, class, op, |x, out| Body::Sinkhorn(Sinkhorn { x, balance, out }))
}
