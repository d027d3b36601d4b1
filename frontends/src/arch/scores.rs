//! Attention over a state, and what scores get by the distance of their keys.

use super::lifter::Draft;
use super::names::{ATTN_BIAS, ATTN_SINKS, Kind};
use llmcc_ir::graph::{BinaryOp, F32, Op, Value};

/// What is added to scores by the distance of the key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Distance {
    /// Each head a slope (ALiBi, arXiv 2108.12409).
    Slopes {
        /// Of `n` heads the `i`-th has `2^(−max·i/n)`.
        max: f64,
    },
    /// A learned number for each head and bucket, which all layers share (T5, arXiv 1910.10683).
    Buckets(Buckets),
}

/// Buckets of distances, half of them for keys before the query, half for keys after it. In each
/// half, the first half are distances of their own, the others grow by powers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buckets {
    /// All of them.
    pub count: usize,
    /// The distance at which the last one ends that is not for all others.
    pub most: usize,
}

/// The slopes of heads. Of a number that is no power of two, every other one of the next power's
/// comes first, and as many of the rest as are left.
fn slopes(heads: usize, max: f64) -> Vec<f32> {
    let n = heads.next_power_of_two();
    let slope = |i: usize| libm::exp2(-max * i as f64 / n as f64) as f32;
    match n == heads {
        true => (1..=n).map(slope).collect(),
        false => (2..=n).step_by(2).chain((1..=n).step_by(2)).take(heads).map(slope).collect(),
    }
}

impl Buckets {
    /// The bucket of a key so far after the query.
    fn of(self, distance: i64) -> usize {
        let half = self.count / 2;
        let (exact, far) = (half / 2, distance.unsigned_abs() as usize);
        let grown = || {
            let ratio = |a: f64| libm::log(a / exact as f64);
            (ratio(far as f64) / ratio(self.most as f64) * (half - exact) as f64) as usize
        };
        let bucket = if far < exact { far } else { (exact + grown()).min(half.saturating_sub(1)) };
        bucket + if distance > 0 { half } else { 0 }
    }

    /// The distance from which on all keys are in one bucket.
    fn reach(self) -> usize {
        let last = self.count / 2;
        (1..self.most).find(|far| self.of(-(*far as i64)) + 1 == last).unwrap_or(self.most)
    }

    /// Where the numbers of each head and distance are in the table `[count, heads]`.
    fn order(self, heads: usize) -> Vec<f32> {
        let reach = self.reach() as i64;
        let of_head = |h: usize| (-reach..=reach).map(move |d| (self.of(d) * heads + h) as f32);
        (0..heads).flat_map(of_head).collect()
    }
}

/// The operand of attention with what is added.
#[track_caller]
fn bias(f: &mut Draft, of: Distance, heads: usize) -> Value {
    match of {
        Distance::Slopes { max } => f.shared_constant("attn.slopes", "$attention.slopes", slopes(heads, max)),
        Distance::Buckets(buckets) => {
            let table = f.weight(ATTN_BIAS, Kind::Table, &[buckets.count, heads]);
            let table = f.op(Op::Flatten, &[table]);
            let order = f.computed("attn.bias.order", "$attention.buckets", buckets.order(heads));
            f.op(Op::LookUp, &[table, order])
        }
    }
}

/// What becomes of the products of queries and keys.
pub(super) struct Scoring {
    /// Query heads.
    pub heads: usize,
    /// They are multiplied by this.
    pub scale: f32,
    /// They are `cap·tanh(score/cap)`.
    pub softcap: Option<f32>,
    /// A learned sink for each head, one more score.
    pub sinks: bool,
    /// What is added by the distance of the key.
    pub distance: Option<Distance>,
    /// The window is a chunk.
    pub chunked: bool,
    /// Whether a token sees nothing after it.
    pub causal: bool,
}

/// Attention of `q` over the state `kv`.
#[track_caller]
pub(super) fn attended(f: &mut Draft, a: &Scoring, q: Value, kv: Value, positions: Value) -> Value {
    let heads = a.heads;
    // A chunk that no sequence outgrows is none.
    let cut = f.ty(kv).and_then(|t| t.state()?.paged()).is_some_and(|spec| spec.window.is_some());
    let op = Op::Attention {
        heads,
        scale: F32::new(a.scale),
        softcap: F32::new(a.softcap.unwrap_or(0.0)),
        causal: a.causal,
        chunked: a.chunked && cut,
        biased: a.distance.is_some(),
    };
    let mut operands = vec![q, kv, positions];
    if a.sinks {
        operands.push(f.weight(ATTN_SINKS, Kind::Bare, &[heads]));
    }
    if let Some(of) = a.distance {
        operands.push(bias(f, of, heads));
    }
    f.op(op, &operands)
}

/// `x` cut at `−limit` and `limit`, if there is one.
#[track_caller]
pub(super) fn clipped(f: &mut Draft, x: Value, limit: Option<f32>) -> Value {
    let Some(limit) = limit else { return x };
    let [least, most] = [-limit, limit].map(|x| f.scalar(x));
    let x = f.op(Op::Binary(BinaryOp::Max), &[x, least]);
    f.op(Op::Binary(BinaryOp::Min), &[x, most])
}

#[cfg(test)]
mod tests {
    use super::{Buckets, slopes};

    /// As the paper has them: for 8 heads 1/2, 1/4, ...; for 12 these, and every other one of those
    /// for 16.
    #[test]
    fn slopes_of_any_number_of_heads() {
        let eight: Vec<f32> = (1..=8).map(|i| 0.5f32.powi(i)).collect();
        assert_eq!(slopes(8, 8.0), eight);
        let more = [1, 3, 5, 7].map(|i| libm::exp2(-f64::from(i) / 2.0) as f32);
        assert_eq!(slopes(12, 8.0), [&eight[..], &more[..]].concat());
        assert_eq!(slopes(3, 8.0), [1.0 / 16.0, 1.0 / 256.0, 0.25]);
        assert_eq!(slopes(2, 4.0), [0.25, 0.0625]);
    }

    /// The distances at which buckets begin, computed by Transformers' MPNet.
    #[test]
    fn buckets_of_distances() {
        let buckets = Buckets { count: 32, most: 128 };
        let begins: Vec<i64> = (1..500).filter(|d| buckets.of(-d) != buckets.of(1 - d)).collect();
        assert_eq!(begins, [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]);
        assert!((1..500).all(|d| buckets.of(d) == buckets.of(-d) + 16));
        assert_eq!((buckets.of(0), buckets.of(-1000), buckets.reach()), (0, 15, 91));
        assert_eq!(buckets.order(2).len(), 2 * 183);
    }
}
