//! Printing kernels.

use super::expr::{self, Shape, Tree};
use super::names::{Float, List, Name};
use crate::kernel::{Body, Expr, Kernel, Norm, Param, ParamId, ParamKind, Prologue, RowElem, Segment, Store};
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
    body(out, k, indent);
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
            ParamKind::Kv(spec) => spec.fmt(f),
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

fn body(out: &mut String, k: &Kernel, indent: &str) {
    let name = |p: ParamId| Operand(&k.params, p);
    match &k.body {
        Body::Matmul(b) => {
            put!(out, "matmul x={}", name(b.x));
            if let Some(p) = &b.prologue {
                prologue(out, k, p);
            }
            put!(out, " tile_m={}", b.tile_m);
            segments(out, k, &b.segments, indent);
        }
        Body::RowNorm(b) => {
            put!(out, "row_norm x={}", name(b.x));
            if b.gather {
                out.push_str(" gather");
            }
            if let Some(n) = b.norm {
                put!(out, " {}", NormText(n));
            }
            if let Some(g) = b.gain {
                put!(out, " gain={}", name(g));
            }
            put!(out, " out={}", name(b.out));
        }
        Body::Attention(b) => {
            let (q, kv, o) = (name(b.q), name(b.kv), name(b.out));
            put!(out, "attention q={q} kv={kv} heads={} scale={}", b.heads, Float(b.scale.get()));
            if b.tile_m != 1 {
                put!(out, " tile_m={}", b.tile_m);
            }
            put!(out, " out={o}");
        }
        Body::Pointwise(b) => {
            out.push_str("pointwise");
            segments(out, k, &b.segments, indent);
        }
        Body::Embed(b) => put!(out, "embed table={} out={}", name(b.table), name(b.out)),
        Body::RopeTable(b) => {
            put!(out, "rope_table inv_freq={} scale={} out={}", name(b.inv_freq), Float(b.scale.get()), name(b.out));
        }
        Body::TopK(b) => put!(out, "top_k x={} k={} out={}", name(b.x), b.k, name(b.out)),
    }
}

fn prologue(out: &mut String, k: &Kernel, p: &Prologue) {
    let parts = [
        p.norm.map(|n| NormText(n).to_string()),
        p.gain.map(|g| format!("gain={}", Operand(&k.params, g))),
        match p.elem {
            RowElem::F32 => None,
            RowElem::Q8 { group } => Some(format!("quant={group}")),
            RowElem::F16 | RowElem::Bf16 | RowElem::Fp8 => Some(format!("round={}", p.elem)),
        },
    ];
    put!(out, " prologue{{{}}}", List(parts.iter().flatten()));
}

/// `norm{eps=…, width=…}`
struct NormText(Norm);

impl fmt::Display for NormText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "norm{{eps={}, width={}}}", Float(self.0.eps.get()), self.0.width)
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
            Expr::Unary(op, x) => Shape::Call(op.name().into(), vec![x]),
            Expr::Binary(op, a, b) => Shape::Binary(*op, a, b),
            Expr::Normalize(n, x) => Shape::Call(NormText(*n).to_string(), vec![x]),
            Expr::Rope { head_dim, table, x } => {
                Shape::Call(format!("rope{{head_dim={head_dim}, table={}}}", Operand(params, *table)), vec![x])
            }
        }
    }
}
