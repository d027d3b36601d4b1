//! Constants fold; neutral elements vanish.

use super::Sample::{Const, PowerOfTwo, Rows};
use super::{Builder, Right, Rule};
use egg::Id;

/// `?a ∘ ?b` of two constants.
macro_rules! fold {
    ($name:literal, $left:literal, $f:expr) => {
        Rule {
            name: $name,
            left: $left,
            right: Right::Build(|b| fold(b, $f)),
            guard: |m| m.constant("?a") && m.constant("?b"),
            sample: &[("?a", Const), ("?b", PowerOfTwo)],
        }
    };
}

/// `?x ∘ neutral = ?x`, for f32 only: elementwise results are f32, whatever their operands.
macro_rules! neutral {
    ($name:literal, $left:literal) => {
        Rule {
            name: $name,
            left: $left,
            right: Right::Text("?x"),
            guard: |m| m.f32("?x"),
            sample: &[("?x", Rows("K"))],
        }
    };
}

pub(super) const RULES: &[Rule] = &[
    fold!("fold-add", "(add ?a ?b)", |a, b| a + b),
    fold!("fold-sub", "(sub ?a ?b)", |a, b| a - b),
    fold!("fold-mul", "(mul ?a ?b)", |a, b| a * b),
    fold!("fold-div", "(div ?a ?b)", |a, b| a / b),
    fold!("fold-max", "(max ?a ?b)", f32::max),
    fold!("fold-min", "(min ?a ?b)", f32::min),
    neutral!("add-zero", "(add ?x 0.0)"),
    neutral!("sub-zero", "(sub ?x 0.0)"),
    neutral!("mul-one", "(mul ?x 1.0)"),
    neutral!("div-one", "(div ?x 1.0)"),
    neutral!("negate-twice", "(neg (neg ?x))"),
    Rule {
        name: "constants-multiply",
        left: "(mul (mul ?x ?a) ?b)",
        right: Right::Build(|b| {
            let c = fold(b, |x, y| x * y)?;
            let x = b.class("?x")?;
            Some(b.op(crate::egraph::Head::Binary(llmcc_ir::graph::BinaryOp::Mul), &[x, c]))
        }),
        guard: |m| m.runtime("?x") && m.constant("?a") && m.constant("?b"),
        sample: &[("?x", Rows("K")), ("?a", Const), ("?b", Const)],
    },
    Rule {
        name: "constants-add",
        left: "(add (add ?x ?a) ?b)",
        right: Right::Build(|b| {
            let c = fold(b, |x, y| x + y)?;
            let x = b.class("?x")?;
            Some(b.op(crate::egraph::Head::Binary(llmcc_ir::graph::BinaryOp::Add), &[x, c]))
        }),
        guard: |m| m.runtime("?x") && m.constant("?a") && m.constant("?b"),
        sample: &[("?x", Rows("K")), ("?a", Const), ("?b", Const)],
    },
];

fn fold(b: &mut Builder<'_>, f: fn(f32, f32) -> f32) -> Option<Id> {
    let value = f(b.float("?a")?, b.float("?b")?);
    b.constant(value)
}
