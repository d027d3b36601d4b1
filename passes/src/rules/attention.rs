//! Scales of queries become the scale of attention.

use super::Sample::{Appended, Const, Eps, Flag, Index, Int, Rows};
use super::{Right, Rule};
use crate::egraph::Head;
use llmcc_ir::graph::Input::Positions;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "query-scale-into-attention",
        left: "(attention ?h ?s ?cap ?causal ?chunked ?biased ?sums (mul ?q ?c) ?kv ?p)",
        right: Right::Build(|b| {
            let scale = b.float("?s")? * b.float("?c")?;
            let scale = b.constant(scale)?;
            let [h, cap, causal] = [b.class("?h")?, b.class("?cap")?, b.class("?causal")?];
            let [chunked, biased] = [b.class("?chunked")?, b.class("?biased")?];
            let sums = b.class("?sums")?;
            let [q, kv, p] = [b.class("?q")?, b.class("?kv")?, b.class("?p")?];
            Some(b.op(Head::Attention, &[h, scale, cap, causal, chunked, biased, sums, q, kv, p]))
        }),
        guard: |m| m.constant("?c"),
        sample: &[
            ("?h", Int("2")),
            ("?s", Eps),
            ("?cap", Eps),
            ("?causal", Flag(false)),
            ("?chunked", Flag(false)),
            ("?biased", Flag(false)),
            ("?sums", Flag(false)),
            ("?q", Rows("Q")),
            ("?c", Const),
            ("?kv", Appended),
            ("?p", Index(Positions)),
        ],
    },
    Rule {
        name: "constant-through-rope",
        left: "(rope ?d (mul ?x ?c) ?t)",
        right: Right::Text("(mul (rope ?d ?x ?t) ?c)"),
        guard: |m| m.constant("?c"),
        sample: &[("?d", Int("D")), ("?x", Rows("Q")), ("?c", Const), ("?t", Rows("D"))],
    },
];
