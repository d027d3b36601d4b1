//! Activations written out in steps are recognised.

use super::Sample::Rows;
use super::{Right, Rule};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "silu-of-product",
        left: "(mul ?x (sigmoid ?x))",
        right: Right::Text("(silu ?x)"),
        guard: |m| m.f32("?x"),
        sample: &[("?x", Rows("K"))],
    },
    Rule {
        name: "silu-of-product-swapped",
        left: "(mul (sigmoid ?x) ?x)",
        right: Right::Text("(silu ?x)"),
        guard: |m| m.f32("?x"),
        sample: &[("?x", Rows("K"))],
    },
    Rule {
        name: "silu-of-quotient",
        left: "(div ?x (add (exp (neg ?x)) 1.0))",
        right: Right::Text("(silu ?x)"),
        guard: |m| m.f32("?x"),
        sample: &[("?x", Rows("K"))],
    },
    Rule {
        name: "relu-of-max",
        left: "(max ?x 0.0)",
        right: Right::Text("(relu ?x)"),
        guard: |m| m.f32("?x"),
        sample: &[("?x", Rows("K"))],
    },
];
