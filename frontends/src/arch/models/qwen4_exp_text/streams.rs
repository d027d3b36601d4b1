//! Several residual streams side by side in a row: a block reads the mean of all, gated column by
//! column, and adds its output to each, weighted (a form of hyper-connections, arXiv 2409.19606).

use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::split_each;

/// The tensors of one place where streams are mixed.
#[derive(Clone, Copy)]
pub(super) struct MixSite {
    norm: Part,
    down: Part,
    up: Part,
    /// Weights of the output, `[streams, streams·hidden]`.
    inject: Part,
}

/// Around attention, or the mixer in its place.
pub(super) const ATTN: MixSite = MixSite {
    norm: Part("attn.streams.norm"),
    down: Part("attn.streams.down"),
    up: Part("attn.streams.up"),
    inject: Part("attn.streams.inject"),
};
/// Around the experts.
pub(super) const MLP: MixSite = MixSite {
    norm: Part("mlp.streams.norm"),
    down: Part("mlp.streams.down"),
    up: Part("mlp.streams.up"),
    inject: Part("mlp.streams.inject"),
};
/// Before the head, where nothing is added.
pub(super) const LAST: MixSite = MixSite {
    norm: Part("streams.norm"),
    down: Part("streams.down"),
    up: Part("streams.up"),
    inject: Part("streams.inject"),
};

pub(super) const STREAMS: Table = names! {
    "model.layers.{}." {
        ATTN.norm => "attn_hyper_connection.hc_norm", ATTN.down => "attn_hyper_connection.input_mix_weight_down",
        ATTN.up => "attn_hyper_connection.input_mix_weight_up",
        ATTN.inject => "attn_hyper_connection.block_inject_weight", MLP.norm => "mlp_hyper_connection.hc_norm",
        MLP.down => "mlp_hyper_connection.input_mix_weight_down",
        MLP.up => "mlp_hyper_connection.input_mix_weight_up",
        MLP.inject => "mlp_hyper_connection.block_inject_weight",
    }
    "model." {
        LAST.norm => "hyper_connection_mixer.hc_norm", LAST.down => "hyper_connection_mixer.input_mix_weight_down",
        LAST.up => "hyper_connection_mixer.input_mix_weight_up",
    }
};

/// The streams of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    /// How many there are.
    pub count: usize,
    /// Rank of the gates.
    pub rank: usize,
}

impl Streams {
    /// Columns of all streams.
    pub(super) fn width(self, f: &Draft) -> usize {
        f.facts().hidden.saturating_mul(self.count)
    }

    /// `streams`: the embeddings `x` in each.
    pub(super) fn begin(self, l: &mut Lifter, x: &Carried) -> Result<Carried, FrontendError> {
        let mut f = l.func("streams");
        let x = f.carried("x", x);
        let x = f.op(Op::ConcatCols, &vec![x; self.count]);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// Each stream of `x` normalized, with gains of its own.
    pub(super) fn normed(self, f: &mut Draft, part: Part, eps: Norm, x: Value) -> Value {
        let (width, hidden) = (self.width(f), f.facts().hidden);
        let gain = f.weight(part, Kind::Gain, &[width]);
        let one = f.scalar(1.0);
        let gain = f.add(gain, one);
        let x = f.op(Op::Normalize { eps: F32::new(eps.eps), width: hidden }, &[x]);
        f.mul(x, gain)
    }

    /// `x`, each of its streams by itself.
    pub(super) fn apart(self, f: &mut Draft, x: Value) -> Vec<Value> {
        split_each(f, x, f.facts().hidden, self.count)
    }

    /// A block's input from the streams `x`, `[T, hidden]`, and their norms.
    pub(super) fn mixed(self, f: &mut Draft, place: MixSite, eps: Norm, x: Value) -> (Value, Value) {
        let width = self.width(f);
        let x = self.normed(f, place.norm, eps, x);
        let gate = linear(f, place.down, [self.rank, width], false, x);
        let gate = self.part(f, gate);
        let gate = f.unary(UnaryOp::Silu, gate);
        let gate = linear(f, place.up, [width, self.rank], false, gate);
        let gate = f.unary(UnaryOp::Sigmoid, gate);
        let gated = f.mul(gate, x);
        let sum = self.apart(f, gated).into_iter().reduce(|sum, x| f.add(sum, x));
        let sum = sum.unwrap_or_else(|| f.stop());
        (self.part(f, sum), x)
    }

    /// The streams `x` with `y` added to each, `x` having been normalized to `normed`.
    pub(super) fn injected(self, f: &mut Draft, place: MixSite, (x, normed): (Value, Value), y: Value) -> Value {
        let weights = linear(f, place.inject, [self.count, self.width(f)], false, normed);
        let weights = self.part(f, weights);
        let weights = f.unary(UnaryOp::Sigmoid, weights);
        let two = f.scalar(2.0);
        let weights = f.mul(weights, two);
        let added = self.weighted(f, weights, y);
        f.add(x, added)
    }

    /// `y` in each stream, times the stream's column of `weights`.
    pub(super) fn weighted(self, f: &mut Draft, weights: Value, y: Value) -> Value {
        let weights = split_each(f, weights, 1, self.count);
        let all: Vec<Value> = weights.into_iter().map(|w| f.op(Op::Combine, &[w, y])).collect();
        f.op(Op::ConcatCols, &all)
    }

    /// `x` divided by the number of streams.
    fn part(self, f: &mut Draft, x: Value) -> Value {
        let count = f.scalar(self.count as f32);
        f.op(Op::Binary(BinaryOp::Div), &[x, count])
    }
}
