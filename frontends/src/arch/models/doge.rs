//! Doge (arXiv 2412.11834): a key's score has a bias learned from its value, and the residual has a learned factor.
//! Beyond some tokens attention drops the lowest-scored ones; contexts are no longer than that.

use crate::arch::blocks::attention::qk_norm;
use crate::arch::blocks::attention_scores::{Scoring, attended};
use crate::arch::blocks::families::indexer::{Selection, dense_of};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "doge",
    class: "DogeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, fields! { sliding_window }, OWN],
    // Fields of experts, which are refused.
    fixed: &[("num_experts", Neutral::Any), ("num_experts_per_tok", Neutral::Any), ("norm_topk_prob", Neutral::Any)],
    goldens: &["doge"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let help = "the router of its experts compares tokens of a prompt, so results would depend on how \
            the prompt is cut";
        f.refuse_flag("is_moe", help)?;
        let defaults = defaults! { vocab: 32_768, heads: 8, window: Given, ..LLAMA };
        let d = Decoder::read(f, &defaults)?;
        let (bias, mlp_bias) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Head)));
        let d = d.with_mlp(|m| m.bias = mlp_bias);
        let most = Selection { tokens: f.size("keep_window_size").or(2048), field: "keep_window_size" };
        Ok(Box::new(Doge(dense_of(f, d, most))))
    },
};

const OWN: &[Field] = fields! { keep_window_size, is_moe };

/// Bias of scores from a head's values, and its growth.
const STEPS: Part = Part("attn.steps");
const RATES: Part = Part("attn.rates");
/// Factors of the residual stream.
const KEPT: [Part; 2] = [Part("attn.kept"), Part("mlp.kept")];

const NAMES: Table = names! {
    "model.layers.{}." {
        STEPS => "self_attn.dt_proj", RATES => "self_attn.A", KEPT[0] => "input_residual",
        KEPT[1] => "post_attention_residual",
        // Before these were parameters of their own.
        KEPT[0] => "input_residual.weight", KEPT[1] => "post_attention_residual.weight",
    }
};

/// Columns of keys for their scores' bias: tiles of GPUs need a multiple.
const MORE: usize = 16;

/// A decoder whose keys bring a score of their own.
#[derive(Debug)]
struct Doge(Decoder);

impl Doge {
    fn layer(
        &self,
        l: &mut Lifter,
        (i, spec): (usize, &Layer),
        x: &Carried,
        ropes: &[Carried],
    ) -> Result<Carried, FrontendError> {
        let (d, hidden) = (&self.0, self.0.facts.hidden);
        let mut f = l.layer("layer", i);
        let x = f.carried("x", x);
        let rope = ropes.first().map(|rope| f.carried("rope", rope));
        let h = norm(&mut f, ATTN_NORM, d.norm, x, hidden);
        let y = attention(&mut f, &spec.attention, d.norm, h, rope);
        let x = kept(&mut f, KEPT[0], x, y);
        let h = norm(&mut f, MLP_NORM, d.norm, x, hidden);
        let y = mlp(&mut f, &spec.mlp, h);
        let x = kept(&mut f, KEPT[1], x, y);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }
}

/// `x` times a learned row, plus a block's output.
fn kept(f: &mut Draft, part: Part, x: Value, y: Value) -> Value {
    let row = f.weight(part, Kind::Bare, &[f.facts().hidden]);
    let x = f.mul(x, row);
    f.add(x, y)
}

/// Attention whose scores are `scale·q·k + e^(A·softplus(W·v))`, `A` and a row of `W` being the KV head's,
/// and `v` the values of all heads of the key's token. So they are of keys that have this number in more
/// columns, for which queries have one that makes it count as it is.
fn attention(f: &mut Draft, a: &Attention, eps: Norm, h: Value, rope: Option<Value>) -> Value {
    let (hidden, heads, head_dim) = (f.facts().hidden, a.heads, a.heads.dim);
    let [queries, keys] = [heads.queries, heads.kv].map(|n| n * head_dim);
    let q = linear(f, ATTN_Q, [queries, hidden], a.own().qkv_bias, h);
    let k = linear(f, ATTN_K, [keys, hidden], a.own().qkv_bias, h);
    let v = linear(f, ATTN_V, [keys, hidden], a.own().qkv_bias, h);
    let q = qk_norm(f, QkNorm::Head, ATTN_Q_NORM, a, heads.queries, eps, q);
    let k = qk_norm(f, QkNorm::Head, ATTN_K_NORM, a, heads.kv, eps, k);
    let [q, k] = [q, k].map(|x| rope.map_or(x, |rope| f.op(Op::Rope { head_dim }, &[x, rope])));
    let steps = linear(f, STEPS, [heads.kv, keys], a.own().qkv_bias, v);
    let steps = f.unary(UnaryOp::Softplus, steps);
    let rates = f.weight(RATES, Kind::Bare, &[heads.kv]);
    let own = f.mul(steps, rates);
    let own = f.unary(UnaryOp::Exp, own);
    let k = beside(f, ["keys", "attn.keys.order"], [k, own], (heads.kv, head_dim), |h| keys + h);
    // The same in each of the columns.
    let one = f.op(Op::SliceCols { start: 0, len: 1 }, &[q]);
    let [zero, part] = [0.0, 1.0 / (a.scale * MORE as f32)].map(|x| f.scalar(x));
    let one = f.mul(one, zero);
    let one = f.add(one, part);
    let q = beside(f, ["queries", "attn.queries.order"], [q, one], (heads.queries, head_dim), |_| queries);
    let kv = f.kv("kv", heads.kv, (head_dim + MORE, head_dim), a.window);
    let positions = f.input(Input::Positions);
    let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
    let y = attended(f, &Scoring::plain(heads.queries, a.scale), q, kv, positions);
    linear(f, ATTN_OUT, [hidden, queries], a.own().out_bias, y)
}

/// `x`, each of its heads with [`MORE`] columns after it, all of them the column `of` the head of `x` and
/// `more` side by side.
fn beside(
    f: &mut Draft,
    [what, name]: [&str; 2],
    [x, more]: [Value; 2],
    (heads, dim): (usize, usize),
    of: impl Fn(usize) -> usize,
) -> Value {
    let all = f.op(Op::ConcatCols, &[x, more]);
    if f.ty(all).is_none() {
        return f.stop();
    }
    let order = (0..heads).flat_map(|h| (h * dim..(h + 1) * dim).chain(std::iter::repeat_n(of(h), MORE)));
    let order = order.map(|column| column as f32).collect();
    let order = f.shared_constant(name, &format!("$attention.{what}"), order);
    f.op(Op::PickCols, &[all, order])
}

impl Shape for Doge {
    answered_by! { 0: facts yields }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (mut x, ropes) = decoder::embedding(l, &self.0)?;
        for layer in self.0.layers.iter().enumerate() {
            x = self.layer(l, layer, &x, &ropes)?;
        }
        decoder::head(l, &self.0, &x)
    }
}
