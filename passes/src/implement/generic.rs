//! A kernel of its own for every operation that is not elementwise (those are `elementwise.rs`,
//! with all operands read from buffers).

use super::way::{Way, way};
use super::{Context, OpNode, quantize};
use crate::egraph::{Graph, Head};
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::{Attr, Balance, F32, RowScale};
use llmcc_ir::kernel::{
    AbsMaxScale, Attention, Body, Embed, Expr, Index, Matmul, ParamId, ParamKind, RopeTable, RowElem, RowNorm, Segment,
    Sinkhorn, Store,
};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::quant::Format;

/// Adds the plain kernel of one operation.
pub fn run(cx: &mut Context<'_>, class: Id, op: &OpNode) {
    let Way::Kernel(drafts) = way(op.head) else { return };
    for draft in drafts(cx, class, op) {
        cx.put(class, draft);
    }
}

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
    cx.states(op.args[2]).into_iter().filter_map(|state| latent_attention(cx, class, op, state)).collect()
}

/// Attention with keys and queries of distances, for each type of the cache.
pub fn relative_attentions(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    cx.states(op.args[1]).into_iter().filter_map(|state| relative_attention(cx, class, op, state)).collect()
}

/// A look-up for each format of the table.
pub fn embeds(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    cx.packed(op.args[0]).into_iter().filter_map(|packed| embed(cx, class, op, packed)).collect()
}

/// The table of sines and cosines.
pub fn rope_table(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    table_of_angles(cx, class, op).into_iter().collect()
}

/// Copies of rows.
pub fn gather(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    gathered(cx, class, op).into_iter().collect()
}

/// Square matrices with sums near one.
pub fn balanced(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    matrices(cx, class, op).into_iter().collect()
}

/// Scales of rows.
pub fn row_scales(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    scales_of_rows(cx, class, op).into_iter().collect()
}

/// Integer attribute.
pub fn int(g: &Graph, id: Id) -> Option<usize> {
    g[id].data.int
}

/// Float attribute.
pub fn float(g: &Graph, id: Id) -> Option<F32> {
    g[id].data.constant
}

/// Attribute that is yes or no.
fn flag(g: &Graph, id: Id) -> Option<bool> {
    match g[id].data.attr {
        Some(Attr::Flag(yes)) => Some(yes),
        Some(Attr::Size(_) | Attr::Real(_) | Attr::Word(_) | Attr::Sizes(_)) | None => None,
    }
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
        Body::Matmul(Matmul { x, prologue: None, segments: vec![segment], tile_m: 0 })
    }))
}

fn attention(cx: &mut Context<'_>, class: Id, op: &OpNode, (spec, kv): (KvSpec, Id)) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let (heads, scale) = (int(cx.graph, op.attrs[0])?, float(cx.graph, op.attrs[1])?);
    let softcap = float(cx.graph, op.attrs[2]).filter(|cap| cap.get() != 0.0);
    let [causal, chunked, biased, sums] = [3, 4, 5, 6].map(|i| flag(cx.graph, op.attrs[i]));
    let (causal, chunked, biased, sums) = (causal?, chunked?, biased?, sums?);
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

fn latent_attention(cx: &mut Context<'_>, class: Id, op: &OpNode, (spec, kv): (KvSpec, Id)) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let (heads, scale) = (int(cx.graph, op.attrs[0])?, float(cx.graph, op.attrs[1])?);
    let [q, own] = [op.args[0], op.args[1]].map(|part| Some((part, cx.rows_kind(part)?)));
    let ((q, q_kind), (own, own_kind)) = (q?, own?);
    let sinks = match op.args.get(4) {
        Some(sinks) => Some((*sinks, cx.vector_of(*sinks)?)),
        None => None,
    };
    Some(Draft::new(rows, |d| {
        let q = d.input(q, q_kind);
        let own = Some(d.input(own, own_kind));
        let kv = d.input(kv, ParamKind::State(spec.into()));
        let sinks = sinks.map(|(v, len)| d.input(v, ParamKind::Vector { len }));
        let out = d.output(cols, RowElem::F32);
        Body::Attention(Attention { own, sinks, ..Attention::usual([q, kv, out], heads, scale) })
    }))
}

fn relative_attention(cx: &mut Context<'_>, class: Id, op: &OpNode, (spec, kv): (KvSpec, Id)) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let (heads, scale) = (int(cx.graph, op.attrs[0])?, float(cx.graph, op.attrs[1])?);
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
        let index = others.iter().find(|(head, _)| *head == op.head).map_or(Index::Tokens, |(_, index)| *index);
        Body::Embed(Embed { index, ..Embed::of_tokens(table, out) })
    }))
}

fn table_of_angles(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let scale = float(cx.graph, op.attrs[0])?;
    let border = int(cx.graph, op.attrs[1]).filter(|border| *border != 0);
    let len = cx.vector_of(op.args[1])?;
    Some(Draft::new(rows, |d| {
        let inv_freq = d.input(op.args[1], ParamKind::Vector { len });
        let out = d.output(cols, RowElem::F32);
        Body::RopeTable(RopeTable { inv_freq, scale, border, out })
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

fn gathered(cx: &Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    rows_of_rows(cx, class, op, |x, out| Body::RowNorm(RowNorm { gather: true, ..RowNorm::plain(x, out) }))
}

fn scales_of_rows(cx: &Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let [width, most, least] = op.attrs[..] else { return None };
    let g = &*cx.graph;
    let scale = RowScale { width: int(g, width)?, most: float(g, most)?, least: float(g, least)? };
    rows_of_rows(cx, class, op, |x, out| Body::AbsMaxScale(AbsMaxScale { x, scale, out }))
}

fn matrices(cx: &Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let [side, rounds, eps] = op.attrs[..] else { return None };
    let g = &*cx.graph;
    let balance = Balance { side: int(g, side)?, rounds: int(g, rounds)?, eps: float(g, eps)? };
    rows_of_rows(cx, class, op, |x, out| Body::Sinkhorn(Sinkhorn { x, balance, out }))
}
