//! SparseGPT: columns are pruned from left to right, and later ones make up for the errors of earlier ones.
//!
//! Frantar and Alistarh 2023, arXiv 2301.00774. Weights are chosen for 128 columns at a time (of tuples: for each) by
//! the error that a weight leaves once all columns after it have made up for it, `wₖ²/[H⁻¹]ₖₖ`, and here within a row,
//! so that rows do not depend on each other. Computed as LDLQ ([`super::cholesky`]), whose weight `Dₖ` is `1/[H⁻¹]ₖₖ`
//! of the columns that are left. Where products of inputs are not known, rows are pruned by Wanda.

use super::cholesky::Feedback;
use super::job::Needs;
use super::lanes::{LANES, Lanes, add};
use super::pruner::{Dense, Pruned, Pruner, least};
use super::wanda::WANDA;

pub(super) const SPARSEGPT: Pruner = Pruner {
    name: "sparsegpt",
    about: "weights by the error that is left once later columns have made up for them, which they do",
    source: "Frantar and Alistarh 2023, arXiv 2301.00774, by row",
    needs: Needs::Products,
    prepare: Some(|_, products| feedback(products)),
    by_rows: false,
    rows,
};

/// Columns for which weights are chosen together.
pub(super) const BLOCK: usize = 128;

fn feedback(products: Vec<f64>) -> Feedback {
    let order = (0..products.len().isqrt()).collect();
    Feedback::in_order(products, order)
}

/// Prunes rows in the order of the feedback's columns.
pub(super) fn rows(dense: &Dense<'_>) -> Pruned {
    let Some(feedback) = dense.feedback else { return (WANDA.rows)(dense) };
    let mut out = Pruned { x: vec![0.0; dense.x.len()], zeros: vec![false; dense.x.len()] };
    let size = LANES * dense.k;
    for ((x, to), zeros) in dense.x.chunks(size).zip(out.x.chunks_mut(size)).zip(out.zeros.chunks_mut(size)) {
        let lanes = Lanes { x, k: dense.k, errors: Vec::with_capacity(dense.k) };
        prune(lanes, feedback, dense, (to, zeros));
    }
    out
}

/// Prunes up to 16 rows.
fn prune(mut lanes: Lanes<'_>, feedback: &Feedback, dense: &Dense<'_>, (out, zeros): (&mut [f32], &mut [bool])) {
    let k = lanes.k;
    let compared = dense.sparsity.compared(BLOCK);
    for (at, columns) in feedback.order().chunks(compared).enumerate() {
        let first = at * compared;
        let to = first + columns.len();
        // Values that make up for the columns before the block.
        let mut targets: Vec<[f32; LANES]> = columns.iter().map(|c| lanes.column(*c)).collect();
        for (i, target) in targets.iter_mut().enumerate() {
            add(target, &lanes.errors, &feedback.of(first + i)[..first]);
        }
        let left = made_up(&lanes, &targets, feedback, (first, columns));
        for (r, zeros) in zeros.chunks_mut(k).enumerate() {
            let cost = |i: usize| feedback.weight(first + i) * left[i][r] * left[i][r];
            let costs = (0..columns.len()).map(|i| (cost(i), i)).collect();
            least(costs, dense.sparsity.zeros(first, to)).for_each(|i| zeros[columns[i]] = true);
        }
        for (i, column) in columns.iter().enumerate() {
            let (mut target, mut error) = (targets[i], lanes.column(*column));
            add(&mut target, &lanes.errors[first..], &feedback.of(first + i)[first..]);
            for (r, zeros) in zeros.chunks(k).enumerate() {
                let value = if zeros[*column] { 0.0 } else { target[r] };
                out[r * k + column] = value;
                error[r] -= value;
            }
            lanes.errors.push(error);
        }
    }
}

/// The columns of a block from the `first`-th on, once all of them have made up for the columns before:
/// `targets` are the values by the errors of these alone.
fn made_up(
    lanes: &Lanes<'_>,
    targets: &[[f32; LANES]],
    feedback: &Feedback,
    (first, columns): (usize, &[usize]),
) -> Vec<[f32; LANES]> {
    let (mut left, mut errors) = (targets.to_vec(), Vec::with_capacity(columns.len()));
    for (i, (left, column)) in left.iter_mut().zip(columns).enumerate() {
        add(left, &errors, &feedback.of(first + i)[first..]);
        let mut error = lanes.column(*column);
        error.iter_mut().zip(left.iter()).for_each(|(w, t)| *w -= t);
        errors.push(error);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::sparsity::Sparsity;
    use crate::method::testing::{hessian, random};

    /// SparseGPT as it was published, but by row: the inverse of the damped means, from which columns that are done are
    /// taken out.
    fn published(x: &[f32], h: &[f64], sparsity: Sparsity) -> Vec<f64> {
        let k = x.len();
        let mut h = h.to_vec();
        let more = 0.01 * (0..k).map(|i| h[i * k + i]).sum::<f64>() / k as f64;
        (0..k).for_each(|i| h[i * k + i] += more);
        let mut w: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
        let block = sparsity.compared(BLOCK);
        for first in (0..k).step_by(block) {
            let to = (first + block).min(k);
            let diagonal: Vec<f64> = (first..to).map(|i| inverse(&h, k, i)[0]).collect();
            let mut order: Vec<usize> = (first..to).collect();
            order.sort_by(|a, b| {
                let cost = |i: &usize| w[*i] * w[*i] / diagonal[i - first];
                cost(a).total_cmp(&cost(b))
            });
            order.truncate(sparsity.zeros(first, to));
            for i in (first..to).filter(|i| order.contains(i)) {
                let row = inverse(&h, k, i);
                let error = w[i] / row[0];
                (i..k).for_each(|j| w[j] -= error * row[j - i]);
                w[i] = 0.0;
            }
        }
        w
    }

    /// Row 0 of the inverse of the means of the columns from `i` on, by conjugate gradients.
    fn inverse(h: &[f64], k: usize, i: usize) -> Vec<f64> {
        let n = k - i;
        let times = |v: &[f64]| -> Vec<f64> {
            (0..n).map(|a| (0..n).map(|b| h[(a + i) * k + b + i] * v[b]).sum::<f64>()).collect()
        };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (mut x, mut r) = (vec![0f64; n], vec![0f64; n]);
        r[0] = 1.0;
        let mut p = r.clone();
        for _ in 0..20 * n {
            let hp = times(&p);
            let (before, step) = (dot(&r, &r), dot(&r, &r) / dot(&p, &hp));
            (0..n).for_each(|j| x[j] += step * p[j]);
            (0..n).for_each(|j| r[j] -= step * hp[j]);
            let after = dot(&r, &r);
            if after < 1e-26 {
                break;
            }
            (0..n).for_each(|j| p[j] = r[j] + after / before * p[j]);
        }
        x
    }

    #[test]
    fn weights_are_those_of_the_published_algorithm() {
        for (sparsity, k) in
            [(Sparsity::HALF, 150), (Sparsity::Tuples { kept: 2, of: 4 }, 66), (Sparsity::Percent(70), 40)]
        {
            let (x, h) = (random(3, 5 * k), hessian(k, 0.3));
            let feedback = feedback(h.clone());
            let importance = vec![1.0; k];
            let dense = Dense { x: &x, k, sparsity, importance: &importance, feedback: Some(&feedback) };
            let found = rows(&dense);
            for (ours, w) in found.x.chunks(k).zip(x.chunks(k)) {
                let theirs = published(w, &h, sparsity);
                for (ours, theirs) in ours.iter().zip(&theirs) {
                    assert!((f64::from(*ours) - theirs).abs() < 1e-4, "{sparsity}: {ours}, as published {theirs}");
                }
            }
        }
    }
}
