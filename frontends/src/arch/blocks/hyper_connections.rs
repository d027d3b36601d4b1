//! Several residual streams that every block mixes (manifold-constrained hyper-connections, mHC,
//! arXiv 2512.24880; hyper-connections, arXiv 2409.19606).
//!
//! All streams of a token are one row, one behind the other, `[T, streams·hidden]`. A block reads a
//! weighted sum of them. Its output is added to each with a weight, and the streams themselves are
//! mixed by a matrix whose rows and columns have sums near one, so that nothing grows from layer to
//! layer. All weights are made of the token's row.

use crate::arch::blocks::attention::{Norm, norm};
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::names::{ATTN_NORM, Kind, MLP_NORM, Part, Table, names};
use crate::arch::blocks::recurrent::split_each;
use crate::arch::blocks::weight_forms::{run_parts, split_rows};
use crate::config::ConfigError;
use crate::config::common;
use crate::config::dictionary::fields;
use crate::config::fields::{Accepts, Field, Fields};
use crate::error::FrontendError;
use llmcc_ir::graph::{Balance, F32, Op, UnaryOp, Value};

/// Parts that make the weights around a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// `[(2 + n)·n, n·hidden]` for `n` streams: rows that make weights of the sum, of the output,
    /// and of the mixing matrix, a column of it after the other.
    weights: Part,
    /// Added to them, `[(2 + n)·n]`.
    base: Part,
    /// Multiplies each of the three before, `[3]`.
    scale: Part,
}

/// A block as a function of its own, since kernels are chosen for one function at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Apart {
    name: &'static str,
    site: Site,
    norm: Part,
}

/// Attention, or the mixer in its place.
pub(crate) const ATTEND: Apart = Apart { name: "attend", site: ATTN_SITE, norm: ATTN_NORM };
/// The MLP, or the experts.
pub(crate) const FEED: Apart = Apart { name: "feed", site: MLP_SITE, norm: MLP_NORM };

/// Around attention, or the mixer in its place.
pub(crate) const ATTN_SITE: Site =
    Site { weights: Part("attn.streams"), base: Part("attn.streams.base"), scale: Part("attn.streams.scale") };
/// Around the MLP, or the experts.
pub(crate) const MLP_SITE: Site =
    Site { weights: Part("mlp.streams"), base: Part("mlp.streams.base"), scale: Part("mlp.streams.scale") };

/// Before the head: rows that make weights of the sum alone, `[n, n·hidden]`, with one scale.
const HEAD_SITE: Site =
    Site { weights: Part("head.streams"), base: Part("head.streams.base"), scale: Part("head.streams.scale") };

/// Their names in Transformers, its written names, and the names they were published under.
pub(crate) const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_SITE.weights => "hc_attn_fn", ATTN_SITE.weights => "attn_hc.fn", ATTN_SITE.base => "hc_attn_base",
        ATTN_SITE.base => "attn_hc.base", ATTN_SITE.scale => "hc_attn_scale", ATTN_SITE.scale => "attn_hc.scale",
        MLP_SITE.weights => "hc_ffn_fn", MLP_SITE.weights => "ffn_hc.fn", MLP_SITE.base => "hc_ffn_base",
        MLP_SITE.base => "ffn_hc.base", MLP_SITE.scale => "hc_ffn_scale", MLP_SITE.scale => "ffn_hc.scale",
    }
    "layers.{}." {
        ATTN_SITE.weights => "hc_attn_fn", ATTN_SITE.base => "hc_attn_base", ATTN_SITE.scale => "hc_attn_scale",
        MLP_SITE.weights => "hc_ffn_fn", MLP_SITE.base => "hc_ffn_base", MLP_SITE.scale => "hc_ffn_scale",
    }
    "model." {
        HEAD_SITE.weights => "hc_head.hc_fn", HEAD_SITE.base => "hc_head.hc_base",
        HEAD_SITE.scale => "hc_head.hc_scale",
    }
    "" { HEAD_SITE.weights => "hc_head_fn", HEAD_SITE.base => "hc_head_base", HEAD_SITE.scale => "hc_head_scale" }
};

/// The fields that [`Streams::read`] reads.
pub(crate) const STREAMS: &[Field] = fields! {
    hc_mult, hc_sinkhorn_iters: Accepts::Size(Balance::MOST_ROUNDS), hc_eps,
};

/// The streams of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streams {
    /// How many.
    count: usize,
    /// How often rows of the mixing matrix are divided by their sums.
    rounds: usize,
    /// Added to these sums, and to numbers that are at least that.
    eps: f32,
    /// Added to the mean square of a token's row.
    norm_eps: f32,
}

impl Streams {
    /// Reads [`STREAMS`]; rows are normalized with `norm_eps`.
    pub(crate) fn read(f: &Fields, norm_eps: f32) -> Result<Streams, ConfigError> {
        let (count, rounds) = (f.size("hc_mult").or(4), f.size("hc_sinkhorn_iters").or(20));
        if count > Balance::MOST_SIDE {
            let help = format!("this architecture supports up to {} streams", Balance::MOST_SIDE);
            return Err(f.unsupported("hc_mult", count.to_string(), help));
        }
        Ok(Streams { count, rounds, eps: common::eps(f, "hc_eps", 1e-6)?, norm_eps })
    }

    /// All streams where there is nothing yet but `x`, `[T, hidden]`, which each of them is.
    #[track_caller]
    pub(crate) fn begin(self, f: &mut Draft, x: Value) -> Value {
        copies(f, x, self.count)
    }

    /// The same, as a function of its own.
    pub(crate) fn begun(self, l: &mut Lifter, x: &Carried) -> Result<Carried, FrontendError> {
        let mut f = l.func("streams");
        let x = f.carried("x", x);
        let x = self.begin(&mut f, x);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// The streams `x` after a block of layer `i` that is apart. It is given the values `given`
    /// takes into the function, and its norm of the sum that it reads.
    pub(crate) fn block<G>(
        self,
        l: &mut Lifter,
        (apart, i): (Apart, usize),
        (x, by): (&Carried, Norm),
        given: impl FnOnce(&mut Draft) -> G,
        block: impl FnOnce(&mut Draft, G, Value) -> Value,
    ) -> Result<Carried, FrontendError> {
        let mut f = l.layer(apart.name, i);
        let x = f.carried("x", x);
        let given = given(&mut f);
        let y = self.around(&mut f, apart.site, x, |f, h| {
            let h = norm(f, apart.norm, by, h, f.facts().hidden);
            block(f, given, h)
        });
        Ok(f.call(&[y])?.pop().unwrap_or_default())
    }

    /// The mean of the streams `x`, `[M, hidden]`.
    #[track_caller]
    pub(crate) fn mean(self, f: &mut Draft, x: Value) -> Value {
        let each = split_each(f, x, f.facts().hidden, self.count);
        let sum = each.into_iter().reduce(|sum, x| f.add(sum, x)).unwrap_or_else(|| f.stop());
        let part = f.scalar((1.0 / self.count as f64) as f32);
        f.mul(sum, part)
    }

    /// The sum of the streams `x` with weights made of them, `[M, hidden]`.
    #[track_caller]
    pub(crate) fn sum(self, f: &mut Draft, x: Value) -> Value {
        let (n, width) = (self.count, self.count.saturating_mul(f.facts().hidden));
        let w = f.weight(HEAD_SITE.weights, Kind::Bare, &[n, width]);
        let b = f.weight(HEAD_SITE.base, Kind::Bare, &[n]);
        let scale = f.weight(HEAD_SITE.scale, Kind::Bare, &[1]);
        let h = f.op(Op::Normalize { eps: F32::new(self.norm_eps), width }, &[x]);
        let y = f.matmul(h, w);
        let y = f.mul(y, scale);
        let y = f.add(y, b);
        let read = self.positive(f, y);
        f.op(Op::Combine, &[read, x])
    }

    /// Positive weights of the streams that are read.
    fn positive(self, f: &mut Draft, y: Value) -> Value {
        let y = f.unary(UnaryOp::Sigmoid, y);
        let least = f.scalar(self.eps);
        f.add(y, least)
    }

    /// The streams `x` after a block, which is given the sum that it reads.
    #[track_caller]
    pub(crate) fn around(
        self,
        f: &mut Draft,
        site: Site,
        x: Value,
        block: impl FnOnce(&mut Draft, Value) -> Value,
    ) -> Value {
        let n = self.count;
        let [read, added, mixed] = self.weights(f, site, x);
        let h = f.op(Op::Combine, &[read, x]);
        let y = block(f, h);
        let each: Vec<Value> = (0..n)
            .map(|i| {
                let of_streams = f.op(Op::SliceCols { start: i * n, len: n }, &[mixed]);
                let of_block = f.op(Op::SliceCols { start: i, len: 1 }, &[added]);
                let kept = f.op(Op::Combine, &[of_streams, x]);
                let more = f.op(Op::Combine, &[of_block, y]);
                f.add(kept, more)
            })
            .collect();
        side_by_side(f, &each)
    }

    /// Weights `[T, n]` of the sum that a block reads and of its output, and `[T, n²]` of the
    /// streams: the weights of the first new stream, then of the second…
    fn weights(self, f: &mut Draft, site: Site, x: Value) -> [Value; 3] {
        let n = self.count;
        let (rows, width) = ([n, n, n * n], n.saturating_mul(f.facts().hidden));
        let all = rows.iter().sum();
        let w = f.weight(site.weights, Kind::Bare, &[all, width]);
        let b = f.weight(site.base, Kind::Bare, &[all]);
        let scale = f.weight(site.scale, Kind::Bare, &[3]);
        let [mut w, mut b] = [w, b].map(|all| split_rows(f, all, rows));
        // Stored column by column; made here row by row.
        [w[2], b[2]] = [w[2], b[2]].map(|mix| turned(f, mix, n));
        let scale = split_rows(f, scale, [1; 3]);
        let h = f.op(Op::Normalize { eps: F32::new(self.norm_eps), width }, &[x]);
        let mut made = |i: usize| {
            let y = f.matmul(h, w[i]);
            let y = f.mul(y, scale[i]);
            f.add(y, b[i])
        };
        let [read, added, mixed] = [made(0), made(1), made(2)];
        let read = self.positive(f, read);
        let added = f.unary(UnaryOp::Sigmoid, added);
        let two = f.scalar(2.0);
        let added = f.mul(added, two);
        let Streams { rounds, eps, .. } = self;
        [read, added, f.op(Op::Sinkhorn { side: n, rounds, eps: F32::new(eps) }, &[mixed])]
    }
}

/// Rows `0, n, 2n…` of `n²`, then rows `1, n + 1…`: the transposed matrix's. Also of a vector.
fn turned(f: &mut Draft, w: Value, n: usize) -> Value {
    let each: Vec<Value> = (0..n).map(|start| run_parts(f, w, n, start, 1)).collect();
    if let [one] = each[..] { one } else { f.op(Op::ConcatRows, &each) }
}

/// Streams that are all `x`, `[T, hidden]`, as one row.
#[track_caller]
pub(crate) fn copies(f: &mut Draft, x: Value, count: usize) -> Value {
    side_by_side(f, &vec![x; count])
}

/// The streams `x` as one row.
#[track_caller]
pub(crate) fn side_by_side(f: &mut Draft, x: &[Value]) -> Value {
    if let [one] = *x { one } else { f.op(Op::ConcatCols, x) }
}
