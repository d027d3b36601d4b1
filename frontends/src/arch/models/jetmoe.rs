//! JetMoE (arXiv 2404.07413): experts in place of MLPs, and a mixture of attention heads (arXiv
//! 2210.05144): projections of queries and of attention's output are experts, too; keys and values
//! are common to all tokens.

use crate::arch::blocks::attention_scores::{Scoring, attended, heads_of};
use crate::arch::blocks::experts::{by_expert, routes, together};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "jetmoe",
    class: "JetMoeForCausalLM",
    fields: &[IDENTITY, MODEL, fields! { num_key_value_heads }, ROTARY, fields! { rms_norm_eps }, OWN],
    fixed: &[
        // Fields of the authors' files.
        ("bias", Neutral::On),
        ("glu", Neutral::On),
    ],
    goldens: &["jetmoe"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let (top, count) = (f.size("num_experts_per_tok").or(2), f.size("num_local_experts").or(8));
        let (kv, dim) = (f.size("num_key_value_heads").or(16), f.size("kv_channels").or(128));
        // As many as heads of keys, for each expert of a token.
        let heads = Heads { queries: kv.saturating_mul(top), kv, dim };
        let defaults = defaults! {
            vocab: 32_000, heads: heads.queries, kv_heads: kv, head_dim: dim, max_position: 4096, tied: true,
            act(activation_function): Defaults::LLAMA.act.1, ..LLAMA
        };
        let mut d = Decoder::read(&f.by_default(&[("intermediate_size", 5632)]), &defaults)?;
        d = d.with_attention(|_, a| a.heads = heads);
        let router = Router { score: Score::Chosen, ..Router::softmax(top, false) };
        let experts = Experts { stored: Stored::Joined, ..Experts::like(&d, router, count) };
        let experts = experts.checked(f, ["num_local_experts", "num_experts_per_tok"])?;
        let from = "`num_key_value_heads` times `num_experts_per_tok`";
        common::follows(f, "num_attention_heads", heads.queries, from)?;
        Ok(Box::new(JetMoe { decoder: d, experts }))
    },
};

/// The second names come from the authors' files.
const OWN: &[Field] = fields! {
    num_attention_heads: Accepts::Any, kv_channels, intermediate_size | ffn_hidden_size, activation_function,
    num_local_experts | moe_num_experts, num_experts_per_tok | moe_top_k,
};

/// The experts of attention, the bias of their output, keys and values.
const OWN_ROUTER: Part = Part("attn.router");
const QUERIES: Part = Part("attn.experts.q");
const OUTPUTS: Part = Part("attn.experts.out");
const KEYS_VALUES: Part = Part("attn.kv");
const BIASES: [Part; 2] = [Part("attn.bias"), Part("experts.bias")];

const NAMES: Table = names! {
    "model.layers.{}." {
        OWN_ROUTER => "self_attention.experts.router.layer", QUERIES => "self_attention.experts.input_linear",
        OUTPUTS => "self_attention.experts.output_linear", BIASES[0] => "self_attention.experts.bias",
        KEYS_VALUES => "self_attention.kv_proj", ROUTER => "mlp.router.layer", EXPERTS_GATE_UP => "mlp.input_linear",
        EXPERTS_DOWN => "mlp.output_linear", BIASES[1] => "mlp.bias",
    }
};

/// Norms of the layers, whatever the file says, which the last one has.
const EPS: f32 = 1e-6;

/// A decoder with experts in both blocks.
#[derive(Debug)]
struct JetMoe {
    decoder: Decoder,
    experts: Experts,
}

impl JetMoe {
    fn layer(
        &self,
        l: &mut Lifter,
        (i, spec): (usize, &Layer),
        x: &Carried,
        ropes: &[Carried],
    ) -> Result<Carried, FrontendError> {
        let (hidden, own) = (self.decoder.facts.hidden, Norm::rms(EPS));
        let mut f = l.layer("layer", i);
        let x = f.carried("x", x);
        let rope = ropes.first().map(|rope| f.carried("rope", rope));
        let h = norm(&mut f, ATTN_NORM, own, x, hidden);
        let y = self.attention(&mut f, spec, h, rope);
        let x = biased(&mut f, BIASES[0], x, y);
        let h = norm(&mut f, MLP_NORM, own, x, hidden);
        let y = mixture(&mut f, &self.experts, h, h);
        let x = biased(&mut f, BIASES[1], x, y);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// Attention in which each expert of a token has a query for each head of keys.
    fn attention(&self, f: &mut Draft, spec: &Layer, h: Value, rope: Option<Value>) -> Value {
        let (hidden, a, m) = (f.facts().hidden, &spec.attention, &self.experts);
        let Heads { queries, kv: keys, dim: head_dim } = a.heads;
        let (width, top) = (keys * head_dim, m.router.top);
        let logits = linear(f, OWN_ROUTER, [m.count, hidden], false, h);
        let routes = routes(f, m.router, m.count, logits);
        let [to_queries, to_rows] = [(QUERIES, [width, hidden]), (OUTPUTS, [hidden, width])].map(|(part, [n, k])| {
            let w = f.weight(part, Kind::Matrix, &[m.count, n, k]);
            (f.op(Op::Flatten, &[w]), n)
        });
        let q = by_expert(f, h, to_queries, (routes, m.count, top));
        // Heads that read the same keys side by side.
        let q = heads_of(f, "attn.by_keys", head_dim, across(top, keys), q);
        let w = f.matrix(KEYS_VALUES, [2 * width, hidden]);
        let [k, v] = split_rows(f, w, [width; 2]).map(|w| f.matmul(h, w));
        let [q, k] = [q, k].map(|x| rope.map_or(x, |rope| f.op(Op::Rope { head_dim }, &[x, rope])));
        let kv = f.kv("kv", keys, (head_dim, head_dim), None);
        let positions = f.input(Input::Positions);
        let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
        let y = attended(f, &Scoring::plain(queries, a.scale), q, kv, positions);
        let y = heads_of(f, "attn.by_expert", head_dim, across(keys, top), y);
        let y = by_expert(f, y, to_rows, (routes, m.count, top));
        together(f, routes, top, y)
    }
}

/// An order of `outer` times `inner` heads: the first of each run of `inner` first, then the second, ...
fn across(outer: usize, inner: usize) -> impl Iterator<Item = usize> {
    (0..inner).flat_map(move |j| (0..outer).map(move |i| i * inner + j))
}

/// `x`, plus a block's output, plus a bias for all tokens.
fn biased(f: &mut Draft, part: Part, x: Value, y: Value) -> Value {
    let bias = f.weight(part, Kind::Bare, &[f.facts().hidden]);
    let y = f.add(y, bias);
    f.add(x, y)
}

impl Shape for JetMoe {
    answered_by! { decoder: facts yields }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (mut x, ropes) = decoder::embedding(l, &self.decoder)?;
        for layer in self.decoder.layers.iter().enumerate() {
            x = self.layer(l, layer, &x, &ropes)?;
        }
        decoder::head(l, &self.decoder, &x)
    }
}
