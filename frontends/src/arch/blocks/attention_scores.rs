//! Attention over a state, and biases of scores by the distance or the position of their keys.

use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{ATTN_BIAS, ATTN_SINKS, Kind};
use llmcc_ir::graph::{BinaryOp, F32, Input, Op, Value};

/// Bias of scores by the distance of the key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distance {
    /// Each head a slope (ALiBi, arXiv 2108.12409).
    Slopes {
        /// The `i`-th of `n` heads has `2^(−max·i/n)`.
        max: f64,
    },
    /// The same slopes, of keys before the query and after it alike.
    BothWays,
    /// The same slopes times the positions of keys, before scores are scaled: slopes, positions and
    /// products rounded to bf16. So it is no function of the distance, though an addend common to a
    /// token's scores does not change a softmax.
    RoundedSlopes,
    /// A learned number for each head and bucket, which all layers share (T5, arXiv 1910.10683).
    Buckets(Buckets),
    /// The same where a token sees no later one: all buckets are of keys before the query.
    BucketsBehind(Buckets),
}

/// Buckets of distances, half of them for keys before the query, half for keys after it. In each
/// half, the first half are distances of their own, the others grow by powers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buckets {
    /// All of them.
    pub count: usize,
    /// The distance at which the last one ends that is not for all others.
    pub most: usize,
}

/// The slopes of heads. If their number is no power of two, every other slope of the next power
/// comes first, and then as many of the rest as are left.
fn slopes(heads: usize, max: f64) -> Vec<f32> {
    let n = heads.next_power_of_two();
    let slope = |i: usize| libm::exp2(-max * i as f64 / n as f64) as f32;
    match n == heads {
        true => (1..=n).map(slope).collect(),
        false => (2..=n).step_by(2).chain((1..=n).step_by(2)).take(heads).map(slope).collect(),
    }
}

/// Values of [`Distance::BothWays`], for each head and each distance up to `reach` on both sides.
fn both_ways(heads: usize, reach: usize) -> Vec<f32> {
    let far = (1..=reach).rev().chain(0..=reach);
    slopes(heads, 8.0).into_iter().flat_map(|slope| far.clone().map(move |d| -slope * d as f32)).collect()
}

/// Values of [`Distance::RoundedSlopes`] for scores that are multiplied by `scale`, for so many
/// positions of each head.
fn rounded(heads: usize, scale: f32, positions: usize) -> Vec<f32> {
    let round = |x: f32| half::bf16::from_f32(x).to_f32();
    let whole = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
    // Powers of a rounded number, not rounded powers.
    let power = |of: usize, i: usize| {
        let base = libm::exp2(-8.0 / of as f64) as f32;
        libm::pow(base.into(), i as f64) as f32
    };
    let first = (1..=whole).map(|i| power(whole, i));
    let slopes = first.chain((1..).step_by(2).map(|i| power(2 * whole, i))).take(heads);
    let of_head = |slope: f32| (0..positions).map(move |j| round(round(slope) * round(j as f32)) * scale);
    slopes.flat_map(of_head).collect()
}

impl Buckets {
    /// The bucket of a key so far away, one of `count` for one direction.
    fn of_far(self, count: usize, far: usize) -> usize {
        let exact = count / 2;
        let grown = || {
            let ratio = |a: f64| libm::log(a / exact as f64);
            (ratio(far as f64) / ratio(self.most as f64) * (count - exact) as f64) as usize
        };
        if far < exact { far } else { (exact + grown()).min(count.saturating_sub(1)) }
    }

    /// The bucket of a key so far after the query, where keys are before it and after it.
    fn of(self, distance: i64) -> usize {
        let half = self.count / 2;
        self.of_far(half, distance.unsigned_abs() as usize) + if distance > 0 { half } else { 0 }
    }

    /// The bucket of a key so far after the query, where all that count are before it.
    fn of_behind(self, distance: i64) -> usize {
        self.of_far(self.count, distance.min(0).unsigned_abs() as usize)
    }

    /// The distance from which on all keys are in one bucket of `count`.
    fn reach(self, count: usize) -> usize {
        (1..self.most).find(|far| self.of_far(count, *far) + 1 == count).unwrap_or(self.most)
    }

    /// Where the numbers of each head and distance are in the table `[count, heads]`.
    fn order(self, heads: usize) -> Vec<f32> {
        self.ordered(heads, self.reach(self.count / 2), |d| self.of(d))
    }

    /// The same where all keys that count are before the query.
    fn order_behind(self, heads: usize) -> Vec<f32> {
        self.ordered(heads, self.reach(self.count), |d| self.of_behind(d))
    }

    fn ordered(self, heads: usize, reach: usize, bucket: impl Fn(i64) -> usize) -> Vec<f32> {
        let reach = reach as i64;
        let buckets: Vec<usize> = (-reach..=reach).map(bucket).collect();
        (0..heads).flat_map(|h| buckets.iter().map(move |b| (b * heads + h) as f32)).collect()
    }
}

/// The bias operand of attention.
#[track_caller]
fn bias(f: &mut Draft, of: Distance, a: &Scoring) -> Value {
    let heads = a.heads;
    match of {
        Distance::Slopes { max } => f.shared_constant("attn.slopes", "$attention.slopes", slopes(heads, max)),
        Distance::BothWays => {
            let reach = f.max_context().saturating_sub(1);
            f.shared_constant("attn.slopes", "$attention.both_ways", both_ways(heads, reach))
        }
        Distance::RoundedSlopes => {
            // An even number of them: see `ScoreBias`.
            let table = rounded(heads, a.scale, f.max_context().next_multiple_of(2));
            f.shared_constant("attn.slopes", "$attention.rounded", table)
        }
        Distance::Buckets(buckets) | Distance::BucketsBehind(buckets) => {
            let table = f.weight(ATTN_BIAS, Kind::Table, &[buckets.count, heads]);
            let table = f.op(Op::Flatten, &[table]);
            let (constant, order) = match of {
                Distance::BucketsBehind(_) => ("$attention.buckets_behind", buckets.order_behind(heads)),
                _ => ("$attention.buckets", buckets.order(heads)),
            };
            let order = f.computed("attn.bias.order", constant, order);
            f.op(Op::LookUp, &[table, order])
        }
    }
}

/// From products of queries and keys to scores.
pub(crate) struct Scoring {
    /// Query heads.
    pub heads: usize,
    /// They are multiplied by this.
    pub scale: f32,
    /// They are `cap·tanh(score/cap)`.
    pub softcap: Option<f32>,
    /// A learned sink for each head, one more score.
    pub sinks: bool,
    /// Bias by the distance of the key.
    pub distance: Option<Distance>,
    /// The window is a chunk.
    pub chunked: bool,
    /// Whether a token sees nothing after it.
    pub causal: bool,
}

impl Scoring {
    /// Scores of so many heads with only a scale.
    pub(crate) fn plain(heads: usize, scale: f32) -> Scoring {
        Scoring { heads, scale, softcap: None, sinks: false, distance: None, chunked: false, causal: true }
    }
}

/// Attention of `q` over the state `kv`.
#[track_caller]
pub(crate) fn attended(f: &mut Draft, a: &Scoring, q: Value, kv: Value, positions: Value) -> Value {
    let heads = a.heads;
    // A chunk that no sequence outgrows is none.
    let cut = f.ty(kv).and_then(|t| t.state()?.paged()).is_some_and(|spec| spec.window.is_some());
    let op = Op::Attention {
        heads,
        scale: F32::new(a.scale),
        softcap: F32::new(a.softcap.unwrap_or(0.0)),
        causal: a.causal && !f.sees_images_whole(),
        chunked: a.chunked && cut,
        biased: a.distance.is_some(),
        sums: false,
    };
    let mut operands = vec![q, kv, positions];
    if a.sinks {
        operands.push(f.weight(ATTN_SINKS, Kind::Bare, &[heads]));
    }
    if let Some(of) = a.distance {
        operands.push(bias(f, of, a));
    }
    f.op(op, &operands)
}

/// The heads of `x`, of `dim` columns each, that these numbers name, side by side.
#[track_caller]
pub(crate) fn heads_of(f: &mut Draft, name: &str, dim: usize, heads: impl Iterator<Item = usize>, x: Value) -> Value {
    if f.ty(x).is_none() {
        return f.stop();
    }
    let order = heads.flat_map(|head| (head * dim..(head + 1) * dim).map(|column| column as f32)).collect();
    let order = f.shared_constant(name, &format!("${name}"), order);
    f.op(Op::PickCols, &[x, order])
}

/// The mean of the rows `x` of a text's tokens up to each, that of the last one being of all: by
/// attention whose scores are all 0.
#[track_caller]
pub(crate) fn mean_so_far(f: &mut Draft, x: Value) -> Value {
    mean(f, x, None, true)
}

/// The mean of the rows `x` of all tokens of a text, for each of them.
#[track_caller]
pub(crate) fn mean_of_all(f: &mut Draft, x: Value, positions: Value) -> Value {
    mean(f, x, Some(positions), false)
}

#[track_caller]
fn mean(f: &mut Draft, x: Value, positions: Option<Value>, causal: bool) -> Value {
    let hidden = f.facts().hidden;
    let dim = (1..=MEAN_DIM.min(hidden)).rev().find(|d| hidden.is_multiple_of(*d)).unwrap_or(1);
    let heads = hidden / dim;
    let kv = f.kv("mean.kv", heads, (dim, dim), None);
    let positions = positions.unwrap_or_else(|| f.input(Input::Positions));
    let kv = f.op(Op::KvAppend, &[kv, x, x, positions]);
    let nothing = F32::new(0.0);
    let (chunked, biased, sums) = (false, false, false);
    let op = Op::Attention { heads, scale: nothing, softcap: nothing, causal, chunked, biased, sums };
    f.op(op, &[x, kv, positions])
}

/// Columns of the heads that means are made in, at most.
const MEAN_DIM: usize = 64;

/// `x` cut at `−limit` and `limit`, if there is one.
#[track_caller]
pub(crate) fn clipped(f: &mut Draft, x: Value, limit: Option<f32>) -> Value {
    let Some(limit) = limit else { return x };
    let [least, most] = [-limit, limit].map(|x| f.scalar(x));
    let x = f.op(Op::Binary(BinaryOp::Max), &[x, least]);
    f.op(Op::Binary(BinaryOp::Min), &[x, most])
}

#[cfg(test)]
mod tests {
    use super::{Buckets, rounded, slopes};

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

    /// Slopes of 1/16, 1/256 and 1/4, and positions beyond 256, where bf16 has only every other
    /// one.
    #[test]
    fn slopes_times_positions_in_bf16() {
        let table = rounded(3, 0.5, 302);
        assert_eq!([0, 1, 255, 257, 259].map(|j| table[j] * 32.0), [0.0, 1.0, 255.0, 256.0, 260.0]);
        assert_eq!(table[302 + 301] * 512.0, 300.0);
        assert_eq!(table[604 + 3], 3.0 / 8.0);
    }

    /// The distances at which buckets begin, computed by Transformers' MPNet.
    #[test]
    fn buckets_of_distances() {
        let buckets = Buckets { count: 32, most: 128 };
        let begins: Vec<i64> = (1..500).filter(|d| buckets.of(-d) != buckets.of(1 - d)).collect();
        assert_eq!(begins, [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]);
        assert!((1..500).all(|d| buckets.of(d) == buckets.of(-d) + 16));
        assert_eq!((buckets.of(0), buckets.of(-1000), buckets.reach(16)), (0, 15, 91));
        assert_eq!(buckets.order(2).len(), 2 * 183);
        // By T5's decoder.
        let begins: Vec<i64> = (1..500).filter(|d| buckets.of_behind(-d) != buckets.of_behind(1 - d)).collect();
        let far = [19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113];
        assert_eq!(begins, (1..=16).chain(far).collect::<Vec<i64>>());
        assert_eq!((buckets.of_behind(9), buckets.of_behind(-1000), buckets.reach(32)), (0, 31, 113));
    }
}
