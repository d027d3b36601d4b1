//! int8 rows: the producer of a value writes it quantized, or a row-wise kernel does.

use super::generic::int;
use super::{Context, KernelNode, OpNode};
use crate::egraph::Head;
use crate::spec::{Draft, Output};
use egg::Id;
use llmcc_ir::kernel::{Body, ParamKind, RowElem, RowNorm};

/// Adds the kernels that compute `quant{group}(x)`.
pub fn run(cx: &mut Context<'_>, class: Id, op: &OpNode) {
    if op.head != Head::Quant {
        return;
    }
    let Some(group) = int(cx.graph, op.attrs[0]) else { return };
    let x = op.args[0];
    let (Some((rows, cols)), Some(kind)) = (cx.rows_of(x), cx.rows_kind(x)) else { return };
    cx.put(
        class,
        Draft::new(rows, |d| {
            let x = d.input(x, kind);
            let out = d.output(cols, RowElem::Q8 { group });
            Body::RowNorm(RowNorm { x, gather: false, norm: None, gain: None, out })
        }),
    );
    for node in cx.row_kernels(x) {
        let again = matches!(node.0.kernel.body, Body::Matmul(_)) && !cx.read_once(x);
        if !again
            && writes_whole_groups(&node, group)
            && let [Output::Rows(out)] = node.0.outputs()[..]
        {
            let mut d = Draft::open(&node.0, &node.1);
            d.set_elem(out, RowElem::Q8 { group });
            cx.put(class, d);
        }
    }
}

/// Whether each work item of the kernel can hold whole groups of columns.
fn writes_whole_groups((spec, _): &KernelNode, group: usize) -> bool {
    match &spec.kernel.body {
        Body::Matmul(m) => m.segments.len() == 1,
        Body::Pointwise(p) => p.segments.len() == 1,
        Body::RowNorm(_) => true,
        Body::Attention(a) => match spec.kind(a.kv) {
            ParamKind::Kv(kv) => (a.heads / kv.kv_heads * kv.head_dim).is_multiple_of(group),
            _ => false,
        },
        Body::Embed(_) | Body::RopeTable(_) => false,
    }
}
