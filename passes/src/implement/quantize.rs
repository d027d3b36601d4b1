//! int8, 16-bit and fp8 rows: the producer of a value writes it quantized, or a row-wise kernel
//! does.

use super::generic::int;
use super::{Context, KernelNode};
use crate::spec::{Draft, Output};
use egg::Id;
use llmcc_ir::kernel::{Body, ParamKind, RowElem, RowNorm};

/// f16, bf16 and fp8 as attribute of `quant`; other numbers are groups of int8 rows, which are at
/// least 32.
const F16: usize = 1;
const BF16: usize = 2;
const FP8: usize = 3;

/// The attribute of `quant` for rows stored as `elem`; `None` for f32.
pub fn attribute(elem: RowElem) -> Option<usize> {
    match elem {
        RowElem::F32 => None,
        RowElem::Q8 { group } => Some(group),
        RowElem::F16 => Some(F16),
        RowElem::Bf16 => Some(BF16),
        RowElem::Fp8 => Some(FP8),
    }
}

fn storage(attribute: usize) -> RowElem {
    match attribute {
        F16 => RowElem::F16,
        BF16 => RowElem::Bf16,
        FP8 => RowElem::Fp8,
        group => RowElem::Q8 { group },
    }
}

/// Adds the kernels that compute `quant{storage}(x)`.
pub fn run(cx: &mut Context<'_>, class: Id, [elem, x]: [Id; 2]) {
    let Some(elem) = int(cx.graph, elem).map(storage) else { return };
    let (Some((rows, cols)), Some(kind)) = (cx.rows_of(x), cx.rows_kind(x)) else { return };
    cx.put(
        class,
        Draft::new(rows, |d| {
            let x = d.input(x, kind);
            let out = d.output(cols, elem);
            Body::RowNorm(RowNorm::plain(x, out))
        }),
    );
    for node in cx.row_kernels(x) {
        let again = matches!(node.0.kernel.body, Body::Matmul(_) | Body::ExpertMatmul(_)) && !cx.read_once(x);
        if !again
            && writes_whole_groups(&node, elem)
            && let [Output::Rows(out)] = node.0.outputs()[..]
        {
            let mut d = Draft::open(&node.0, &node.1);
            d.set_elem(out, elem);
            cx.put(class, d);
        }
    }
}

/// Whether each work item of the kernel can hold whole groups of columns.
fn writes_whole_groups((spec, _): &KernelNode, elem: RowElem) -> bool {
    match &spec.kernel.body {
        // The scale of a row is known to those who have the row.
        Body::RowNorm(n) if elem.by_row() => match spec.kind(n.x) {
            ParamKind::Rows { cols, .. } => n.norm.is_none_or(|norm| norm.width == *cols),
            _ => false,
        },
        _ if elem.by_row() => false,
        Body::Matmul(m) => m.segments.len() == 1,
        Body::ExpertMatmul(m) => m.segment.n.is_multiple_of(elem.group().unwrap_or(1)),
        Body::Pointwise(p) => p.segments.len() == 1,
        Body::RowNorm(_) => true,
        Body::Attention(a) => match spec.kind(a.kv) {
            ParamKind::Kv(kv) => (a.heads / kv.kv_heads * kv.value_dim).is_multiple_of(elem.group().unwrap_or(1)),
            _ => false,
        },
        Body::Embed(_)
        | Body::RopeTable(_)
        | Body::Route(_)
        | Body::TopK(_)
        | Body::CausalConv(_)
        | Body::Recurrence(_) => false,
    }
}
