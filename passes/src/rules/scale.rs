//! Scales move between activations and weights: a norm's gain or a constant costs nothing once it
//! is part of a matrix.

use super::Sample::{Const, Matrix, Rows, Vector};
use super::{Right, Rule};

pub(super) const RULES: &[Rule] = &[
    // x·diag(g)·wᵀ = x·(w·diag(g))ᵀ: folds the gain of RMSNorm into the next matrix (QuaRot, arXiv
    // 2404.00456, section 3).
    Rule {
        name: "gain-into-matrix",
        left: "(matmul (mul ?x ?g) ?w)",
        right: Right::Text("(matmul ?x (scale_cols ?w ?g))"),
        guard: |m| m.vector_over("?g", "?x") && m.may_change("?w"),
        sample: &[("?x", Rows("K")), ("?g", Vector("K")), ("?w", Matrix("N", "K"))],
    },
    Rule {
        name: "output-scale-into-matrix",
        left: "(mul (matmul ?x ?w) ?g)",
        right: Right::Text("(matmul ?x (scale_rows ?w ?g))"),
        guard: |m| m.vector_of_rows("?g", "?w") && m.may_change("?w"),
        sample: &[("?x", Rows("K")), ("?g", Vector("N")), ("?w", Matrix("N", "K"))],
    },
    Rule {
        name: "constant-into-matrix",
        left: "(mul (matmul ?x ?w) ?c)",
        right: Right::Text("(matmul ?x (mul ?w ?c))"),
        guard: |m| m.constant("?c") && m.may_change("?w"),
        sample: &[("?x", Rows("K")), ("?c", Const), ("?w", Matrix("N", "K"))],
    },
    Rule {
        name: "constant-through-matmul",
        left: "(matmul (mul ?x ?c) ?w)",
        right: Right::Text("(mul (matmul ?x ?w) ?c)"),
        guard: |m| m.constant("?c"),
        sample: &[("?x", Rows("K")), ("?c", Const), ("?w", Matrix("N", "K"))],
    },
    Rule {
        name: "constant-into-gain",
        left: "(mul (mul ?x ?g) ?c)",
        right: Right::Text("(mul ?x (mul ?g ?c))"),
        guard: |m| m.runtime("?x") && m.vector("?g") && m.constant("?c"),
        sample: &[("?x", Rows("K")), ("?g", Vector("W")), ("?c", Const)],
    },
    Rule {
        name: "gains-merge",
        left: "(mul (mul ?x ?g) ?h)",
        right: Right::Text("(mul ?x (mul ?g ?h))"),
        guard: |m| m.runtime("?x") && m.vector("?g") && m.same_type("?g", "?h"),
        sample: &[("?x", Rows("K")), ("?g", Vector("K")), ("?h", Vector("K"))],
    },
    Rule {
        name: "biases-merge",
        left: "(add (add ?x ?a) ?b)",
        right: Right::Text("(add ?x (add ?a ?b))"),
        guard: |m| m.runtime("?x") && m.vector("?a") && m.same_type("?a", "?b"),
        sample: &[("?x", Rows("K")), ("?a", Vector("K")), ("?b", Vector("K"))],
    },
    Rule {
        name: "column-scales-merge",
        left: "(scale_cols (scale_cols ?w ?g) ?h)",
        right: Right::Text("(scale_cols ?w (mul ?g ?h))"),
        guard: |m| m.same_type("?g", "?h"),
        sample: &[("?w", Matrix("N", "K")), ("?g", Vector("K")), ("?h", Vector("K"))],
    },
    Rule {
        name: "row-scales-merge",
        left: "(scale_rows (scale_rows ?w ?g) ?h)",
        right: Right::Text("(scale_rows ?w (mul ?g ?h))"),
        guard: |m| m.same_type("?g", "?h"),
        sample: &[("?w", Matrix("N", "K")), ("?g", Vector("N")), ("?h", Vector("N"))],
    },
    Rule {
        name: "column-scale-into-parts",
        left: "(scale_cols (concat_rows ?a ?b) ?g)",
        right: Right::Text("(concat_rows (scale_cols ?a ?g) (scale_cols ?b ?g))"),
        guard: super::always,
        sample: &[("?a", Matrix("N", "K")), ("?b", Matrix("P", "K")), ("?g", Vector("K"))],
    },
    Rule {
        name: "column-scale-into-slice",
        left: "(scale_cols (slice_rows ?s ?l ?w) ?g)",
        right: Right::Text("(slice_rows ?s ?l (scale_cols ?w ?g))"),
        guard: super::always,
        sample: &[
            ("?s", super::Sample::Int("S")),
            ("?l", super::Sample::Int("L")),
            ("?w", Matrix("N", "K")),
            ("?g", Vector("K")),
        ],
    },
];
