//! How far f32 arithmetic may be from the oracle: every value is computed in f64 with a bound on the error of computing it in f32,
//! propagated
//! operation by operation.

use super::jit::Case;
use llmcc_ir::eval::{OperandData, Q8Rows, binary, unary};
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Norm, ParamId, ParamKind, Segment, Store};
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::{Elem, unpack_row};

/// One unit in the last place of f32, relative: twice the rounding error.
pub(super) const ULP: f64 = 1.0 / (1 << 23) as f64;
/// Results below this may be flushed to 0 by underflow of an intermediate result.
const TINY: f64 = 1e-36;

/// Absolute error of the oracle itself: f64 rounding of values of moderate size.
const ORACLE: f64 = 1e-11;

/// A value and a bound on its absolute error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Approx {
    pub value: f64,
    pub error: f64,
}

impl Approx {
    /// Nothing is known of what follows from a value that may overflow.
    fn in_range(self) -> Approx {
        Approx { error: if self.is_bounded() { self.error } else { f64::INFINITY }, ..self }
    }

    /// Far from overflow: expressions of random numbers may leave the range of f32.
    fn is_bounded(&self) -> bool {
        self.value.abs() + self.error < 1e37
    }
}

fn exact(value: f64) -> Approx {
    Approx { value, error: 0.0 }
}

fn rows_of(case: &Case, param: ParamId, i: usize) -> Vec<f64> {
    match &case.operands[param] {
        OperandData::Rows(r) => r.row(i).iter().map(|v| f64::from(*v)).collect(),
        OperandData::Q8(r) => r.row(i),
        o => panic!("not rows: {o:?}"),
    }
}

/// `x·wᵀ` for every row and column.
pub(super) fn product(case: &Case, x: &[Vec<Approx>], weights: ParamId, int8: bool) -> Vec<Vec<Approx>> {
    let (ParamKind::Matrix { n, k, format }, OperandData::Matrix(bytes)) = (&case.kernel.params[weights].kind, &case.operands[weights])
    else {
        panic!("not a matrix")
    };
    let mut out = vec![vec![]; x.len()];
    let mut w = vec![0f32; *k];
    for j in 0..*n {
        unpack_row(*format, bytes, *k, j, &mut w);
        let largest = w.iter().fold(0f64, |m, v| m.max(f64::from(v.abs())));
        for (out, x) in out.iter_mut().zip(x) {
            let value = x.iter().zip(&w).map(|(a, b)| a.value * f64::from(*b)).sum();
            let carried: f64 = x.iter().zip(&w).map(|(a, b)| a.error * f64::from(b.abs())).sum();
            // int8 rows multiply code and minimum apart: each part may be twice as large as the weights.
            let magnitude: f64 = if int8 && format.elem == Elem::W4a {
                x.iter().map(|a| 4.0 * a.value.abs() * largest).sum()
            } else {
                x.iter().zip(&w).map(|(a, b)| (a.value * f64::from(*b)).abs()).sum()
            };
            out.push(Approx { value, error: carried + (*k as f64 + 4.0) * ULP * magnitude });
        }
    }
    out
}

/// A segment's values: `[m][n]`.
pub(super) fn segment(case: &Case, s: &Segment, lanes: &[Vec<Vec<Approx>>]) -> Vec<Vec<Approx>> {
    (0..case.m()).map(|i| expr(case, &s.expr, s.n, i, lanes)).collect()
}

fn expr(case: &Case, e: &Expr, n: usize, i: usize, lanes: &[Vec<Vec<Approx>>]) -> Vec<Approx> {
    match e {
        Expr::Acc(lane) => lanes[*lane][i].clone(),
        Expr::Rows { param, start } => rows_of(case, *param, i)[*start..start + n].iter().copied().map(exact).collect(),
        Expr::Vector(param) => {
            let OperandData::Vector(v) = &case.operands[*param] else { panic!("not a vector") };
            (0..n).map(|j| exact(v[j % v.len()].into())).collect()
        }
        Expr::Const(c) => vec![exact(c.get().into()); n],
        Expr::Unary(op, x) => expr(case, x, n, i, lanes).into_iter().map(|x| of_unary(*op, x)).collect(),
        Expr::Binary(op, a, b) => {
            let (a, b) = (expr(case, a, n, i, lanes), expr(case, b, n, i, lanes));
            a.into_iter().zip(b).map(|(a, b)| of_binary(*op, a, b)).collect()
        }
        Expr::Normalize(norm, x) => {
            let x = expr(case, x, n, i, lanes);
            x.chunks(norm.width).flat_map(|run| of_norm(norm, run)).collect()
        }
        Expr::Rope { head_dim, table, x } => {
            let (mut x, table) = (expr(case, x, n, i, lanes), rows_of(case, *table, i));
            x.chunks_mut(*head_dim).for_each(|head| of_rope(head, &table));
            x
        }
    }
}

/// The function in f64; the oracle's, but for one whose definition cancels.
pub(super) fn reference(op: UnaryOp, x: f64) -> f64 {
    match op {
        // 1 + tanh u loses all bits for u < -19; this is the same number.
        UnaryOp::GeluTanh => x / (1.0 + (-2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).exp()),
        _ => unary(op, x),
    }
}

fn of_unary(op: UnaryOp, x: Approx) -> Approx {
    let f = |v: f64| reference(op, v);
    let value = f(x.value);
    let moved = (f(x.value + x.error) - value).abs().max((f(x.value - x.error) - value).abs());
    let ulps = match op {
        UnaryOp::Neg | UnaryOp::Relu => 0.0,
        UnaryOp::Exp => 2.0,
        UnaryOp::Sigmoid | UnaryOp::Silu | UnaryOp::Tanh => 4.0,
        UnaryOp::Gelu => 8.0,
        UnaryOp::GeluTanh => 4.0 + 4.0 * (0.8 * (x.value + 0.045 * x.value.powi(3))).abs(),
    };
    // Near a maximum of |f′| the ends of the interval may underestimate; twice is ample for these functions.
    Approx { value, error: 2.0 * moved + ulps * ULP * value.abs() + TINY }.in_range()
}

fn of_binary(op: BinaryOp, a: Approx, b: Approx) -> Approx {
    let value = binary(op, a.value, b.value);
    let carried = match op {
        BinaryOp::Add | BinaryOp::Sub => a.error + b.error,
        BinaryOp::Mul => a.error * (b.value.abs() + b.error) + a.value.abs() * b.error,
        BinaryOp::Div => (a.error + value.abs() * b.error) / (b.value.abs() - b.error),
        BinaryOp::Max | BinaryOp::Min => a.error.max(b.error),
    };
    Approx { value, error: carried + ULP * (value.abs() + carried) + TINY }.in_range()
}

pub(super) fn of_norm(norm: &Norm, x: &[Approx]) -> Vec<Approx> {
    let width = norm.width as f64;
    let squares: f64 = x.iter().map(|x| x.value * x.value).sum();
    let moved: f64 = x.iter().map(|x| 2.0 * x.value.abs() * x.error + x.error * x.error).sum();
    let mean = squares / width + f64::from(norm.eps.get());
    let relative = (moved / width) / mean + (width + 8.0) * ULP;
    let root = mean.sqrt();
    let scale = |x: &Approx| Approx {
        value: x.value / root,
        error: (x.error * (1.0 + relative) + x.value.abs() * (relative + 4.0 * ULP)) / root + TINY,
    };
    x.iter().map(scale).collect()
}

fn of_rope(head: &mut [Approx], table: &[f64]) {
    let half = table.len() / 2;
    for j in 0..half {
        let (a, b, cos, sin) = (head[j], head[j + half], table[j], table[j + half]);
        let rotate = |a: Approx, b: Approx, sign: f64| Approx {
            value: a.value * cos + sign * b.value * sin,
            error: a.error * cos.abs() + b.error * sin.abs() + 2.0 * ULP * ((a.value * cos).abs() + (b.value * sin).abs()) + TINY,
        };
        (head[j], head[j + half]) = (rotate(a, b, -1.0), rotate(b, a, 1.0));
    }
}

/// Checks what a kernel stored of `values` against their bounds, and these against the oracle.
pub(super) fn check_store(case: &Case, store: &Store, values: &[Vec<Approx>], got: &[OperandData], oracle: &[OperandData]) {
    for (i, row) in values.iter().enumerate() {
        match store {
            Store::Rows { param, start } => match (&got[*param], &oracle[*param]) {
                (OperandData::Rows(got), OperandData::Rows(oracle)) => {
                    check_row(row, &got.row(i)[*start..], &oracle.row(i)[*start..]);
                }
                (OperandData::Q8(got), OperandData::Q8(_)) => check_q8(row, got, i, *start),
                o => panic!("{o:?}"),
            },
            Store::KvKey(param) | Store::KvValue(param) => {
                let (OperandData::Kv(got), OperandData::Kv(oracle)) = (&got[*param], &oracle[*param]) else { panic!("not a state") };
                let (seq, position, d) = (case.batch.seqs[i], case.batch.positions[i] as usize, got.spec.head_dim);
                for (h, row) in row.chunks(d).enumerate() {
                    let key = matches!(store, Store::KvKey(_));
                    let read = |s: &llmcc_ir::eval::KvState| if key { s.key(seq, position, h) } else { s.value(seq, position, h) }.unwrap();
                    check_cached(row, &read(got), &read(oracle), got.spec.dtype);
                }
            }
        }
    }
}

pub(super) fn check_row(row: &[Approx], got: &[f32], oracle: &[f32]) {
    for (j, a) in row.iter().enumerate().filter(|(_, a)| a.is_bounded()) {
        let (got, oracle) = (f64::from(got[j]), f64::from(oracle[j]));
        assert!((oracle - a.value).abs() <= ULP * a.value.abs() + ORACLE, "column {j}: oracle {oracle}, expected {}", a.value);
        assert!((got - a.value).abs() <= a.error + ULP * a.value.abs() + 1e-44, "column {j}: {got}, expected {a:?}");
    }
}

/// int8 rows: the scale belongs to values within the bounds, each code is a nearest one under that scale, sums are exact.
pub(super) fn check_q8(row: &[Approx], got: &Q8Rows, i: usize, start: usize) {
    for (g, part) in row.chunks(got.group).enumerate() {
        let at = i * got.groups() + start / got.group + g;
        let amax = part.iter().fold(0f64, |m, a| m.max(a.value.abs()));
        let error = part.iter().fold(0f64, |m, a| m.max(a.error));
        let scale = f64::from(got.scales[at]);
        let codes = &got.codes[i * got.cols + start + g * got.group..][..part.len()];
        assert_eq!(got.sums[at], codes.iter().map(|c| i32::from(*c)).sum::<i32>(), "group {g}: {codes:?}");
        if amax < 1e-30 || !part.iter().all(Approx::is_bounded) {
            continue;
        }
        assert!((scale * 127.0 - amax).abs() <= error + 2.0 * ULP * amax + 1e-42, "scale {scale} for a largest magnitude of {amax}");
        for (code, a) in codes.iter().zip(part) {
            let slack = 0.5 + a.error / scale + 127.0 * 2.0 * ULP;
            assert!((f64::from(*code) - a.value / scale).abs() <= slack, "code {code} for {a:?} at scale {scale}");
        }
    }
}

fn check_cached(row: &[Approx], got: &[f64], oracle: &[f64], dtype: KvDType) {
    let amax = row.iter().fold(0f64, |m, a| m.max(a.value.abs() + a.error));
    if !row.iter().all(Approx::is_bounded) {
        return;
    }
    for (j, a) in row.iter().enumerate() {
        let rounding = match dtype {
            KvDType::F32 => ULP * a.value.abs() + 1e-44,
            KvDType::F16 => a.value.abs() / 2048.0 + 2f64.powi(-25),
            KvDType::Bf16 => a.value.abs() / 256.0,
            KvDType::Int8 => amax / 127.0 * (0.5 + 1e-3),
        };
        if dtype == KvDType::F16 && a.value.abs() + a.error > 65504.0 {
            assert!(got[j].abs() > 65000.0, "column {j}: {} in the cache, expected {a:?}", got[j]);
            continue;
        }
        assert!((got[j] - a.value).abs() <= 2.0 * a.error + rounding, "column {j}: {} in the cache, expected {a:?}", got[j]);
        assert!((oracle[j] - a.value).abs() <= rounding + ORACLE, "column {j}: oracle {}, expected {a:?}", oracle[j]);
    }
}

/// Checks every segment of a matmul or pointwise kernel.
pub(super) fn check_segments(case: &Case, got: &[OperandData]) {
    let oracle = case.expected();
    match &case.kernel.body {
        Body::Matmul(k) => {
            assert!(k.prologue.is_none(), "prologues are compared with row norms");
            let x: Vec<Vec<Approx>> = (0..case.m()).map(|i| rows_of(case, k.x, i).into_iter().map(exact).collect()).collect();
            let int8 = matches!(case.operands[k.x], OperandData::Q8(_));
            for s in &k.segments {
                let lanes: Vec<_> = s.weights.iter().map(|w| product(case, &x, *w, int8)).collect();
                check_store(case, &s.store, &segment(case, s, &lanes), got, &oracle);
            }
        }
        Body::Pointwise(k) => {
            for s in &k.segments {
                check_store(case, &s.store, &segment(case, s, &[]), got, &oracle);
            }
        }
        body => panic!("no segments in {body:?}"),
    }
}
