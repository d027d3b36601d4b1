//! int8, 16-bit and fp8 rows: the producer of a value writes it quantized, or a row-wise kernel
//! does.

use super::Context;
use super::generic::int;
use crate::spec::{Draft, Output};
use egg::Id;
use llmcc_ir::kernel::{Body, RowElem, RowNorm};

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

/// The rows that have this attribute.
fn storage(number: usize) -> RowElem {
    let named = RowElem::NAMED.iter().map(|(elem, _)| *elem).find(|elem| attribute(*elem) == Some(number));
    named.unwrap_or(RowElem::Q8 { group: number })
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
        let again = node.0.kernel.body.product().is_some() && !cx.read_once(x);
        if !again
            && node.0.kernel.has_whole_groups(elem)
            && let [Output::Rows(out)] = node.0.outputs()[..]
        {
            let mut d = Draft::open(&node.0, &node.1);
            d.set_elem(out, elem);
            cx.put(class, d);
        }
    }
}
