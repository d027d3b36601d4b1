//! How far a GPU's f32 arithmetic may be from the evaluator: every value is computed in f64 with a bound on the error of computing it in f32, propagated
//! operation by operation. The errors of `ex2.approx`, `rcp.approx` and `rsqrt.approx` are those that PTX states (2, 1 and 2 units in the last place).

use super::Case;
use llmcc_ir::eval::{KvState, OperandData, binary, unary};
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Expr, Norm, ParamId, ParamKind, RowElem, Segment, Store};
use llmcc_ir::kv::KvDType;

/// One unit in the last place of f32, relative: twice the rounding error.
pub const ULP: f64 = 1.0 / (1 << 23) as f64;
/// Results below this may be flushed to 0 by underflow of an intermediate result.
const TINY: f64 = 1e-36;

/// A value and a bound on its absolute error.
#[derive(Clone, Copy, Debug)]
pub struct Approx {
    pub value: f64,
    pub error: f64,
}

impl Approx {
    pub fn exact(value: f64) -> Approx {
        Approx { value, error: 0.0 }
    }

    /// Far from overflow: expressions of random numbers may leave the range of f32.
    fn is_bounded(&self) -> bool {
        self.value.abs() + self.error < 1e37
    }

    /// Nothing is known of what follows from a value that may overflow.
    fn in_range(self) -> Approx {
        Approx { error: if self.is_bounded() { self.error } else { f64::INFINITY }, ..self }
    }
}

/// A row of an operand.
pub fn row(case: &Case, param: ParamId, i: usize) -> Vec<f64> {
    match &case.operands[param] {
        OperandData::Rows(r) => r.row(i).iter().map(|v| f64::from(*v)).collect(),
        o => panic!("not rows: {o:?}"),
    }
}

fn expr(case: &Case, e: &Expr, n: usize, i: usize) -> Vec<Approx> {
    match e {
        Expr::Acc(_) => panic!("accumulators are tested with products"),
        Expr::Rows { param, start } => row(case, *param, i)[*start..start + n].iter().copied().map(Approx::exact).collect(),
        Expr::Vector(param) => {
            let OperandData::Vector(v) = &case.operands[*param] else { panic!("not a vector") };
            (0..n).map(|j| Approx::exact(v[j % v.len()].into())).collect()
        }
        Expr::Const(c) => vec![Approx::exact(c.get().into()); n],
        Expr::Unary(op, x) => expr(case, x, n, i).into_iter().map(|x| of_unary(*op, x)).collect(),
        Expr::Binary(op, a, b) => {
            let (a, b) = (expr(case, a, n, i), expr(case, b, n, i));
            a.into_iter().zip(b).map(|(a, b)| of_binary(*op, a, b)).collect()
        }
        Expr::Normalize(norm, x) => {
            let x = expr(case, x, n, i);
            x.chunks(norm.width).flat_map(|run| of_norm(norm, run)).collect()
        }
        Expr::Rope { head_dim, table, x } => {
            let (mut x, table) = (expr(case, x, n, i), row(case, *table, i));
            x.chunks_mut(*head_dim).for_each(|head| of_rope(head, &table));
            x
        }
    }
}

/// The function in f64; the evaluator's, but for one whose definition cancels.
fn reference(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::GeluTanh => x / (1.0 + (-2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).exp()),
        _ => unary(op, x),
    }
}

fn of_unary(op: UnaryOp, x: Approx) -> Approx {
    let f = |v: f64| reference(op, v);
    let value = f(x.value);
    let moved = (f(x.value + x.error) - value).abs().max((f(x.value - x.error) - value).abs());
    // e^x is 2^(x·log₂e): the rounded exponent moves it by |x| units relatively.
    let size = x.value.abs();
    let own = match op {
        UnaryOp::Neg | UnaryOp::Relu => 0.0,
        UnaryOp::Exp => (3.0 + size) * value.abs() * ULP,
        UnaryOp::Sigmoid | UnaryOp::Silu => (6.0 + size) * value.abs() * ULP,
        // 2·sigmoid(2x) − 1 from |x| = 0.25 on, where tanh is 0.245: four units of a number below 2.
        UnaryOp::Tanh => 32.0 * value.abs() * ULP,
        // 1 + erf: absolutely as good as erf, 1.5e-7 and a few units.
        UnaryOp::Gelu => 0.5 * size * (1.5e-7 + 8.0 * ULP),
        UnaryOp::GeluTanh => (8.0 + 4.0 * (1.6 * (size + 0.045 * size.powi(3)))) * value.abs() * ULP,
    };
    // Near a maximum of |f′| the ends of the interval may underestimate; twice is ample for these functions.
    Approx { value, error: 2.0 * moved + own + TINY }.in_range()
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

/// A normalized run.
pub fn of_norm(norm: &Norm, x: &[Approx]) -> Vec<Approx> {
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

/// Checks what a pointwise segment stored.
pub fn check_segment(case: &Case, s: &Segment, got: &[OperandData]) {
    for i in 0..case.m() {
        let values = expr(case, &s.expr, s.n, i);
        match s.store {
            Store::Rows { param, start } => check_row(case, &values, got, param, i, start),
            Store::KvKey(p) | Store::KvValue(p) => check_cached(case, &values, got, p, i, matches!(s.store, Store::KvKey(_))),
        }
    }
}

/// Checks columns `start..` of row `i` of an operand.
pub fn check_row(case: &Case, values: &[Approx], got: &[OperandData], param: ParamId, i: usize, start: usize) {
    let (OperandData::Rows(rows), ParamKind::Rows { elem, .. }) = (&got[param], &case.kernel.params[param].kind) else {
        panic!("not rows")
    };
    for (j, a) in values.iter().enumerate().filter(|(_, a)| a.is_bounded()) {
        check(a, rows.row(i)[start + j].into(), float_error(a, *elem), || {
            format!("row {i}, column {j} of operand {param}\n{}", case.text())
        });
    }
}

/// What storing may add.
fn float_error(a: &Approx, elem: RowElem) -> Option<f64> {
    let size = a.value.abs() + a.error;
    match elem {
        RowElem::F16 => (size < 65504.0).then_some(size / 2048.0 + 2f64.powi(-25)),
        RowElem::Bf16 => Some(size / 256.0),
        _ => Some(ULP * size + 1e-44),
    }
}

/// `rounding`: `None` for values that may overflow their storage.
fn check(a: &Approx, got: f64, rounding: Option<f64>, place: impl Fn() -> String) {
    let Some(rounding) = rounding else { return };
    assert!((got - a.value).abs() <= a.error + rounding, "{got}, expected {a:?} within {rounding:e}: {}", place());
}

fn check_cached(case: &Case, values: &[Approx], got: &[OperandData], param: ParamId, i: usize, key: bool) {
    let OperandData::Kv(state) = &got[param] else { panic!("not a state") };
    let (seq, position, d) = (case.batch.seqs[i], case.batch.positions[i] as usize, state.spec.head_dim);
    let read = |s: &KvState, h| if key { s.key(seq, position, h) } else { s.value(seq, position, h) }.expect("stored");
    for (h, head) in values.chunks(d).enumerate() {
        if !head.iter().all(Approx::is_bounded) {
            continue;
        }
        let amax = head.iter().fold(0f64, |m, a| m.max(a.value.abs() + a.error));
        for (j, (a, got)) in head.iter().zip(read(state, h)).enumerate() {
            let rounding = match state.spec.dtype {
                KvDType::F32 => float_error(a, RowElem::F32),
                KvDType::F16 => float_error(a, RowElem::F16),
                KvDType::Bf16 => float_error(a, RowElem::Bf16),
                KvDType::Int8 => Some(amax / 127.0 * (0.5 + 1e-3) + a.error),
            };
            check(a, got, rounding, || format!("token {i}, head {h}, element {j} of the cache ({})\n{}", state.spec, case.text()));
        }
    }
}
