//! Attention in which distances have keys and queries of their own (DeBERTa, arXiv 2006.03654): a score is
//! the sum of the products of query and key, of the query and the distance's key, and of the distance's
//! query and the key.

use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{Kind, Part};
use crate::config::common::Heads;
use llmcc_ir::graph::{F32, Op, Value};

/// Rows that keys and queries of distances are made of.
pub(crate) const NEAR: Part = Part("near");
/// Norm of these.
pub(crate) const NEAR_NORM: Part = Part("near.norm");
/// Makes keys of them.
pub(crate) const NEAR_K: Part = Part("near.k");
/// Makes queries of them.
pub(crate) const NEAR_Q: Part = Part("near.q");

/// Settings of distances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Near {
    /// Rows for distances either way.
    pub span: usize,
    /// Distances up to half of `span` have a row each, and those up to this share the others; without it all
    /// have one.
    pub most: Option<usize>,
    /// Rows are normalized as in the layers, with so much added to the mean square.
    pub norm: Option<f32>,
    /// Queries and keys of distances use the tokens' matrices.
    pub shared: bool,
    /// Its own matrix of keys has a bias too.
    pub key_bias: bool,
}

/// A matrix and its bias.
type Linear = (Value, Option<Value>);

impl Near {
    /// How far along the buckets a distance is that has none of its own, in units of them.
    pub(crate) fn beyond(half: usize, most: usize, far: usize) -> f64 {
        let ratio = |a: usize| libm::log(a as f64 / half as f64);
        ratio(far) / ratio(most - 1) * (half - 1) as f64
    }

    /// The row of a key so far before the query.
    fn row(&self, before: i64) -> usize {
        let (span, half, far) = (self.span as i64, self.span / 2, before.unsigned_abs() as usize);
        let bucket = match self.most {
            Some(most) if far > half => before.signum() * (Near::beyond(half, most, far).ceil() as i64 + half as i64),
            _ => before,
        };
        (bucket + span).clamp(0, 2 * span - 1) as usize
    }

    /// The distance from which on nothing changes, or the longest there is.
    fn reach(&self, longest: usize) -> usize {
        let ends = |far: &usize| self.row(*far as i64) + 1 == 2 * self.span && self.row(-(*far as i64)) == 0;
        (0..longest).find(ends).unwrap_or(longest)
    }

    /// Keys and queries of all distances, `[columns·(2r + 1)]` each, made by the matrices of tokens, or by
    /// some of their own, of `hidden` columns. They are the same for all texts.
    #[track_caller]
    fn tables(&self, f: &mut Draft, tokens: [Linear; 2], columns: usize, hidden: usize) -> [Value; 2] {
        let mut rows = f.weight(NEAR, Kind::Table, &[2 * self.span, hidden]);
        if let Some(eps) = self.norm {
            let gain = f.weight(NEAR_NORM, Kind::Gain, &[hidden]);
            let bias = f.bias(NEAR_NORM, hidden);
            rows = f.op(Op::StandardRows { eps: F32::new(eps) }, &[rows]);
            rows = f.op(Op::ScaleCols, &[rows, gain]);
            rows = f.add(rows, bias);
        }
        let reach = self.reach(f.max_context().saturating_sub(1)) as i64;
        let of_column = |c: usize| (-reach..=reach).map(move |after| (self.row(-after) * columns + c) as f32);
        let order = f.computed("near.order", "$near.order", (0..columns).flat_map(of_column).collect());
        let [queries, keys] = if self.shared {
            tokens
        } else {
            [(NEAR_Q, true), (NEAR_K, self.key_bias)].map(|(part, bias)| {
                let w = f.matrix(part, [columns, hidden]);
                (w, bias.then(|| f.bias(part, columns)))
            })
        };
        [keys, queries].map(|(w, b)| {
            let made = f.op(Op::MulTransposed, &[rows, w]);
            let made = b.map_or(made, |b| f.add(made, b));
            let flat = f.op(Op::Flatten, &[made]);
            f.op(Op::LookUp, &[flat, order])
        })
    }
}

/// Attention of `q` over the state `kv`; `made`: the matrices that queries and keys of tokens are made by.
#[track_caller]
pub(crate) fn attended(
    f: &mut Draft,
    (heads, scale): (Heads, f32),
    near: &Near,
    made: [Linear; 2],
    [q, k, v]: [Value; 3],
    (kv, positions): (Value, Value),
) -> Value {
    let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
    let hidden = f.facts().hidden;
    let [keys, queries] = near.tables(f, made, heads.queries * heads.dim, hidden);
    let op = Op::RelativeAttention { heads: heads.queries, scale: F32::new(scale) };
    f.op(op, &[q, kv, positions, keys, queries])
}

#[cfg(test)]
mod tests {
    use super::Near;

    /// The distances at which buckets begin, computed by Transformers' DeBERTa-v2.
    #[test]
    fn buckets_of_distances() {
        let near = |span, most| Near { span, most, norm: None, shared: true, key_bias: true };
        let begins =
            |near: &Near, until: i64| -> Vec<i64> { (1..until).filter(|d| near.row(*d) != near.row(d - 1)).collect() };
        let small = near(8, Some(24));
        assert_eq!(begins(&small, 24), [1, 2, 3, 4, 5, 8, 13]);
        assert!((1..24).all(|d| small.row(d) + small.row(-d) == 16));
        let large = near(256, Some(512));
        let starts = begins(&large, 512);
        assert_eq!(starts.len(), 255);
        assert_eq!(starts[126..140], [127, 128, 129, 130, 131, 133, 134, 136, 137, 139, 140, 142, 143, 145]);
        assert_eq!((large.row(0), large.row(511), large.row(-511), large.reach(2000)), (256, 511, 1, 512));
        let each = near(8, None);
        assert_eq!([0, 7, 8, 30, -7, -8, -30].map(|d| each.row(d)), [8, 15, 15, 15, 1, 0, 0]);
        assert_eq!((each.reach(100), each.reach(5)), (8, 5));
    }
}
