//! Experts: their choice, their products, and the sum of their results.

use super::{Context, OpNode, quantize};
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::{Op, Router};
use llmcc_ir::kernel::{Body, ExpertMatmul, Expr, ParamKind, Route, RowElem, Segment, Store};
use llmcc_ir::quant::{BLOCK, Format};

/// Products for each format of the matrices.
pub fn matmuls(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    let Some((all, _)) = cx.matrix_of(op.args[1]) else { return vec![] };
    let Op::ExpertMatMul { experts, top, cols } = op.op else { return vec![] };
    // An expert begins with a block: its rows are padded to whole blocks, and no further.
    let n = if cols > 0 { cols } else { all / experts };
    if all / experts != n.next_multiple_of(BLOCK) {
        return vec![];
    }
    let of = Product { experts, top, n, routes: op.args.get(2).copied() };
    cx.packed(op.args[1]).into_iter().filter_map(|packed| matmul(cx, class, op, &of, packed)).collect()
}

/// Products by heads, for each format of the matrices.
pub fn by_heads(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Vec<Draft> {
    let Some((all, _)) = cx.matrix_of(op.args[1]) else { return vec![] };
    let Op::HeadMatMul { heads, cols: n } = op.op else { return vec![] };
    // Heads are padded to whole blocks, and no further.
    if all / heads != n.next_multiple_of(BLOCK) {
        return vec![];
    }
    let of = Product { experts: heads, top: heads, n, routes: None };
    cx.packed(op.args[1]).into_iter().filter_map(|packed| matmul(cx, class, op, &of, packed)).collect()
}

/// Sizes of a product, and the indices of its experts.
struct Product {
    experts: usize,
    top: usize,
    n: usize,
    routes: Option<Id>,
}

/// The choice of experts.
pub fn route(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let Op::Route { score, top, normalize, eps, scale, groups, kept, pairs } = op.op else { return None };
    let router = Router { score, top, normalize, eps, scale, groups, kept, pairs };
    let (kind, len) = (cx.rows_kind(op.args[0])?, cx.vector_of(op.args[1])?);
    Some(Draft::new(rows, |d| {
        let x = d.input(op.args[0], kind);
        let bias = d.input(op.args[1], ParamKind::Vector { len });
        let out = d.output(cols, RowElem::F32);
        Body::Route(Route { x, bias, router, out })
    }))
}

fn matmul(cx: &mut Context<'_>, class: Id, op: &OpNode, of: &Product, (format, packed): (Format, Id)) -> Option<Draft> {
    let (x, w) = (op.args[0], op.args[1]);
    let Product { experts, top, n, routes } = *of;
    let (rows, cols) = cx.rows_of(x)?;
    let (all, k) = cx.matrix_of(w)?;
    let (_, out_cols) = cx.rows_of(class)?;
    let routes = match routes {
        Some(routes) => Some((routes, cx.rows_kind(routes)?)),
        None => None,
    };
    // In rows with several slots each slot is quantized by itself.
    let own = cols != k || routes.is_none();
    let elem = match quantize::read_as(cx, x, format) {
        elem if own && !k.is_multiple_of(elem.run()) => RowElem::F32,
        elem => elem,
    };
    let x = quantize::stored(cx, x, elem);
    Some(Draft::new(rows, |d| {
        let x = d.input(x, ParamKind::Rows { rows, cols, elem });
        let routes = routes.map(|(routes, kind)| d.input(routes, kind));
        let w = d.input(packed, ParamKind::Matrix { n: all, k, format });
        let store = Store::Rows { param: d.output(out_cols, RowElem::F32), start: 0 };
        let segment = Segment { n, weights: vec![w], tile_n: 0, expr: Expr::Acc(0), store };
        Body::ExpertMatmul(ExpertMatmul { x, routes, experts, top, segment, tile_m: 0 })
    }))
}

/// Each slot's part of a vector.
pub fn vector(cx: &Context<'_>, d: &mut Draft, op: &OpNode) -> Option<Expr> {
    let Op::ExpertVector { top, .. } = op.op else { return None };
    let len = cx.vector_of(op.args[0])?;
    let vector = d.input(op.args[0], ParamKind::Vector { len });
    let routes = d.input(op.args[1], cx.rows_kind(op.args[1])?);
    Some(Expr::Expert { vector, routes, top })
}

/// The weighted sum of runs; weights that are columns of other rows are read where they are.
pub fn combine(cx: &Context<'_>, d: &mut Draft, op: &OpNode) -> Option<Expr> {
    let (_, count) = cx.rows_of(op.args[0])?;
    let (source, from) = cx.slices(op.args[0]).min().unwrap_or((op.args[0], 0));
    let weights = d.input(source, cx.rows_kind(source)?);
    let y = d.input(op.args[1], cx.rows_kind(op.args[1])?);
    Some(Expr::Combine { weights, from, y, count })
}
