//! Numbers of whole rows: their mean squares, and how far their elements are from the mean.

use crate::arch::blocks::lifter::Draft;
use llmcc_ir::graph::{BinaryOp, F32, Op, UnaryOp, Value};
use std::f64::consts::FRAC_1_SQRT_2;

/// The mean of each row of `x`, which has `width` columns: `[M, 1]`.
#[track_caller]
fn mean(f: &mut Draft, x: Value, width: usize) -> Value {
    let ones = f.shared_table("ones", &format!("$ones{width}"), [1, width], vec![1.0; width]);
    let sum = f.matmul(x, ones);
    let part = f.scalar((1.0 / width as f64) as f32);
    f.mul(sum, part)
}

/// The mean square of each row: `[M, 1]`.
#[track_caller]
pub(crate) fn mean_square(f: &mut Draft, x: Value, width: usize) -> Value {
    let squares = f.mul(x, x);
    mean(f, squares, width)
}

/// Each element's excess over `count` standard deviations above the mean of its row, or 0 (Gemma
/// 3n's sparse activations; for normally distributed elements a known part).
#[track_caller]
pub(crate) fn above_deviations(f: &mut Draft, x: Value, count: f32, width: usize) -> Value {
    // Only so much that rows of one number, which are 0 then, are not 0/0.
    let eps = F32::new(f32::MIN_POSITIVE);
    let unit = f.op(Op::Standardize { eps, width }, &[x]);
    // With a deviation σ and u = (x − mean)/σ, whose mean is 0, that of x·u is σ.
    let product = f.mul(x, unit);
    let deviation = mean(f, product, width);
    let count = f.scalar(count);
    let above = f.op(Op::Binary(BinaryOp::Sub), &[unit, count]);
    let above = f.unary(UnaryOp::Relu, above);
    f.op(Op::Combine, &[deviation, above])
}

/// The number of standard deviations below which a part `p`, more than 0 and less than 1, of normally
/// distributed numbers is, to the last bits of f64.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    // Beyond, the part is 0 or 1 in f64.
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..f64::MANTISSA_DIGITS + 8 {
        let middle = 0.5 * (low + high);
        if 0.5 * libm::erfc(-middle * FRAC_1_SQRT_2) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::normal_quantile;

    /// From the tables of any book.
    #[test]
    fn quantiles() {
        for (p, z) in [
            (0.5, 0.0),
            (0.95, 1.644_853_626_951_472_7),
            (0.975, 1.959_963_984_540_054),
            (0.001, -3.090_232_306_167_813_5),
        ] {
            assert!((normal_quantile(p) - z).abs() < 1e-12, "{p}");
        }
    }
}
