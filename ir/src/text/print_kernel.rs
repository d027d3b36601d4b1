//! Printing kernels.

use super::expr::{self, Shape, Tree};
use super::names::{Float, List, Name};
use crate::graph::F32;
use crate::kernel::{Expr, Field, Kernel, Norm, Param, ParamId, ParamKind, Prologue, RowElem, Segment, Store};
use std::fmt;

/// The text of a kernel.
pub fn print_kernel(k: &Kernel) -> String {
    let mut out = String::new();
    kernel(&mut out, k, "");
    out
}

/// Prints a kernel with every line indented.
pub(super) fn kernel(out: &mut String, k: &Kernel, indent: &str) {
    put!(out, "{indent}kernel @{} rows {} {{\n", Name(&k.name), k.rows);
    for p in &k.params {
        put!(out, "{indent}  param %{}: {}\n", Name(&p.name), Kind(&p.kind));
    }
    put!(out, "{indent}  ");
    out.push_str(k.body.name());
    fields(out, k, indent);
    put!(out, "\n{indent}}}\n");
}

/// A kind of operand.
struct Kind<'a>(&'a ParamKind);

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ParamKind::Rows { rows, cols, elem } => write!(f, "rows {elem}[{rows}, {cols}]"),
            ParamKind::Matrix { n, k, format } => write!(f, "matrix {format}[{n}, {k}]"),
            ParamKind::Vector { len } => write!(f, "vector f32[{len}]"),
            ParamKind::State(spec) => spec.fmt(f),
        }
    }
}

/// An operand, by name.
struct Operand<'a>(&'a [Param], ParamId);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get(self.1) {
            Some(p) => write!(f, "%{}", Name(&p.name)),
            None => write!(f, "%{}", self.1),
        }
    }
}

/// The parts of a kernel after the name of its family.
fn fields(out: &mut String, k: &Kernel, indent: &str) {
    let operand = |p: ParamId| Operand(&k.params, p);
    for (name, field) in k.body.fields() {
        match field {
            Field::Operand(p) | Field::Optional(Some(p)) => put!(out, " {name}={}", operand(p)),
            Field::Size(n) | Field::SizeIf(Some(n)) => put!(out, " {name}={n}"),
            Field::Sizes(sizes) => put!(out, " {name}=[{}]", List(sizes.iter())),
            Field::SizeOr1(n) if n != 1 => put!(out, " {name}={n}"),
            Field::Real(x) | Field::RealIf(Some(x)) => put!(out, " {name}={}", Float(x.get())),
            Field::RealOr1(x) if x != F32::new(1.0) => put!(out, " {name}={}", Float(x.get())),
            Field::Flag(true) => put!(out, " {name}"),
            Field::Word(word) => put!(out, " {name}={word}"),
            Field::Norm(Some(n)) => put!(out, " {}", NormText(n)),
            Field::Prologue(Some(p)) => prologue(out, k, p),
            Field::Segments(all) => segments(out, k, all, indent),
            Field::Optional(None)
            | Field::SizeOr1(_)
            | Field::SizeIf(None)
            | Field::RealIf(None)
            | Field::RealOr1(_)
            | Field::Flag(false)
            | Field::Norm(None)
            | Field::Prologue(None) => {}
        }
    }
}

fn prologue(out: &mut String, k: &Kernel, p: &Prologue) {
    let parts = [
        p.norm.map(|n| NormText(n).to_string()),
        p.gain.map(|g| format!("gain={}", Operand(&k.params, g))),
        p.bias.map(|b| format!("bias={}", Operand(&k.params, b))),
        match p.elem {
            RowElem::F32 => None,
            RowElem::Q8 { group } => Some(format!("quant={group}")),
            RowElem::I8 { .. } | RowElem::F16 | RowElem::Bf16 | RowElem::Fp8 => Some(format!("round={}", p.elem)),
        },
    ];
    put!(out, " prologue{{{}}}", List(parts.iter().flatten()));
}

/// `norm{eps=…, width=…}`, or `center` after the width.
struct NormText(Norm);

impl fmt::Display for NormText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Norm { eps, width, center } = self.0;
        write!(f, "norm{{eps={}, width={width}{}}}", Float(eps.get()), if center { ", center" } else { "" })
    }
}

fn segments(out: &mut String, k: &Kernel, segments: &[Segment], indent: &str) {
    out.push_str(" {\n");
    for s in segments {
        put!(out, "{indent}    segment n={} tile_n={}", s.n, s.tile_n);
        if !s.weights.is_empty() {
            put!(out, " weights({})", List(s.weights.iter().map(|w| Operand(&k.params, *w))));
        }
        match &s.store {
            Store::Rows { param, start } => put!(out, ": {}[{start}..] = ", Operand(&k.params, *param)),
            Store::KvKey(p) => put!(out, ": key {} = ", Operand(&k.params, *p)),
            Store::KvValue(p) => put!(out, ": value {} = ", Operand(&k.params, *p)),
        }
        expr::print(out, &s.expr, &k.params);
        out.push('\n');
    }
    put!(out, "{indent}  }}");
}

impl Tree for Expr {
    type Names = Vec<Param>;

    fn shape<'a>(&'a self, params: &Vec<Param>) -> Shape<'a, Expr> {
        match self {
            Expr::Acc(l) => Shape::Leaf(format!("acc{l}")),
            Expr::Rows { param, start } => Shape::Leaf(format!("{}[{start}..]", Operand(params, *param))),
            Expr::Vector(p) => Shape::Leaf(Operand(params, *p).to_string()),
            Expr::Const(x) => Shape::Const(*x),
            Expr::Expert { vector, routes, top } => {
                let (vector, routes) = (Operand(params, *vector), Operand(params, *routes));
                Shape::Leaf(format!("expert{{vector={vector}, routes={routes}, top={top}}}"))
            }
            Expr::Pick { rows, order } => {
                let (rows, order) = (Operand(params, *rows), Operand(params, *order));
                Shape::Leaf(format!("pick{{rows={rows}, order={order}}}"))
            }
            Expr::Combine { weights, from, y, count } => {
                let (weights, y) = (Operand(params, *weights), Operand(params, *y));
                Shape::Leaf(format!("combine{{weights={weights}[{from}..], y={y}, count={count}}}"))
            }
            Expr::Unary(op, x) => Shape::Call(op.name().into(), vec![x]),
            Expr::Binary(op, a, b) => Shape::Binary(*op, a, b),
            Expr::Normalize(n, x) => Shape::Call(NormText(*n).to_string(), vec![x]),
            Expr::Rope { head_dim, table, x } => {
                Shape::Call(format!("rope{{head_dim={head_dim}, table={}}}", Operand(params, *table)), vec![x])
            }
        }
    }
}
