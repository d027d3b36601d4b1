//! Slices and concatenations move from activations, where they copy, to weights, where they are
//! free.

use super::Sample::{Int, Matrix, Rows, Vector};
use super::{Builder, Right, Rule, always};
use crate::egraph::Head;
use egg::Id;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "slice-of-matmul",
        left: "(slice_cols ?s ?l (matmul ?x ?w))",
        right: Right::Text("(matmul ?x (slice_rows ?s ?l ?w))"),
        guard: |m| m.own("?w"),
        sample: &[("?s", Int("S")), ("?l", Int("L")), ("?x", Rows("K")), ("?w", Matrix("N", "K"))],
    },
    // The slice of an epilogue with a bias: the slice moves below it.
    Rule {
        name: "slice-of-bias",
        left: "(slice_cols ?s ?l (add ?x ?b))",
        right: Right::Text("(add (slice_cols ?s ?l ?x) (slice_rows ?s ?l ?b))"),
        guard: |m| m.runtime("?x") && m.vector_over("?b", "?x"),
        sample: &[("?s", Int("S")), ("?l", Int("L")), ("?x", Rows("N")), ("?b", Vector("N"))],
    },
    Rule {
        name: "concat-of-matmuls",
        left: "(concat_cols (matmul ?x ?a) (matmul ?x ?b))",
        right: Right::Text("(matmul ?x (concat_rows ?a ?b))"),
        guard: |m| m.own("?a") && m.own("?b") && m.alike("?a", "?b"),
        sample: &[("?x", Rows("K")), ("?a", Matrix("N", "K")), ("?b", Matrix("P", "K"))],
    },
    Rule {
        name: "slice-of-slice",
        left: "(slice_cols ?s ?l (slice_cols ?s2 ?l2 ?x))",
        right: Right::Build(|b| slice_of_slice(b, Head::SliceCols)),
        guard: always,
        sample: &[("?s", Int("S2")), ("?l", Int("L2")), ("?s2", Int("S")), ("?l2", Int("L")), ("?x", Rows("N"))],
    },
    Rule {
        name: "row-slice-of-slice",
        left: "(slice_rows ?s ?l (slice_rows ?s2 ?l2 ?x))",
        right: Right::Build(|b| slice_of_slice(b, Head::SliceRows)),
        guard: always,
        sample: &[("?s", Int("S2")), ("?l", Int("L2")), ("?s2", Int("S")), ("?l2", Int("L")), ("?x", Matrix("N", "K"))],
    },
    Rule {
        name: "slice-of-all",
        left: "(slice_cols 0 ?l ?x)",
        right: Right::Build(|b| if b.cols("?x") == b.int("?l") { b.class("?x") } else { None }),
        guard: always,
        sample: &[("?l", Int("K")), ("?x", Rows("K"))],
    },
    Rule {
        name: "row-slice-of-all",
        left: "(slice_rows 0 ?l ?x)",
        right: Right::Build(|b| if b.weight_rows("?x") == b.int("?l") { b.class("?x") } else { None }),
        guard: always,
        sample: &[("?l", Int("N")), ("?x", Matrix("N", "K"))],
    },
    Rule {
        name: "slice-of-concat",
        left: "(slice_cols ?s ?l (concat_cols ?a ?b))",
        right: Right::Build(|b| {
            let left = b.cols("?a")?;
            slice_of_concat(b, Head::SliceCols, left)
        }),
        guard: always,
        sample: &[("?s", Int("S")), ("?l", Int("L")), ("?a", Rows("N")), ("?b", Rows("P"))],
    },
    Rule {
        name: "row-slice-of-concat",
        left: "(slice_rows ?s ?l (concat_rows ?a ?b))",
        right: Right::Build(|b| {
            let left = b.weight_rows("?a")?;
            slice_of_concat(b, Head::SliceRows, left)
        }),
        guard: always,
        sample: &[("?s", Int("S")), ("?l", Int("L")), ("?a", Matrix("N", "K")), ("?b", Matrix("P", "K"))],
    },
];

fn slice_of_slice(b: &mut Builder<'_>, head: Head) -> Option<Id> {
    let start = b.int("?s")?.checked_add(b.int("?s2")?)?;
    let (start, len, x) = (b.integer(start), b.class("?l")?, b.class("?x")?);
    Some(b.op(head, &[start, len, x]))
}

/// Where the range lies in one part, a slice of that part.
fn slice_of_concat(b: &mut Builder<'_>, head: Head, left: usize) -> Option<Id> {
    let (start, len) = (b.int("?s")?, b.int("?l")?);
    let (part, start) = if start + len <= left {
        (b.class("?a")?, start)
    } else if start >= left {
        (b.class("?b")?, start - left)
    } else {
        return None;
    };
    let (start, len) = (b.integer(start), b.integer(len));
    Some(b.op(head, &[start, len, part]))
}
