//! Bounds of windows of keys, and the windows that queries select by them.

use super::select::best;
use super::{Batch, EvalError, KvState, RowValues};
use crate::state::FixedState;

/// The least and the largest value of each column in a token's window of `width` tokens so far: `[T, 2 · columns]`.
pub(crate) fn bounds_of_windows(state: &mut FixedState, batch: &Batch, x: &[Vec<f64>], width: usize) -> RowValues {
    let token = |(t, row): (usize, &Vec<f64>)| {
        let kept = state.of(batch.seqs[t]);
        let (least, most) = kept.split_at_mut(row.len());
        let begins = (batch.positions[t].max(0) as usize).is_multiple_of(width);
        for (i, x) in row.iter().enumerate() {
            least[i] = if begins { *x } else { x.min(least[i]) };
            most[i] = if begins { *x } else { x.max(most[i]) };
        }
        kept.to_vec()
    };
    x.iter().enumerate().map(token).collect()
}

/// For each token and KV head the positions of the tokens of `windows` windows, with the highest scores among those
/// before the token's own, and of its own up to itself, ascending, then −1. A row of the cache has the least and the
/// largest elements of the keys of a window.
pub(crate) fn select_windows(
    bounds: &KvState,
    batch: &Batch,
    q: &[Vec<f64>],
    (kv_heads, windows): (usize, usize),
) -> Result<RowValues, EvalError> {
    batch.check()?;
    let (every, d) = (bounds.spec.every, bounds.spec.value_dim / (2 * kv_heads));
    let token = |t: usize| {
        let (seq, position) = (batch.seqs[t], batch.positions[t].max(0) as usize);
        let before = position / every;
        let rows: Vec<Vec<f64>> =
            (0..before).map(|w| bounds.value(seq, (w + 1) * every - 1, 0)).collect::<Result<_, _>>()?;
        let of_head = |head: usize| {
            let group = q[t].len() / kv_heads;
            let queries = &q[t][head * group..][..group];
            let score = |row: &Vec<f64>| {
                let half = |largest: bool| &row[usize::from(largest) * kv_heads * d + head * d..][..d];
                let term = |(i, q): (usize, &f64)| q * half(*q >= 0.0)[i % d];
                queries.iter().enumerate().map(term).sum::<f64>()
            };
            let scores: Vec<f64> = rows.iter().map(score).collect();
            let chosen = best(&scores, windows.min(before)).into_iter().map(|window| window as usize);
            let chosen = chosen.flat_map(|w| w * every..(w + 1) * every);
            let mut tokens: Vec<f64> = chosen.chain(before * every..position + 1).map(|n| n as f64).collect();
            tokens.resize((windows + 1) * every, -1.0);
            tokens
        };
        Ok((0..kv_heads).flat_map(of_head).collect())
    };
    (0..batch.seqs.len()).map(token).collect()
}
