//! Values with a bound on the error of computing them in f32, propagated operation by operation.

use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::Norm;

/// One unit in the last place of f32, relative: twice the rounding error.
pub const ULP: f64 = 1.0 / (1 << 23) as f64;
/// Results below this may be flushed to 0 by underflow of an intermediate result.
const TINY: f64 = 1e-36;

/// A value and a bound on its absolute error.
#[derive(Clone, Copy, Debug)]
pub struct Approx {
    /// In f64.
    pub value: f64,
    /// At least 0; infinite where nothing is known.
    pub error: f64,
}

impl Approx {
    /// A value that f32 holds.
    pub fn exact(value: f64) -> Approx {
        Approx { value, error: 0.0 }
    }

    /// Far from overflow: expressions of random numbers may leave the range of f32.
    pub(crate) fn is_bounded(&self) -> bool {
        self.value.abs() + self.error < 1e37
    }

    /// The largest magnitude it may have.
    pub(crate) fn size(&self) -> f64 {
        self.value.abs() + self.error
    }

    /// Nothing is known of results of a value that may overflow.
    fn in_range(self) -> Approx {
        Approx { error: if self.is_bounded() { self.error } else { f64::INFINITY }, ..self }
    }
}

/// The function in f64; the evaluator's, but for one whose definition cancels.
pub fn reference(op: UnaryOp, x: f64) -> f64 {
    match op {
        // 1 + tanh u loses all bits for u < −19; this is the same number.
        UnaryOp::GeluTanh => {
            x / (1.0 + (-2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).exp())
        }
        _ => op.eval(x),
    }
}

/// `own`: the backend's error of the function itself, absolute.
pub(crate) fn of_unary(op: UnaryOp, x: Approx, own: impl Fn(f64, f64) -> f64) -> Approx {
    let f = |v: f64| reference(op, v);
    let value = f(x.value);
    let moved = (f(x.value + x.error) - value).abs().max((f(x.value - x.error) - value).abs());
    // Near a maximum of |f′| the ends of the interval may underestimate; twice is ample for these
    // functions.
    Approx { value, error: 2.0 * moved + own(x.value, value) + TINY }.in_range()
}

pub(crate) fn of_binary(op: BinaryOp, a: Approx, b: Approx) -> Approx {
    let value = op.eval(a.value, b.value);
    let carried = match op {
        BinaryOp::Add | BinaryOp::Sub => a.error + b.error,
        BinaryOp::Mul => a.error * (b.value.abs() + b.error) + a.value.abs() * b.error,
        BinaryOp::Div => (a.error + value.abs() * b.error) / (b.value.abs() - b.error),
        BinaryOp::Max | BinaryOp::Min => a.error.max(b.error),
    };
    Approx { value, error: carried + ULP * (value.abs() + carried) + TINY }.in_range()
}

/// A run less its mean.
fn centered(x: &[Approx]) -> Vec<Approx> {
    let width = x.len() as f64;
    let sum = |of: fn(&Approx) -> f64| x.iter().map(of).sum::<f64>();
    let mean = sum(|x| x.value) / width;
    let error = (sum(|x| x.error) + (width + 4.0) * ULP * sum(Approx::size)) / width;
    x.iter().map(|x| of_binary(BinaryOp::Sub, *x, Approx { value: mean, error })).collect()
}

/// A normalized run.
pub(crate) fn of_norm(norm: &Norm, x: &[Approx]) -> Vec<Approx> {
    let Norm { eps, width: _, center } = *norm;
    let centered = if center { centered(x) } else { x.to_vec() };
    let (x, width) = (&centered, norm.width as f64);
    let squares: f64 = x.iter().map(|x| x.value * x.value).sum();
    let moved: f64 = x.iter().map(|x| 2.0 * x.value.abs() * x.error + x.error * x.error).sum();
    let mean = squares / width + f64::from(eps.get());
    let relative = (moved / width) / mean + (width + 8.0) * ULP;
    let root = mean.sqrt();
    let scale = |x: &Approx| Approx {
        value: x.value / root,
        error: (x.error * (1.0 + relative) + x.value.abs() * (relative + 4.0 * ULP)) / root + TINY,
    };
    x.iter().map(scale).collect()
}

pub(crate) fn of_rope(head: &mut [Approx], table: &[f64]) {
    let half = table.len() / 2;
    for j in 0..half {
        let (a, b, cos, sin) = (head[j], head[j + half], table[j], table[j + half]);
        let rotate = |a: Approx, b: Approx, sign: f64| Approx {
            value: a.value * cos + sign * b.value * sin,
            error: a.error * cos.abs()
                + b.error * sin.abs()
                + 2.0 * ULP * ((a.value * cos).abs() + (b.value * sin).abs())
                + TINY,
        };
        (head[j], head[j + half]) = (rotate(a, b, -1.0), rotate(b, a, 1.0));
    }
}
