//! ZAYA1 (arXiv 2511.17127): compressed convolutional attention (2510.04476), with queries and keys
//! mixed by convolutions and half of the values taken from the token before, experts whose routers
//! are MLPs that read the hidden row of the router before, and weights on the residual stream.

use crate::arch::blocks::attention_scores::{Scoring, attended, heads_of};
use crate::arch::blocks::experts::{apart, mixed_by, routes_with};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::{convolved, delayed};
use crate::arch::blocks::weight_forms::filled;
use crate::config::rope::read_described;
use serde_json::{Map, Value as Json};

pub(crate) const ARCH: Arch = Arch {
    model_type: "zaya",
    class: "ZayaForCausalLM",
    fields: &[
        IDENTITY,
        MODEL,
        ATTENTION,
        fields! { rope_parameters, hidden_act, rms_norm_eps, sliding_window },
        ATTENTION_BIAS,
        OWN,
    ],
    fixed: &[],
    goldens: &["zaya"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 262_272, heads: 8, kv_heads: 2, head_dim: 128, max_position: 131_072, eps: 1e-5, tied: true,
            // The experts are the only MLPs.
            ffn: 1, ..LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        let (bias, windows) = (f.flag("attention_bias"), windows(f, d.facts.layers)?);
        let dim = d.layers.first().map_or(0, |l| l.attention.heads.dim);
        d.ropes = ropes(f, dim, d.facts.max_position, &windows)?;
        d.head.bias = f.flag("lm_head_bias");
        d = d.with_heads(|i, a, h| {
            (h.qkv_bias, h.out_bias, a.window) = (bias, bias, windows[i]);
            // One kind of layers has one table.
            a.rotary = Some(usize::from(windows[i].is_some() && windows.contains(&None)));
        });
        if let Some(n) = f.size("num_experts_per_tok").value().filter(|n| *n != 1) {
            let help = "this architecture expects one expert for each token".into();
            return Err(f.unsupported("num_experts_per_tok", n.to_string(), help));
        }
        let ffn = f.size("moe_intermediate_size").or(2048);
        let count = f.size("num_experts").or(16);
        let experts = Experts {
            ffn,
            routing: Routing { zero: 1, ..Routing::default() },
            ..Experts::like(&d, Router::softmax(1, false), count)
        };
        let experts = experts.checked(f, ["num_experts", "num_experts_per_tok"])?;
        let taps = [f.size("cca_time0").or(2), f.size("cca_time1").or(2)];
        for (field, n) in ["cca_time0", "cca_time1"].into_iter().zip(taps) {
            if !(2..=MOST_TAPS).contains(&n) {
                return Err(f.invalid(field, &n, format!("from 2 to {MOST_TAPS}")));
            }
        }
        Ok(Box::new(Zaya { decoder: d, experts, router: f.size("router_hidden_size").or(256), taps }))
    },
};

/// Tokens that convolutions see, at most.
const MOST_TAPS: usize = 16;

const OWN: &[Field] = fields! {
    layer_types: Accepts::ListOf(&["hybrid", SLIDING]), num_experts | num_local_experts, num_experts_per_tok,
    moe_intermediate_size, router_hidden_size, lm_head_bias, cca_time0, cca_time1,
};

const SLIDING: &str = "hybrid_sliding";

/// The window of each layer.
fn windows(f: &Fields, layers: usize) -> Result<Vec<Option<usize>>, ConfigError> {
    let window = f.size("sliding_window").value();
    let slides: Vec<bool> = match common::layer_types(f, layers)? {
        Some(types) => types.into_iter().map(|t| t == SLIDING).collect(),
        None => vec![false; layers],
    };
    if window.is_none() && slides.contains(&true) {
        return Err(f.missing("sliding_window"));
    }
    Ok(slides.into_iter().map(|slides| window.filter(|_| slides)).collect())
}

/// The rotary tables of layers that see everything, and of those with a window, as far as there are such.
fn ropes(
    f: &Fields,
    dim: usize,
    max_position: usize,
    windows: &[Option<usize>],
) -> Result<Vec<RopeConfig>, ConfigError> {
    let given = f.object("rope_parameters");
    // Half of each head, where nothing is said of any kind of layers.
    let half = Map::from_iter([("partial_rotary_factor".to_string(), Json::from(0.5))]);
    let one = |(kind, at, theta): (&str, &'static str, f64)| {
        let map = match given {
            Some(given) => {
                given.get(kind).and_then(Json::as_object).ok_or_else(|| f.missing(at.trim_end_matches('.')))?
            }
            None => &half,
        };
        read_described(f, (at, map), true, (dim, max_position), theta)
    };
    let kinds =
        [(false, "hybrid", "rope_parameters.hybrid.", 5e6), (true, SLIDING, "rope_parameters.hybrid_sliding.", 1e4)];
    let used = kinds.into_iter().filter(|(slides, ..)| windows.iter().any(|w| w.is_some() == *slides));
    used.map(|(_, kind, at, theta)| one((kind, at, theta))).collect()
}

/// Convolutions of queries and keys, over their columns and over their heads.
const CONVS: [Part; 2] = [Part("attn.conv"), Part("attn.conv_heads")];
/// Values of the token, and of the one before.
const VALUES: [Part; 2] = [Part("attn.v_now"), Part("attn.v_before")];
/// Multiplies the keys of a head.
const KEY_SCALE: Part = Part("attn.k_scale");
/// Addend of embeddings, and their factor after it.
const ENTERING: [Part; 2] = [Part("entering.bias"), Part("entering.scale")];
/// The same for a block's output, and for the residual stream.
const JOINED: [[Part; 4]; 2] = [
    [Part("attn.y_bias"), Part("attn.y_scale"), Part("attn.x_bias"), Part("attn.x_scale")],
    [Part("mlp.y_bias"), Part("mlp.y_scale"), Part("mlp.x_bias"), Part("mlp.x_scale")],
];
const ROUTER_DOWN: Part = Part("router.down");
const ROUTER_BEFORE: Part = Part("router.before");
const ROUTER_NORM: Part = Part("router.norm");
const ROUTER_INNER: [Part; 2] = [Part("router.first"), Part("router.second")];
const BALANCE: Part = Part("router.balance");

const NAMES: Table = names! {
    "model." { ENTERING[0] => "input_hidden_states_bias", ENTERING[1] => "input_hidden_states_scale" }
    "model.layers.{}." {
        ATTN_Q => "self_attn.qkv_proj.q_proj", ATTN_K => "self_attn.qkv_proj.k_proj",
        VALUES[0] => "self_attn.qkv_proj.v_proj_current", VALUES[1] => "self_attn.qkv_proj.v_proj_delayed",
        CONVS[0] => "self_attn.qkv_proj.conv_qk_depthwise", CONVS[1] => "self_attn.qkv_proj.conv_qk_grouped",
        KEY_SCALE => "self_attn.qk_norm.temp", JOINED[0][0] => "post_attention_residual_scale.hidden_states_bias",
        JOINED[0][1] => "post_attention_residual_scale.hidden_states_scale",
        JOINED[0][2] => "post_attention_residual_scale.residual_bias",
        JOINED[0][3] => "post_attention_residual_scale.residual_scale",
        JOINED[1][0] => "post_mlp_residual_scale.hidden_states_bias",
        JOINED[1][1] => "post_mlp_residual_scale.hidden_states_scale",
        JOINED[1][2] => "post_mlp_residual_scale.residual_bias",
        JOINED[1][3] => "post_mlp_residual_scale.residual_scale", ROUTER_DOWN => "mlp.gate.down_proj",
        ROUTER_BEFORE => "mlp.gate.router_states_scale", ROUTER_NORM => "mlp.gate.router_mlp.norm",
        ROUTER_INNER[0] => "mlp.gate.router_mlp.fc1", ROUTER_INNER[1] => "mlp.gate.router_mlp.fc2",
        ROUTER => "mlp.gate.router_mlp.out_proj", BALANCE => "mlp.gate.balancing_biases",
        EXPERTS_GATE_UP => "mlp.experts.gate_up_proj", EXPERTS_DOWN => "mlp.experts.down_proj",
        EXPERT_GATE => "mlp.experts.{e}.gate_proj", EXPERT_UP => "mlp.experts.{e}.up_proj",
        EXPERT_DOWN => "mlp.experts.{e}.down_proj",
    }
};

/// A decoder whose layers hand their routers' rows on.
#[derive(Debug)]
struct Zaya {
    decoder: Decoder,
    /// The last of them, which is beyond their number, makes nothing.
    experts: Experts,
    /// Width of routers' rows.
    router: usize,
    /// Tokens that the convolutions see.
    taps: [usize; 2],
}

impl Zaya {
    /// A layer; returns the rows, and its router's row.
    fn layer(
        &self,
        l: &mut Lifter,
        (i, spec): (usize, &Layer),
        (x, before): (&Carried, Option<&Carried>),
        ropes: &[Carried],
    ) -> Result<[Carried; 2], FrontendError> {
        let (d, hidden) = (&self.decoder, self.decoder.facts.hidden);
        let mut f = l.layer("layer", i);
        let mut x = f.carried("x", x);
        let before = before.map(|before| f.carried("before", before));
        let rope = spec.attention.rotary.and_then(|table| ropes.get(table)).map(|rope| f.carried("rope", rope));
        if before.is_none() {
            x = weighted(&mut f, ENTERING, x);
        }
        let h = norm(&mut f, ATTN_NORM, d.norm, x, hidden);
        let y = attention(&mut f, &spec.attention, self.taps, h, rope);
        let x = joined(&mut f, JOINED[0], x, y);
        let h = norm(&mut f, MLP_NORM, d.norm, x, hidden);
        let (logits, read) = self.router(&mut f, h, before);
        let balance = f.weight(BALANCE, Kind::Bare, &[self.experts.count + self.experts.routing.zero]);
        let routes = routes_with(&mut f, self.experts.router, [logits, balance]);
        let (routes, _) = apart(&mut f, &self.experts, routes, false);
        let y = mixed_by(&mut f, &self.experts, h, routes, None);
        let x = joined(&mut f, JOINED[1], x, y);
        let mut results = f.call(&[x, read])?.into_iter();
        Ok([results.next().unwrap_or_default(), results.next().unwrap_or_default()])
    }

    /// Logits of the experts, and the row they were made of.
    fn router(&self, f: &mut Draft, h: Value, before: Option<Value>) -> (Value, Value) {
        let (hidden, width) = (f.facts().hidden, self.router);
        let mut read = linear(f, ROUTER_DOWN, [width, hidden], true, h);
        if let Some(before) = before {
            let scale = f.weight(ROUTER_BEFORE, Kind::Bare, &[width]);
            let more = f.mul(before, scale);
            read = f.add(read, more);
        }
        let mut y = norm(f, ROUTER_NORM, self.decoder.norm, read, width);
        for part in ROUTER_INNER {
            y = linear(f, part, [width, width], true, y);
            y = f.unary(UnaryOp::Gelu, y);
        }
        (linear(f, ROUTER, [self.experts.count + self.experts.routing.zero, width], false, y), read)
    }
}

/// `(x + b)·s`
fn weighted(f: &mut Draft, [bias, scale]: [Part; 2], x: Value) -> Value {
    let hidden = f.facts().hidden;
    let bias = f.weight(bias, Kind::Bare, &[hidden]);
    let x = f.add(x, bias);
    let scale = f.weight(scale, Kind::Bare, &[hidden]);
    f.mul(x, scale)
}

/// A block's output `y`, and the residual `x`, both with weights.
fn joined(f: &mut Draft, [bias, scale, of_x, by]: [Part; 4], x: Value, y: Value) -> Value {
    let y = weighted(f, [bias, scale], y);
    let x = weighted(f, [of_x, by], x);
    f.add(y, x)
}

/// Attention over `h`.
fn attention(f: &mut Draft, a: &Attention, taps: [usize; 2], h: Value, rope: Option<Value>) -> Value {
    let (hidden, heads, head_dim) = (f.facts().hidden, a.heads, a.heads.dim);
    let [queries, keys] = [heads.queries, heads.kv].map(|n| n * head_dim);
    let q = linear(f, ATTN_Q, [queries, hidden], a.own().qkv_bias, h);
    let k = linear(f, ATTN_K, [keys, hidden], a.own().qkv_bias, h);
    let [passed_q, passed_k] = passed(f, a, [q, k]);
    let all = f.op(Op::ConcatCols, &[q, k]);
    let all = over_heads(f, a, taps, all);
    let q = f.op(Op::SliceCols { start: 0, len: queries }, &[all]);
    let k = f.op(Op::SliceCols { start: queries, len: keys }, &[all]);
    let [q, k] = [(q, passed_q), (k, passed_k)].map(|(x, passed)| f.add(x, passed));
    let v = values(f, keys / 2, a.own().qkv_bias, h);
    // Heads of length √dim.
    let unit = Op::Normalize { eps: F32::new(f32::MIN_POSITIVE), width: head_dim };
    let [q, k] = [q, k].map(|x| f.op(unit.clone(), &[x]));
    let scale = f.weight(KEY_SCALE, Kind::Bare, &[heads.kv]);
    let scale = f.op(Op::RepeatEach { times: head_dim }, &[scale]);
    let k = f.mul(k, scale);
    let [q, k] = [q, k].map(|x| rope.map_or(x, |rope| f.op(Op::Rope { head_dim }, &[x, rope])));
    let kv = f.kv("kv", heads.kv, (head_dim, head_dim), a.window);
    let positions = f.input(Input::Positions);
    let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
    let y = attended(f, &Scoring::plain(heads.queries, a.scale), q, kv, positions);
    linear(f, ATTN_OUT, [hidden, queries], a.own().out_bias, y)
}

/// Addend of convolved queries and keys: the mean of a query and its key, and of these for a key.
fn passed(f: &mut Draft, a: &Attention, [q, k]: [Value; 2]) -> [Value; 2] {
    let (heads, dim) = (a.heads, a.heads.dim);
    let group = heads.queries / heads.kv.max(1);
    let half = f.scalar(0.5);
    let own = heads_of(f, "attn.own_keys", dim, (0..heads.queries).map(|h| h / group.max(1)), k);
    let both = f.add(q, own);
    let both = f.mul(both, half);
    let of_group = |i: usize| (0..heads.kv).map(move |h| h * group + i);
    let each = (0..group).map(|i| heads_of(f, &format!("attn.of_keys{i}"), dim, of_group(i), both));
    let each: Vec<Value> = each.collect();
    let sum = each.into_iter().reduce(|sum, x| f.add(sum, x)).unwrap_or(k);
    let part = f.scalar((1.0 / group as f64) as f32);
    [both, f.mul(sum, part)]
}

/// Queries and keys, convolved column by column, then head by head. Before the first token, the
/// first convolution reads zeros, and the second reads its bias.
fn over_heads(f: &mut Draft, a: &Attention, [first, second]: [usize; 2], x: Value) -> Value {
    let (dim, heads) = (a.heads.dim, a.heads.queries + a.heads.kv);
    let channels = heads * dim;
    let mut x = convolved(f, &[(CONVS[0], channels)], first, x);
    let bias = f.bias(CONVS[0], channels);
    let w = f.weight(CONVS[1], Kind::Matrix, &[channels, dim, second]);
    let w = f.op(Op::Transpose, &[w]);
    let w = f.op(Op::Flatten, &[w]);
    let mut y = f.bias(CONVS[1], channels);
    for tap in (0..second).rev() {
        let own = f.op(Op::PickRows { run: second, start: tap, len: 1, pairs: 0 }, &[w]);
        let own = filled(f, own, dim);
        let u = f.add(x, bias);
        let more = f.op(Op::HeadMatMul { heads, cols: dim }, &[u, own]);
        y = f.add(more, y);
        if tap > 0 {
            x = delayed(f, &format!("before{tap}"), channels, x);
        }
    }
    y
}

/// Values, half of them from the token before: before the first token only a bias.
fn values(f: &mut Draft, half: usize, bias: bool, h: Value) -> Value {
    let hidden = f.facts().hidden;
    let now = linear(f, VALUES[0], [half, hidden], bias, h);
    let before = linear(f, VALUES[1], [half, hidden], false, h);
    let mut before = delayed(f, "values", half, before);
    if bias {
        let b = f.bias(VALUES[1], half);
        before = f.add(before, b);
    }
    f.op(Op::ConcatCols, &[now, before])
}

impl Shape for Zaya {
    answered_by! { decoder: facts yields }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (mut x, ropes) = decoder::embedding(l, &self.decoder)?;
        let mut before = None;
        for layer in self.decoder.layers.iter().enumerate() {
            let [rows, read] = self.layer(l, layer, (&x, before.as_ref()), &ropes)?;
            (x, before) = (rows, Some(read));
        }
        decoder::head(l, &self.decoder, &x)
    }
}
