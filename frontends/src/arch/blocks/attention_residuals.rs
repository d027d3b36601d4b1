//! Attention over depth in place of a residual stream that grows (attention residuals of Kimi K3,
//! Moonshot AI, 2026): layers come in groups, and the sum of a group's layers is kept as a source.
//! Each block reads a mean of the embeddings, of the earlier groups' sums and of its own group's
//! sum so far, weighted by the softmax of products of a learned vector with their norms.

use crate::arch::blocks::attention::{Norm, norm};
use crate::arch::blocks::decoder::{self, Decoder, feed};
use crate::arch::blocks::entry::{Shape, answered_by};
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::names::{ATTN_NORM, Kind, MLP_NORM, NORM, Part, Table, names};
use crate::arch::blocks::token_mixer::{Context, mixed};
use crate::error::FrontendError;
use llmcc_ir::graph::{BinaryOp, F32, Input, Op, UnaryOp, Value};

/// Parts that make the weights of a mean.
#[derive(Clone, Copy)]
struct Site {
    /// Gains of the norm of a source, `[hidden]`.
    norm: Part,
    /// The learned vector, `[1, hidden]`.
    query: Part,
}

/// Before attention, or the mixer in its place.
const ATTN_SITE: Site = Site { norm: Part("attn.sources.norm"), query: Part("attn.sources.query") };
/// Before the MLP, or the experts.
const MLP_SITE: Site = Site { norm: Part("mlp.sources.norm"), query: Part("mlp.sources.query") };
/// Before the last norm.
const LAST_SITE: Site = Site { norm: Part("head.sources.norm"), query: Part("head.sources.query") };

pub(crate) const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_SITE.norm => "self_attention_res_norm", ATTN_SITE.query => "self_attention_res_proj",
        MLP_SITE.norm => "mlp_res_norm", MLP_SITE.query => "mlp_res_proj",
    }
    "model." { LAST_SITE.norm => "output_attn_res_norm", LAST_SITE.query => "output_attn_res_proj" }
};

/// A decoder whose blocks read means of earlier sums.
#[derive(Debug)]
pub(crate) struct OverDepth {
    /// The layers, with norms before their blocks.
    pub decoder: Decoder,
    /// Layers of a group.
    pub group: usize,
}

impl Shape for OverDepth {
    answered_by! { decoder: facts yields }

    /// The first layer has a vector and a norm too, for a mean of the embeddings alone.
    fn chooses(&self, tensor: &str) -> bool {
        let first = ["norm", "proj"].map(|part| format!("model.layers.0.self_attention_res_{part}.weight"));
        first.iter().any(|name| tensor.ends_with(name)) || self.decoder.chooses(tensor)
    }

    /// Each block is a function of its own: kernels are chosen for one at a time.
    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (d, hidden) = (&self.decoder, self.decoder.facts.hidden);
        let (mut sum, ropes) = decoder::embedding(l, d)?;
        let mut sources: Vec<Carried> = vec![];
        for (i, spec) in d.layers.iter().enumerate() {
            let begins = i.is_multiple_of(self.group);
            let mut f = l.layer("attend", i);
            let (x, h) = read(&mut f, (ATTN_SITE, d.norm), &sources, &sum);
            let context = Context::of(&mut f, spec, &ropes);
            let h = norm(&mut f, ATTN_NORM, d.norm, h, hidden);
            let y = mixed(&mut f, d.norm, spec, context, h);
            let y = if begins { y } else { f.add(x, y) };
            let attended = f.call(&[y])?.pop().unwrap_or_default();
            if begins {
                sources.push(sum);
            }
            let mut f = l.layer("feed", i);
            let (x, h) = read(&mut f, (MLP_SITE, d.norm), &sources, &attended);
            let h = norm(&mut f, MLP_NORM, d.norm, h, hidden);
            let y = feed(&mut f, d, spec, x, h);
            let y = f.add(x, y);
            sum = f.call(&[y])?.pop().unwrap_or_default();
        }
        let mut f = l.func("head");
        let rows = f.input(Input::OutRows);
        let all = carried(&mut f, &sources, &sum);
        let all: Vec<Value> = all.into_iter().map(|x| f.op(Op::GatherRows, &[x, rows])).collect();
        let x = mean(&mut f, (LAST_SITE, d.norm), &all);
        let x = norm(&mut f, NORM, d.norm, x, hidden);
        decoder::output(f, d, x)
    }
}

/// The sum of the group so far, and the mean that a block reads.
fn read(f: &mut Draft, site: (Site, Norm), sources: &[Carried], sum: &Carried) -> (Value, Value) {
    let all = carried(f, sources, sum);
    let own = all.last().copied().unwrap_or_else(|| f.stop());
    (own, mean(f, site, &all))
}

/// Sources of means, the sum of the group last.
fn carried(f: &mut Draft, sources: &[Carried], sum: &Carried) -> Vec<Value> {
    let mut all: Vec<Value> = sources.iter().enumerate().map(|(i, x)| f.carried(&format!("source{i}"), x)).collect();
    all.push(f.carried("x", sum));
    all
}

/// The weighted mean of all `sources`, `[T, hidden]`; a single source is its own mean.
#[track_caller]
fn mean(f: &mut Draft, (site, spec): (Site, Norm), sources: &[Value]) -> Value {
    if let [one] = *sources {
        return one;
    }
    let hidden = f.facts().hidden;
    let gain = f.weight(site.norm, Kind::Gain, &[hidden]);
    let query = f.matrix(site.query, [1, hidden]);
    let scores: Vec<Value> = sources
        .iter()
        .map(|x| {
            let x = f.op(Op::Normalize { eps: F32::new(spec.eps), width: hidden }, &[*x]);
            let x = f.mul(x, gain);
            f.matmul(x, query)
        })
        .collect();
    let fold = |f: &mut Draft, op, x: &[Value]| {
        let all = x.iter().copied().reduce(|a, b| f.op(Op::Binary(op), &[a, b]));
        all.unwrap_or_else(|| f.stop())
    };
    let most = fold(f, BinaryOp::Max, &scores);
    let powers: Vec<Value> = scores
        .iter()
        .map(|score| {
            let below = f.op(Op::Binary(BinaryOp::Sub), &[*score, most]);
            f.unary(UnaryOp::Exp, below)
        })
        .collect();
    let total = fold(f, BinaryOp::Add, &powers);
    let parts: Vec<Value> = sources
        .iter()
        .zip(&powers)
        .map(|(x, power)| {
            let weight = f.op(Op::Binary(BinaryOp::Div), &[*power, total]);
            f.op(Op::Combine, &[weight, *x])
        })
        .collect();
    fold(f, BinaryOp::Add, &parts)
}
