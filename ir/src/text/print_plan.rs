//! Printing plans.

use super::expr::{self, Shape, Tree};
use super::names::{List, Name, Quoted};
use super::output;
use super::print_graph::{entry_head, info, operation, state_word, states};
use super::print_kernel::kernel;
use super::tap;
use crate::graph::Op;
use crate::plan::{Operand, Plan, PlanEntry, Regime, Storage, WeightExpr};
use crate::state::StateSpec;
use std::fmt;

/// The text of a plan.
pub fn print_plan(p: &Plan) -> String {
    let mut out = String::new();
    put!(out, "plan {} {{\n", Quoted(&p.name));
    info(&mut out, &p.info);
    states(&mut out, &p.states);
    for (i, w) in p.weights.iter().enumerate() {
        put!(out, "  weight {i}: {} = ", StorageText(w.storage));
        expr::print(&mut out, &w.expr, &());
        out.push('\n');
    }
    for k in &p.kernels {
        kernel(&mut out, k, "  ");
    }
    for (i, s) in p.slots.iter().enumerate() {
        put!(out, "  slot {i}: per_token={} per_row={}\n", s.per_token, s.per_row);
    }
    for e in &p.entries {
        entry(&mut out, e);
    }
    for r in &p.regimes {
        regime(&mut out, p, r);
    }
    out.push_str("}\n");
    out
}

fn entry(out: &mut String, e: &PlanEntry) {
    entry_head(out, &e.name, e.context);
    for o in &e.outputs {
        out.push_str("    ");
        output::print(out, o.output, &format!("slot {}", o.at));
    }
    if let Some(c) = e.candidates {
        put!(out, "    candidates slot {} k={}\n", c.slot, c.k);
    }
    for t in &e.taps {
        out.push_str("    ");
        tap::print(out, t, |slot| format!("slot {slot}"));
    }
    out.push_str("  }\n");
}

fn regime(out: &mut String, p: &Plan, r: &Regime) {
    match p.entries.get(r.entry) {
        Some(e) => put!(out, "  regime @{} ", Name(&e.name)),
        None => put!(out, "  regime @\"missing entry {}\" ", r.entry),
    }
    match r.max_tokens {
        Some(n) => put!(out, "max_tokens={n} {{\n"),
        None => out.push_str("any {\n"),
    }
    for (i, b) in r.buffers.iter().enumerate() {
        put!(out, "    buffer %{i}: {}[{}, {}] in slot {}\n", b.elem, b.rows, b.cols, b.slot);
    }
    for l in &r.launches {
        put!(out, "    call {}: ", l.call);
        match p.kernels.get(l.kernel) {
            Some(k) => put!(out, "@{}", Name(&k.name)),
            None => put!(out, "@\"missing kernel {}\"", l.kernel),
        }
        put!(out, "({})\n", List(l.operands.iter().map(|o| OperandText(&p.states, *o))));
    }
    out.push_str("  }\n");
}

struct OperandText<'a>(&'a [StateSpec], Operand);

impl fmt::Display for OperandText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Operand::Buffer(i) => write!(f, "%{i}"),
            Operand::Weight(i) => write!(f, "weight {i}"),
            Operand::State(i) => write!(f, "{} {i}", state_word(self.0, i)),
        }
    }
}

struct StorageText(Storage);

impl fmt::Display for StorageText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Storage::Matrix { n, k, format } => write!(f, "matrix {format}[{n}, {k}]"),
            Storage::Vector { len } => write!(f, "vector f32[{len}]"),
        }
    }
}

impl Tree for WeightExpr {
    type Names = ();

    fn shape<'a>(&'a self, _: &()) -> Shape<'a, WeightExpr> {
        match self {
            WeightExpr::Weight(i) => Shape::Leaf(format!("weight {i}")),
            WeightExpr::Op(Op::Const { value }, _) => Shape::Const(*value),
            WeightExpr::Op(op, args) => match (op, &args[..]) {
                (Op::Binary(op), [a, b]) => Shape::Binary(*op, a, b),
                _ => {
                    let mut head = String::new();
                    operation(&mut head, op);
                    Shape::Call(head, args.iter().collect())
                }
            },
        }
    }
}
