//! The rows of a cache that a token's queries select.

use super::{Batch, EvalError, KvState, RowValues};
use crate::kv::KvSpec;
use std::cmp::Ordering;

/// For each token the numbers of the `top` rows of `kv` with the highest scores among those that it
/// sees, ascending, then −1: `[T, top]`. The score of a row is the sum over heads of a head's weight in
/// `w` times its query's product with the row, or 0 where that is negative. Equal scores go by number,
/// lowest first; NaN comes after all numbers. `q`: `[T, heads · width]`.
pub(crate) fn select(kv: &KvState, batch: &Batch, [q, w]: [&RowValues; 2], top: usize) -> Result<RowValues, EvalError> {
    let (width, tokens) = (kv.spec.value_dim, batch.seqs.len());
    let fits = |(q, w): (&Vec<f64>, &Vec<f64>)| !w.is_empty() && q.len() == w.len() * width;
    if kv.spec.misread().is_some() || [q, w].iter().any(|x| x.len() != tokens) || !q.iter().zip(w).all(fits) {
        return Err(EvalError::malformed("", format!("a selection from {}", kv.spec)));
    }
    batch.check()?;
    let one = |i: usize| {
        let of_row = |at: usize| kv.value(batch.seqs[i], at, 0).map(|row| score(&row, &q[i], &w[i]));
        let rows = seen(&kv.spec, batch.positions[i].max(0) as usize);
        let scores = rows.map(of_row).collect::<Result<Vec<f64>, EvalError>>()?;
        Ok(best(&scores, top))
    };
    (0..tokens).map(one).collect()
}

/// Positions of the rows that a token at `position` sees.
fn seen(spec: &KvSpec, position: usize) -> impl Iterator<Item = usize> {
    spec.sees(position, None).filter(move |p| spec.row(*p).is_some())
}

fn score(row: &[f64], q: &[f64], w: &[f64]) -> f64 {
    let heads = q.chunks(row.len()).zip(w);
    heads.map(|(q, w)| w * positive(super::dot(q, row))).sum()
}

/// `max(x, 0)`, which keeps NaN.
fn positive(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// The numbers of the `top` highest scores, ascending, then −1.
pub(super) fn best(scores: &[f64], top: usize) -> Vec<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // Stable, so equal scores stay in the order of their numbers; `total_cmp` would order zeros by sign.
    order.sort_by(|a, b| match (scores[*a], scores[*b]) {
        (a, b) if a.is_nan() || b.is_nan() => a.is_nan().cmp(&b.is_nan()),
        (a, b) => b.partial_cmp(&a).unwrap_or(Ordering::Equal),
    });
    order.truncate(top);
    order.sort_unstable();
    let mut out: Vec<f64> = order.into_iter().map(|n| n as f64).collect();
    out.resize(top, -1.0);
    out
}

/// Positions of the rows that a selection names, among those that a token at `position` sees: numbers
/// before the first that is none of them, which ends a selection.
pub(crate) fn selected(kv: &KvState, position: usize, selection: &[f64]) -> Vec<usize> {
    let seen: Vec<usize> = seen(&kv.spec, position).collect();
    let at = |n: &f64| if *n >= 0.0 { seen.get(*n as usize).copied() } else { None };
    selection.iter().map_while(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::KvDType;

    fn cache(every: usize, rows: &[[f64; 2]]) -> KvState {
        let spec = KvSpec {
            dtype: KvDType::F32,
            kv_heads: 1,
            key_dim: 2,
            value_dim: 2,
            latent: true,
            window: None,
            every,
            first: None,
        };
        let mut kv = KvState::new(spec);
        rows.iter().enumerate().for_each(|(p, row)| kv.store_value(0, p, row));
        kv
    }

    fn at(position: i32, kv: &KvState, q: &[f64], w: &[f64], top: usize) -> Vec<f64> {
        let batch = Batch::single(&[0], position);
        select(kv, &batch, [&vec![q.to_vec()], &vec![w.to_vec()]], top).unwrap().remove(0)
    }

    /// The second of two heads counts against a row.
    #[test]
    fn by_hand() {
        let kv = cache(1, &[[1.0, 0.0], [3.0, 2.0], [2.0, -5.0], [4.0, 1.0]]);
        // Scores: 1, 3 − 2·2 = −1, 2 (the second product is negative), 4 − 2·1 = 2.
        let (q, w) = ([1.0, 0.0, 0.0, 1.0], [1.0, -2.0]);
        assert_eq!(at(3, &kv, &q, &w, 2), [2.0, 3.0]);
        assert_eq!(at(3, &kv, &q, &w, 3), [0.0, 2.0, 3.0]);
        // The first of equal ones is taken.
        assert_eq!(at(3, &kv, &q, &w, 1), [2.0]);
        // A token sees nothing after it, and all there is if that is no more than `top`.
        assert_eq!(at(1, &kv, &q, &w, 3), [0.0, 1.0, -1.0]);
    }

    #[test]
    fn zeros_of_both_signs_are_equal_and_nan_comes_last() {
        assert_eq!(best(&[-0.0, 0.0, -1.0], 1), [0.0]);
        assert_eq!(best(&[f64::NAN, f64::NEG_INFINITY, 1.0], 2), [1.0, 2.0]);
        assert_eq!(best(&[f64::NAN, -f64::NAN], 1), [0.0]);
    }

    /// Numbers are those of rows, where a cache has a row for two tokens.
    #[test]
    fn rows_of_several_tokens_are_selected_by_their_number() {
        let kv = cache(2, &[[9.0, 0.0], [1.0, 0.0], [9.0, 0.0], [2.0, 0.0], [9.0, 0.0]]);
        assert_eq!(at(4, &kv, &[1.0, 0.0], &[1.0], 1), [1.0]);
        assert_eq!(at(2, &kv, &[1.0, 0.0], &[1.0], 2), [0.0, -1.0]);
        assert_eq!(at(0, &kv, &[1.0, 0.0], &[1.0], 1), [-1.0]);
        assert_eq!(selected(&kv, 4, &[0.0, 1.0, -1.0, 0.0]), [1, 3]);
        assert_eq!(selected(&kv, 2, &[0.0, 1.0, 0.0]), [1]);
    }

    #[test]
    fn widths_that_do_not_fit_are_refused() {
        let (kv, batch) = (cache(1, &[[1.0, 0.0]]), Batch::single(&[0], 0));
        let of = |q: usize, w: usize| select(&kv, &batch, [&vec![vec![0.0; q]], &vec![vec![0.0; w]]], 1).is_ok();
        assert!(of(4, 2) && !of(3, 2) && !of(4, 1) && !of(0, 0));
    }
}
