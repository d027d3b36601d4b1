//! The most probable tokens of a row.

use super::Wanted;
use llmcc_abi::layout::candidate_cols;

/// A row of candidates (see [`TopK`](crate::kernel::TopK)) of the logits `x`; what is not defined is NaN.
pub(super) fn top_k(x: &[f64], k: usize, wanted: Wanted) -> Vec<f64> {
    let mut out = vec![f64::NAN; candidate_cols(k)];
    let count = if wanted.candidates > 1 { k } else { wanted.candidates };
    let mut order: Vec<usize> = (0..x.len()).collect();
    // Stable, so equal logits stay in the order of their ids. `total_cmp` would order NaN by its sign and −0 before 0.
    order.sort_by(|a, b| match (x[*a].is_nan(), x[*b].is_nan()) {
        (false, false) => x[*b].partial_cmp(&x[*a]).unwrap_or(std::cmp::Ordering::Equal),
        (a, b) => b.cmp(&a),
    });
    for (i, id) in order.iter().take(count).enumerate() {
        (out[i], out[k + i]) = (x[*id] + 0.0, *id as f64);
    }
    if let (true, Some(best)) = (wanted.candidates > 1, order.first()) {
        out[2 * k] = x.iter().map(|v| ((v - x[*best]) * f64::from(wanted.scale.get())).exp2()).sum();
    }
    out
}
