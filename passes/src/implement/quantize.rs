//! int8, 16-bit and fp8 rows, and rows of integers of 8 bits: the producer of a value writes it
//! quantized, or a row-wise kernel does.

use super::Context;
use crate::egraph::Term;
use crate::spec::{Draft, Output};
use egg::Id;
use llmcc_ir::kernel::{Body, RowElem, RowNorm};
use llmcc_ir::quant::Format;
use llmcc_ir::target::integer_rows;

/// f16, bf16 and fp8 as attribute of `quant`; other numbers are groups of int8 rows, which are at
/// least 16, and of rows of integers, as many more.
const F16: usize = 1;
const BF16: usize = 2;
const FP8: usize = 3;
const INTEGERS: usize = 1 << 16;

/// The attribute of `quant` for rows stored as `elem`; `None` for f32.
pub fn attribute(elem: RowElem) -> Option<usize> {
    match elem {
        RowElem::F32 => None,
        RowElem::Q8 { group } => Some(group),
        RowElem::I8 { group } => Some(INTEGERS + group),
        RowElem::F16 => Some(F16),
        RowElem::Bf16 => Some(BF16),
        RowElem::Fp8 => Some(FP8),
    }
}

/// The rows that have this attribute.
fn storage(number: usize) -> RowElem {
    let named = RowElem::NAMED.iter().map(|(elem, _)| *elem).find(|elem| attribute(*elem) == Some(number));
    named.unwrap_or(match number.checked_sub(INTEGERS) {
        Some(group) => RowElem::I8 { group },
        None => RowElem::Q8 { group: number },
    })
}

/// The storage of `x` in which products with weights of `format` read it. Integers of 8 bits are
/// multiplied as such, whatever other values are rounded to: nothing is lost.
pub fn read_as(cx: &Context<'_>, x: Id, format: Format) -> RowElem {
    let integers = integer_rows(format).filter(|_| cx.multiplies_int8 && cx.are_integers(x, INTEGERS_WITHIN));
    integers.unwrap_or_else(|| cx.act.rows(format))
}

/// The class of `x`, stored as `elem`.
pub fn stored(cx: &mut Context<'_>, x: Id, elem: RowElem) -> Id {
    let Some(storage) = attribute(elem) else { return x };
    let storage = cx.graph.add(Term::Int(storage));
    cx.graph.add(Term::Quant([storage, x]))
}

/// How many cuts of rows of integers are seen through.
const INTEGERS_WITHIN: usize = 4;

/// Adds the kernels that compute `quant{storage}(x)`.
pub fn run(cx: &mut Context<'_>, class: Id, [elem, x]: [Id; 2]) {
    let Some(elem) = cx.graph[elem].data.int.map(storage) else { return };
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
