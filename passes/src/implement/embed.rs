//! Operations that a look-up absorbs: a scale of the rows, and rows that they are added to (another
//! embedding). Look-ups by hashes absorb nothing.

use super::{Context, KernelNode, OpNode};
use crate::egraph::Head;
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::{BinaryOp, F32, Op};
use llmcc_ir::kernel::{Body, Embed, EmbedHashed, GivenRows, ParamKind, RowElem, Substitute, TokenIds};
use llmcc_ir::quant::Format;

/// Adds the look-ups of one operation.
pub fn run(cx: &mut Context<'_>, class: Id, op: &OpNode) {
    match op.op.head() {
        Head::Binary(BinaryOp::Mul) => scaled(cx, class, op.args[0], op.args[1]),
        Head::Binary(BinaryOp::Add) => {
            added(cx, class, op.args[0], op.args[1]);
            added(cx, class, op.args[1], op.args[0]);
        }
        _ => {}
    }
}

/// Ids of tokens as numbers.
pub fn token_ids(cx: &mut Context<'_>, class: Id, _: &OpNode) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    Some(Draft::new(rows, |d| Body::TokenIds(TokenIds { out: d.output(cols, RowElem::F32) })))
}

/// Rows that come with the tokens.
pub fn given_rows(cx: &mut Context<'_>, class: Id, _: &OpNode) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    Some(Draft::new(rows, |d| Body::GivenRows(GivenRows { out: d.output(cols, RowElem::F32) })))
}

/// Rows given in place of rows of some tokens.
pub fn substitute(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let kind = cx.rows_kind(op.args[0])?;
    let Op::Substitute { token } = op.op else { return None };
    Some(Draft::new(rows, |d| {
        let x = d.input(op.args[0], kind);
        Body::Substitute(Substitute { x, token, out: d.output(cols, RowElem::F32) })
    }))
}

/// Look-ups by hashes of several ids.
pub fn hashed(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    cx.packed(op.args[0]).into_iter().filter_map(|packed| by_hashes(cx, class, op, packed)).collect()
}

fn by_hashes(cx: &Context<'_>, class: Id, op: &OpNode, (format, packed): (Format, Id)) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let (n, k) = cx.matrix_of(op.args[0])?;
    let kind = cx.rows_kind(op.args[1])?;
    let Op::EmbedHashed { factors, sizes } = op.op.clone() else { return None };
    Some(Draft::new(rows, |d| {
        let table = d.input(packed, ParamKind::Matrix { n, k, format });
        let ids = d.input(op.args[1], kind);
        let out = d.output(cols, RowElem::F32);
        Body::EmbedHashed(EmbedHashed { table, ids, factors, sizes, out })
    }))
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
