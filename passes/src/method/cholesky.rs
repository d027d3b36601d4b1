//! How an error of one column is made up for by the columns that are rounded after it.
//!
//! For the means `H` of products of two inputs, damped, let `H = R·Rᵀ` with an upper triangle `R`. Then
//! `(ŵ − w)·H·(ŵ − w)ᵀ = Σₖ Dₖ·(ŵₖ − tₖ)²` with `Dₖ = Rₖₖ²` and `tₖ = wₖ + Σ_{j<k} (wⱼ − ŵⱼ)·Rⱼₖ/Rₖₖ`: columns are
//! rounded one after the other, each to the value that is nearest to `tₖ`. This is LDLQ (QuIP, Chee et al. 2023, arXiv
//! 2307.13304), which gives the codes of GPTQ (Frantar et al. 2022, arXiv 2210.17323) and needs no inverse.
//!
//! Every element is computed by the same operations in the same order, on any number of threads.

use rayon::prelude::*;

/// Part of the mean of the diagonal that is added to it, as in GPTQ.
const DAMPING: f64 = 0.01;
/// Columns that are eliminated together.
const BLOCK: usize = 64;
/// Columns of a row that are updated together.
const STRIP: usize = 256;

/// The triangle by rows: row `k` has the factors of the errors of the columns before it, in the order in which columns
/// are rounded.
pub struct Feedback {
    n: usize,
    order: Vec<usize>,
    factors: Vec<f32>,
    /// `Dₖ`.
    weights: Vec<f32>,
}

impl Feedback {
    /// By the means of products of two columns, `[n, n]`: the columns of the largest mean squares first, which then are
    /// made up for by all others.
    pub fn new(hessian: Vec<f64>) -> Feedback {
        let order = by_mean_square(&hessian, hessian.len().isqrt());
        Feedback::in_order(hessian, order)
    }

    /// The same with the columns in another order.
    pub fn in_order(hessian: Vec<f64>, order: Vec<usize>) -> Feedback {
        let n = order.len();
        let c = triangle(hessian, &order);
        let mut factors = vec![0f32; n * n];
        factors.par_chunks_mut(n.max(1)).enumerate().for_each(|(k, row)| {
            let own = c[(n - 1 - k) * n + n - 1 - k];
            row[..k].iter_mut().enumerate().for_each(|(j, f)| *f = (c[(n - 1 - j) * n + n - 1 - k] / own) as f32);
        });
        let weights = (0..n).map(|k| c[(n - 1 - k) * n + n - 1 - k].powi(2) as f32).collect();
        Feedback { n, order, factors, weights }
    }

    /// The columns in the order in which they are rounded.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// Weight of the squared error of the `k`-th column, once the columns before it are made up for.
    pub fn weight(&self, k: usize) -> f32 {
        self.weights[k]
    }

    /// Factors of the errors of the columns that come before the `k`-th one, in their order.
    pub fn of(&self, k: usize) -> &[f32] {
        &self.factors[k * self.n..][..k]
    }
}

/// The triangle `R` for columns in this order, in reverse: a lower one.
fn triangle(hessian: Vec<f64>, order: &[usize]) -> Vec<f64> {
    let n = order.len();
    let of_row = |i: &usize| order.iter().map(|j| hessian[i * n + j]).collect::<Vec<_>>();
    let mut c: Vec<f64> = order.iter().flat_map(of_row).collect();
    drop(hessian);
    damp(&mut c, n);
    c.reverse();
    factor(&mut c, n);
    c
}

/// Columns by descending mean square.
fn by_mean_square(h: &[f64], n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| h[b * n + b].total_cmp(&h[a * n + a]).then(a.cmp(b)));
    order
}

/// Makes a matrix positive definite: columns without inputs get an own one.
fn damp(h: &mut [f64], n: usize) {
    let mean = (0..n).map(|i| h[i * n + i]).sum::<f64>() / n.max(1) as f64;
    let more = if mean > 0.0 && mean.is_finite() { mean * DAMPING } else { 1.0 };
    (0..n).for_each(|i| h[i * n + i] += more);
}

/// The lower triangle `C` of `C·Cᵀ`, in place; numbers above the diagonal stay.
fn factor(c: &mut [f64], n: usize) {
    for from in (0..n).step_by(BLOCK) {
        let to = (from + BLOCK).min(n);
        let (above, below) = c.split_at_mut(to * n);
        let own = &mut above[from * n..];
        diagonal(own, n, from);
        let own = &*own;
        // The panel: rows below, divided by the triangle on the diagonal.
        below.par_chunks_mut(n).for_each(|row| solve(row, own, n, from));
        // Its transpose, by which the rest is updated in strips.
        let width = to - from;
        let rest = n - to;
        let mut panel = vec![0f64; width * rest];
        for (i, row) in below.chunks(n).enumerate() {
            (0..width).for_each(|p| panel[p * rest + i] = row[from + p]);
        }
        below.par_chunks_mut(n).enumerate().for_each(|(i, row)| {
            let (left, right) = row.split_at_mut(to);
            update(&mut right[..=i], &left[from..], &panel, rest);
        });
    }
}

/// The triangle of rows `from..` and columns `from..`, which the columns before have updated.
fn diagonal(rows: &mut [f64], n: usize, from: usize) {
    for i in 0..rows.len() / n {
        let (done, rest) = rows.split_at_mut(i * n);
        let row = &mut rest[..n];
        solve(row, done, n, from);
        let sum = row[from..from + i].iter().fold(row[from + i], |s, v| s - v * v);
        // (Rounding may leave nothing of a very small one.)
        row[from + i] = if sum > 0.0 { sum.sqrt() } else { f64::MIN_POSITIVE.sqrt() };
    }
}

/// The columns `from..` of a row, by the triangle of the rows `done`.
fn solve(row: &mut [f64], done: &[f64], n: usize, from: usize) {
    for (p, of) in done.chunks(n).enumerate() {
        let (before, at) = row[from..].split_at_mut(p);
        let sum = before.iter().zip(&of[from..]).fold(at[0], |s, (a, b)| s - a * b);
        at[0] = sum / of[from + p];
    }
}

/// `row −= factors·panel`.
fn update(row: &mut [f64], factors: &[f64], panel: &[f64], width: usize) {
    for (at, strip) in row.chunks_mut(STRIP).enumerate() {
        for (f, panel) in factors.iter().zip(panel.chunks(width.max(1))) {
            let panel = &panel[at * STRIP..][..strip.len()];
            strip.iter_mut().zip(panel).for_each(|(v, p)| *v -= f * p);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::testing::random;

    /// Means of products of some random inputs.
    fn hessian(n: usize) -> Vec<f64> {
        let mut h = vec![0f64; n * n];
        for sample in random(1, 2 * n * (n + 1)).chunks_exact(n + 1) {
            let x: Vec<f64> = sample[..n].iter().map(|x| f64::from(x + sample[n])).collect();
            (0..n).for_each(|i| (0..n).for_each(|j| h[i * n + j] += x[i] * x[j] / (2 * n) as f64));
        }
        h
    }

    /// (ŵ − w)·H·(ŵ − w)ᵀ is the sum of the columns' own errors.
    #[test]
    fn errors_are_a_sum_over_columns() {
        for n in [1, 5, 64, 65, 130, 300] {
            let h = hessian(n);
            let f = Feedback::new(h.clone());
            let mut damped = h;
            damp(&mut damped, n);
            let w: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7 + 0.3).sin()).collect();
            let q: Vec<f64> = w.iter().map(|w| (w * 3.0).round() / 3.0).collect();
            let e: Vec<f64> = w.iter().zip(&q).map(|(w, q)| w - q).collect();
            let whole: f64 = (0..n).map(|i| (0..n).map(|j| e[i] * damped[i * n + j] * e[j]).sum::<f64>()).sum::<f64>();
            let of_column = |(k, c): (usize, &usize)| {
                let before = f.of(k).iter().zip(f.order()).map(|(f, j)| f64::from(*f) * e[*j]);
                f64::from(f.weight(k)) * (q[*c] - w[*c] - before.sum::<f64>()).powi(2)
            };
            let sum: f64 = f.order().iter().enumerate().map(of_column).sum();
            assert!((sum - whole).abs() < 1e-4 * whole, "{n}: {sum} of {whole}");
            let descends = f.order().windows(2).all(|w| damped[w[0] * n + w[0]] >= damped[w[1] * n + w[1]]);
            assert!(descends);
        }
    }

    #[test]
    fn inputs_of_zeros_have_no_feedback() {
        let f = Feedback::new(vec![0.0; 9]);
        assert_eq!((f.of(2), f.order()), (&[0.0, 0.0][..], &[0, 1, 2][..]));
    }
}
