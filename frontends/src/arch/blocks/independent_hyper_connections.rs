//! Several residual streams that blocks read together and write each by itself (independent
//! hyper-connections of Hy4, after arXiv 2409.19606): a block reads a weighted sum of them, and its
//! output is added to each with a weight. The streams themselves are not mixed. All weights are
//! made of the token's row, which is the streams one behind the other, `[T, streams·hidden]`.

use crate::arch::blocks::hyper_connections::{copies, side_by_side};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{Kind, Part};
use crate::arch::blocks::weight_forms::split_rows;
use crate::config::ConfigError;
use crate::config::common;
use crate::config::dictionary::fields;
use crate::config::fields::{Accepts, Field, Fields};
use llmcc_ir::graph::{F32, Op, UnaryOp, Value};

/// Parts that make the weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighing {
    /// `[rows, streams·hidden]`.
    pub rows: Part,
    /// Added to their result for a normalized row.
    pub base: Part,
    /// Factors before it: a number for the weights of the sum, and one for the weights of the
    /// output.
    pub scale: Part,
}

/// Around attention.
pub(crate) const ATTN_SITE: Weighing =
    Weighing { rows: Part("attn.weigh"), base: Part("attn.weigh.base"), scale: Part("attn.weigh.scale") };
/// Around the MLP, or the experts.
pub(crate) const MLP_SITE: Weighing =
    Weighing { rows: Part("mlp.weigh"), base: Part("mlp.weigh.base"), scale: Part("mlp.weigh.scale") };
/// Before the head, which reads a sum too.
pub(crate) const HEAD_SITE: Weighing =
    Weighing { rows: Part("head.weigh"), base: Part("head.weigh.base"), scale: Part("head.weigh.scale") };

/// The fields that [`IndependentStreams::read`] reads.
pub(crate) const STREAMS: &[Field] = fields! { hc_mult: Accepts::Size(MOST), hc_magnitude, hc_eps };

/// Most streams that are believed.
const MOST: usize = 64;

/// The streams of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndependentStreams {
    /// How many.
    count: usize,
    /// Largest weight of a block's output.
    magnitude: f32,
    /// Added to all weights.
    eps: f32,
    /// Added to the mean square of a token's row.
    norm_eps: f32,
}

impl IndependentStreams {
    /// Reads [`STREAMS`]; rows are normalized with `norm_eps`.
    pub(crate) fn read(f: &Fields, norm_eps: f32) -> Result<IndependentStreams, ConfigError> {
        let magnitude = f.factor_or("hc_magnitude", 2.0)? as f32;
        Ok(IndependentStreams {
            count: f.size("hc_mult").or(4),
            magnitude,
            eps: common::eps(f, "hc_eps", 1e-6)?,
            norm_eps,
        })
    }

    /// All streams where there is nothing yet but `x`, `[T, hidden]`, which each of them is.
    #[track_caller]
    pub(crate) fn begin(self, f: &mut Draft, x: Value) -> Value {
        copies(f, x, self.count)
    }

    /// The streams `x` after a block, which is given the sum that it reads.
    #[track_caller]
    pub(crate) fn around(
        self,
        f: &mut Draft,
        site: Weighing,
        x: Value,
        block: impl FnOnce(&mut Draft, Value) -> Value,
    ) -> Value {
        let n = self.count;
        let weights = self.sigmoids(f, site, [n; 2], x);
        let [read, added] = [0, n].map(|start| f.op(Op::SliceCols { start, len: n }, &[weights]));
        let read = self.raised(f, read);
        let h = f.op(Op::Combine, &[read, x]);
        let magnitude = f.scalar(self.magnitude);
        let added = f.mul(added, magnitude);
        let added = self.raised(f, added);
        let y = block(f, h);
        let each: Vec<Value> = (0..n)
            .map(|i| {
                let weight = f.op(Op::SliceCols { start: i, len: 1 }, &[added]);
                f.op(Op::Combine, &[weight, y])
            })
            .collect();
        let more = side_by_side(f, &each);
        f.add(x, more)
    }

    /// The sum of the streams `x` that the head reads.
    #[track_caller]
    pub(crate) fn end(self, f: &mut Draft, x: Value) -> Value {
        let weights = self.sigmoids(f, HEAD_SITE, [self.count], x);
        let weights = self.raised(f, weights);
        f.op(Op::Combine, &[weights, x])
    }

    /// Sigmoids of the product of `site` and the norm of `x`: so many columns for each number in
    /// its scale.
    #[track_caller]
    fn sigmoids<const N: usize>(self, f: &mut Draft, site: Weighing, runs: [usize; N], x: Value) -> Value {
        let width = self.count.saturating_mul(f.facts().hidden);
        let rows = runs.iter().sum();
        let w = f.weight(site.rows, Kind::Bare, &[rows, width]);
        let base = f.weight(site.base, Kind::Bare, &[rows]);
        let scale = f.weight(site.scale, Kind::Bare, &[N]);
        let each = if N == 1 { [scale; N] } else { split_rows(f, scale, [1; N]) };
        let each: Vec<Value> =
            each.into_iter().zip(runs).map(|(s, times)| f.op(Op::RepeatEach { times }, &[s])).collect();
        let scale = if let [one] = each[..] { one } else { f.op(Op::ConcatRows, &each) };
        let h = f.op(Op::Normalize { eps: F32::new(self.norm_eps), width }, &[x]);
        let y = f.matmul(h, w);
        let y = f.mul(y, scale);
        let y = f.add(y, base);
        f.unary(UnaryOp::Sigmoid, y)
    }

    /// Weights, which are at least `eps`.
    fn raised(self, f: &mut Draft, weights: Value) -> Value {
        let least = f.scalar(self.eps);
        f.add(weights, least)
    }
}
