//! Columns that a checkpoint has in another order: a product takes the columns of its input in that
//! order, and the matrix stays as it is stored, codes included.

use super::Sample::{Int, Matrix, Order, Rows};
use super::{Right, Rule, always};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "product-of-placed",
        left: "(matmul ?x (place_cols ?w ?o))",
        right: Right::Text("(matmul (pick_cols ?x ?o) ?w)"),
        guard: always,
        sample: &[("?x", Rows("K")), ("?w", Matrix("N", "K")), ("?o", Order("K"))],
    },
    Rule {
        name: "row-slice-of-placed",
        left: "(slice_rows ?s ?l (place_cols ?w ?o))",
        right: Right::Text("(place_cols (slice_rows ?s ?l ?w) ?o)"),
        guard: always,
        sample: &[("?s", Int("S")), ("?l", Int("L")), ("?w", Matrix("N", "K")), ("?o", Order("K"))],
    },
    Rule {
        name: "filled-rows-of-placed",
        left: "(fill_rows ?r ?t (place_cols ?w ?o))",
        right: Right::Text("(place_cols (fill_rows ?r ?t ?w) ?o)"),
        guard: always,
        sample: &[("?r", Int("N")), ("?t", Int("20")), ("?w", Matrix("N", "K")), ("?o", Order("K"))],
    },
    Rule {
        name: "picked-rows-of-placed",
        left: "(pick_rows ?r ?s ?l ?p (place_cols ?w ?o))",
        right: Right::Text("(place_cols (pick_rows ?r ?s ?l ?p ?w) ?o)"),
        guard: always,
        sample: &[
            ("?r", Int("N")),
            ("?s", Int("S")),
            ("?l", Int("L")),
            ("?p", Int("0")),
            ("?w", Matrix("N", "K")),
            ("?o", Order("K")),
        ],
    },
];
