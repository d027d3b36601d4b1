//! A gather moves towards the inputs: fewer rows for everything after it (`R ≤ T`).

use super::Sample::{Const, Eps, Index, Int, Matrix, Rows, Vector};
use super::{Right, Rule, always};
use llmcc_ir::graph::Input::OutRows;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "gather-of-normalize",
        left: "(gather_rows (normalize ?e ?w ?x) ?r)",
        right: Right::Text("(normalize ?e ?w (gather_rows ?x ?r))"),
        guard: always,
        sample: &[("?e", Eps), ("?w", Int("W")), ("?x", Rows("K")), ("?r", Index(OutRows))],
    },
    Rule {
        name: "gather-of-standardize",
        left: "(gather_rows (standardize ?e ?w ?x) ?r)",
        right: Right::Text("(standardize ?e ?w (gather_rows ?x ?r))"),
        guard: always,
        sample: &[("?e", Eps), ("?w", Int("W")), ("?x", Rows("K")), ("?r", Index(OutRows))],
    },
    Rule {
        name: "gather-of-gain",
        left: "(gather_rows (mul ?x ?g) ?r)",
        right: Right::Text("(mul (gather_rows ?x ?r) ?g)"),
        guard: |m| m.vector("?g"),
        sample: &[("?x", Rows("K")), ("?g", Vector("W")), ("?r", Index(OutRows))],
    },
    Rule {
        name: "gather-of-constant",
        left: "(gather_rows (mul ?x ?c) ?r)",
        right: Right::Text("(mul (gather_rows ?x ?r) ?c)"),
        guard: |m| m.constant("?c"),
        sample: &[("?x", Rows("K")), ("?c", Const), ("?r", Index(OutRows))],
    },
    Rule {
        name: "gather-of-bias",
        left: "(gather_rows (add ?x ?b) ?r)",
        right: Right::Text("(add (gather_rows ?x ?r) ?b)"),
        guard: |m| m.vector("?b"),
        sample: &[("?x", Rows("K")), ("?b", Vector("K")), ("?r", Index(OutRows))],
    },
    Rule {
        name: "gather-of-matmul",
        left: "(gather_rows (matmul ?x ?w) ?r)",
        right: Right::Text("(matmul (gather_rows ?x ?r) ?w)"),
        guard: always,
        sample: &[("?x", Rows("K")), ("?w", Matrix("N", "K")), ("?r", Index(OutRows))],
    },
];
