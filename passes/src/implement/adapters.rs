//! Products with the matrices of adapters.

use super::{Context, OpNode};
use crate::spec::Draft;
use egg::Id;
use llmcc_ir::graph::Op;
use llmcc_ir::kernel::{AdapterMatmul, Body, ParamKind, RowElem};

/// The product, of rows wherever they are.
pub fn matmul(cx: &mut Context<'_>, class: Id, op: &OpNode) -> Option<Draft> {
    let (rows, cols) = cx.rows_of(class)?;
    let [x, adapter] = op.args[..] else { return None };
    let Op::AdapterMatMul { parts } = op.op.clone() else { return None };
    let spec = *cx.graph[adapter].data.ty.as_ref()?.state()?.adapter()?;
    let (x, start) = cx.columns_of(x);
    let kind = cx.rows_kind(x)?;
    Some(Draft::new(rows, |d| {
        let x = d.input(x, kind);
        let adapter = d.input(adapter, ParamKind::State(spec.into()));
        let out = d.output(cols, RowElem::F32);
        Body::AdapterMatmul(AdapterMatmul { x, start, parts, adapter, out })
    }))
}
