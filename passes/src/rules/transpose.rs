//! Transposes of weights cancel, and scales pass through them.

use super::Sample::{Matrix, Vector};
use super::{Right, Rule, always};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "transpose-twice",
        left: "(transpose (transpose ?w))",
        right: Right::Text("?w"),
        // Decoded values are f32 when transposed.
        guard: |m| !m.coded("?w"),
        sample: &[("?w", Matrix("N", "K"))],
    },
    Rule {
        name: "transpose-of-column-scale",
        left: "(transpose (scale_cols ?w ?g))",
        right: Right::Text("(scale_rows (transpose ?w) ?g)"),
        guard: always,
        sample: &[("?w", Matrix("N", "K")), ("?g", Vector("K"))],
    },
    Rule {
        name: "transpose-of-row-scale",
        left: "(transpose (scale_rows ?w ?g))",
        right: Right::Text("(scale_cols (transpose ?w) ?g)"),
        guard: always,
        sample: &[("?w", Matrix("N", "K")), ("?g", Vector("N"))],
    },
    Rule {
        name: "column-scale-of-transpose",
        left: "(scale_cols (transpose ?w) ?g)",
        right: Right::Text("(transpose (scale_rows ?w ?g))"),
        guard: always,
        sample: &[("?w", Matrix("N", "K")), ("?g", Vector("N"))],
    },
    Rule {
        name: "row-scale-of-transpose",
        left: "(scale_rows (transpose ?w) ?g)",
        right: Right::Text("(transpose (scale_cols ?w ?g))"),
        guard: always,
        sample: &[("?w", Matrix("N", "K")), ("?g", Vector("K"))],
    },
];
