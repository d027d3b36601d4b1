//! Convolutions over time and linear recurrences: what they compute, token by token.

use super::state::FixedState;

/// What a recurrence adds to its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    /// The value.
    Plain,
    /// What the value differs in from what the state holds for the key.
    Rule,
}

/// Each row's channels convolved with those of the rows before it in its sequence. `taps`: `[width,
/// channels]`, the last row being that of the token itself. The state has the last inputs, the
/// oldest first.
pub(crate) fn convolve(state: &mut FixedState, seqs: &[usize], x: &[Vec<f64>], taps: &[f64]) -> Vec<Vec<f64>> {
    let channels = state.spec.cols;
    let token = |(row, seq): (&Vec<f64>, &usize)| {
        let kept = state.of(*seq);
        let inputs = || kept.iter().chain(row);
        let out = (0..channels).map(|c| inputs().zip(taps).skip(c).step_by(channels).map(|(x, w)| x * w).sum());
        let out: Vec<f64> = out.collect();
        kept.copy_within(channels.., 0);
        let last = kept.len() - channels;
        kept[last..].copy_from_slice(row);
        out
    };
    x.iter().zip(seqs).map(token).collect()
}

/// A linear recurrence over matrices `S` `[rows, cols]`, one per head: for each token, with query
/// and key of the head's group, `S ← a·S + k ⊗ β·(v − [delta] kᵀ(a·S))`, then `y = qᵀS`.
///
/// `inputs`: rows of queries, keys, values, decays (one per head, or per row of each) and rates.
pub(crate) fn recur(
    state: &mut FixedState,
    seqs: &[usize],
    [q, k, v, decay, rate]: &[Vec<Vec<f64>>; 5],
    delta: Delta,
) -> Vec<Vec<f64>> {
    let (heads, rows, cols) = (state.spec.heads, state.spec.rows, state.spec.cols);
    let mut out = vec![];
    for (t, seq) in seqs.iter().enumerate() {
        let matrices = state.of(*seq);
        let mut y = vec![];
        for (h, s) in matrices.chunks_mut(rows * cols).enumerate() {
            let group = h / (heads / (q[t].len() / rows));
            let (q, k) = (&q[t][group * rows..][..rows], &k[t][group * rows..][..rows]);
            let a = |i: usize| if decay[t].len() == heads { decay[t][h] } else { decay[t][h * rows + i] };
            s.chunks_mut(cols).enumerate().for_each(|(i, s)| s.iter_mut().for_each(|s| *s *= a(i)));
            for j in 0..cols {
                let column = |x: &[f64], s: &[f64]| (0..rows).map(|i| x[i] * s[i * cols + j]).sum::<f64>();
                let held = if delta == Delta::Rule { column(k, s) } else { 0.0 };
                let new = rate[t][h] * (v[t][h * cols + j] - held);
                (0..rows).for_each(|i| s[i * cols + j] += k[i] * new);
                y.push(column(q, s));
            }
        }
        out.push(y);
    }
    out
}
