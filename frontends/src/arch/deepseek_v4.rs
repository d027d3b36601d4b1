//! DeepSeek-V4 (DeepSeek, 2026): several residual streams; attention to the last tokens and to rows that
//! windows of tokens before have in common; experts, in the first layers those of the token itself.
//!
//! An indexer selects rows of short windows: contexts of which none is left out are compiled.

mod attention;
#[cfg(test)]
mod tests;

use super::decoder::{self, Decoder, Defaults};
use super::entry::{Arch, Shape};
use super::experts::{CORRECTION, Experts, Shared, TOKEN_EXPERTS, mixture};
use super::lifter::{Carried, Lifter};
use super::limits::Limits;
use super::names::{
    ATTN_NORM, EXPERT_DOWN, EXPERT_GATE, EXPERT_UP, HEAD, MLP_NORM, NORM, Names, ROUTER, SHARED_DOWN, SHARED_GATE,
    SHARED_UP, TABLE, Table,
};
use super::selected::{Selection, dense_of};
use super::streams::{self, ATTN_SITE, MLP_SITE, STREAMS, Streams};
use super::yields::Yields;
use crate::config::common::{self, ATTENTION, Facts, MODEL, RMS_NORM, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::config::{ConfigError, rope};
use crate::error::FrontendError;
use attention::{ForLayer, WindowSizes, Windows, attention, earlier};
use llmcc_ir::graph::{F32, Input, Op, Router, Score, UnaryOp, Value};
use llmcc_ir::output::Pool;

pub(super) const ARCH: Arch = Arch {
    model_type: "deepseek_v4",
    class: "DeepseekV4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, common::PARTIAL_ROTARY, STREAMS, OWN],
    fixed: &[
        ("hidden_act", Neutral::Words(&["silu"])),
        ("attention_bias", Neutral::Off),
        ("mlp_bias", Neutral::Off),
        ("norm_topk_prob", Neutral::On),
        ("scoring_func", Neutral::Words(&["sqrtsoftplus"])),
        ("topk_method", Neutral::Words(&["noaux_tc"])),
        ("n_shared_experts", Neutral::One),
        ("index_n_heads", Neutral::Any),
        ("index_head_dim", Neutral::Any),
    ],
    goldens: &["deepseek_v4"],
    names: Names(&[NAMES, attention::NAMES, streams::NAMES]),
    read,
};

fn read(f: &Fields) -> Result<Box<dyn Shape>, ConfigError> {
    let defaults = Defaults {
        vocab: Some(129_280),
        heads: Some(64),
        kv_heads: Some(1),
        head_dim: Some(512),
        max_position: 1 << 20,
        eps: 1e-6,
        ffn: Some(1),
        ..Defaults::LLAMA
    };
    let d = Decoder::read_with(f, &defaults, |heads, max| {
        rope::read_compressed(f, [rotated(f, heads.dim)?, heads.dim], max)
    })?;
    let heads = d.layers.first().map_or(common::Heads { queries: 1, kv: 1, dim: 2 }, |l| l.attention.heads);
    if heads.kv != 1 {
        let help = "this architecture has one row for all heads".into();
        return Err(f.unsupported("num_key_value_heads", heads.kv.to_string(), help));
    }
    let groups = f.size("o_groups").or(8);
    if !heads.queries.is_multiple_of(groups) {
        let expected = format!("a divisor of `num_attention_heads` ({})", heads.queries);
        return Err(f.invalid("o_groups", &groups, expected));
    }
    let sizes = WindowSizes {
        heads: heads.queries,
        dim: heads.dim,
        rotated: d.ropes.first().map_or(2, |r| r.dim),
        q_rank: f.size("q_lora_rank").or(1024),
        groups,
        out_rank: f.size("o_lora_rank").or(1024),
        window: f.size("sliding_window").or(128),
        norm: d.norm,
    };
    let windows = windows(f, d.facts.layers)?;
    let (experts, by_token) = (experts(f, &d)?, by_token(f, d.facts.layers)?);
    let streams = Streams::read(f, d.norm.eps)?;
    let short = windows.iter().flatten().find(|w| w.overlap).map(|w| w.len);
    let d = match short {
        Some(len) => {
            let rows = f.size("index_topk").or(512);
            dense_of(f, d, Selection { tokens: rows.saturating_mul(len).saturating_add(len - 1), field: "index_topk" })
        }
        None => d,
    };
    Ok(Box::new(DeepseekV4 { decoder: d, sizes, windows, experts, by_token, streams }))
}

/// Elements of a head that are rotated.
fn rotated(f: &Fields, dim: usize) -> Result<usize, ConfigError> {
    let part = f.size("qk_rope_head_dim").value();
    let rotated = match (f.number("partial_rotary_factor"), part) {
        (Some(factor), part) => {
            let rotated = (dim as f64 * factor) as usize;
            if let Some(part) = part.filter(|part| *part != rotated) {
                let help = format!("this architecture has `qk_rope_head_dim` ({part}) of `head_dim` ({dim}) there");
                return Err(f.unsupported("partial_rotary_factor", factor.to_string(), help));
            }
            rotated
        }
        (None, Some(part)) => part,
        (None, None) => dim / 8,
    };
    if rotated == 0 || rotated > dim || !rotated.is_multiple_of(2) {
        let expected = format!("even, and at most `head_dim` ({dim}), as pairs of elements are rotated");
        return Err(f.invalid("qk_rope_head_dim", &rotated, expected));
    }
    Ok(rotated)
}

/// The windows of each layer, if it has any: by `layer_types`, or by the lengths that older files have,
/// the longest in the first two layers and every other one where nothing is said.
fn windows(f: &Fields, layers: usize) -> Result<Vec<Option<Windows>>, ConfigError> {
    let rates = match f.object("compress_rates") {
        Some(map) => {
            if let Some((kind, v)) = map.iter().find(|(kind, _)| !KINDS[1..].contains(&kind.as_str())) {
                let help = format!("this architecture has windows in layers of {:?}", &KINDS[1..]);
                return Err(f.unsupported("compress_rates", format!("{kind}: {v}"), help));
            }
            Some(f.inside(map, "compress_rates.", &[RATES])?)
        }
        None => None,
    };
    let rate = |kind: usize, default: usize| {
        let older = f.size(["compress_rate_csa", "compress_rate_hca"][kind]).value();
        older.or(rates.as_ref().and_then(|r| r.size(KINDS[kind + 1]).value())).unwrap_or(default)
    };
    let short = Some(Windows { len: rate(0, 4), overlap: true });
    let long = Some(Windows { len: rate(1, 128), overlap: false });
    for (windows, field) in [(short, "compress_rate_csa"), (long, "compress_rate_hca")] {
        if let Some(Windows { len: 1, .. }) = windows {
            return Err(f.invalid(field, &1, "at least 2, as windows of one token have nothing in common".into()));
        }
    }
    const RATIOS: &str = "compress_ratios";
    if let Some(types) = common::layer_types(f, layers)? {
        let of = |kind: &&str| if *kind == KINDS[1] { short } else { long.filter(|_| *kind == KINDS[2]) };
        return Ok(types.iter().map(of).collect());
    }
    let Some(ratios) = f.numbers(RATIOS) else {
        return Ok((0..layers).map(|i| if i >= 2 && i % 2 == 1 { short } else { long }).collect());
    };
    let expected = || format!("0, 4 or 128 for each of {layers} layers");
    let of = |ratio: &f64| match *ratio {
        0.0 => Some(None),
        4.0 => Some(short),
        128.0 => Some(long),
        _ => None,
    };
    let all: Option<Vec<_>> = ratios.iter().take(layers).map(of).collect();
    all.filter(|all| all.len() == layers).ok_or_else(|| f.invalid(RATIOS, &ratios, expected()))
}

/// Which layers' experts are those of the token.
fn by_token(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    const TYPES: &str = "mlp_layer_types";
    let first = f.count("num_hash_layers").unwrap_or(3);
    let Some(v) = f.get(TYPES).value() else { return Ok((0..layers).map(|i| i < first).collect()) };
    let list: Vec<bool> = v.as_array().into_iter().flatten().map(|v| v.as_str() == Some(MIXTURES[0])).collect();
    let expected = || format!("\"hash_moe\" or \"moe\" for each of {layers} layers");
    if list.len() < layers { Err(f.invalid_value(TYPES, v, expected())) } else { Ok(list) }
}

fn experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let ffn = f.size("moe_intermediate_size").or(2048);
    let limits = Some(Limits::Entering(f.factor_or("swiglu_limit", 10.0)? as f32));
    let router = Router {
        score: Score::Given,
        eps: F32::new(1e-20),
        scale: F32::new(f.factor_or("routed_scaling_factor", 1.5)? as f32),
        ..Router::softmax(f.size("num_experts_per_tok").or(6), true)
    };
    let experts = Experts {
        ffn,
        act: UnaryOp::Silu,
        limits,
        root_softplus: true,
        correction: Some(CORRECTION),
        shared: Some(Shared { limits, ..Shared::plain(ffn) }),
        ..Experts::like(d, router, f.size("n_routed_experts").or(256))
    };
    experts.checked(f, ["n_routed_experts", "num_experts_per_tok"])
}

/// Layers whose blocks read and write several streams.
#[derive(Debug)]
struct DeepseekV4 {
    decoder: Decoder,
    sizes: WindowSizes,
    windows: Vec<Option<Windows>>,
    experts: Experts,
    by_token: Vec<bool>,
    streams: Streams,
}

impl DeepseekV4 {
    /// The second rotary table for the first tokens of windows, of each length that there is.
    fn first_tokens(&self, l: &mut Lifter, rope: &Carried) -> Result<Vec<(usize, Carried)>, FrontendError> {
        let mut lens: Vec<usize> = self.windows.iter().flatten().map(|w| w.len).collect();
        lens.sort_unstable();
        lens.dedup();
        let each = lens.into_iter().map(|len| {
            let mut f = l.func("first_tokens");
            let rope = f.carried("rope", rope);
            let table = earlier(&mut f, rope, self.sizes.rotated, len - 1);
            Ok((len, f.call(&[table])?.pop().unwrap_or_default()))
        });
        each.collect()
    }

    /// The streams after layer `i`.
    fn layer(
        &self,
        l: &mut Lifter,
        i: usize,
        x: &Carried,
        (ropes, first): (&[Carried], &[(usize, Carried)]),
    ) -> Result<Carried, FrontendError> {
        let (d, windows) = (&self.decoder, self.windows.get(i).copied().flatten());
        let block_norm =
            |f: &mut super::lifter::Draft, part, h| super::blocks::norm(f, part, d.norm, h, d.facts.hidden);
        let mut f = l.layer("attend", i);
        let x = f.carried("x", x);
        let rope = ropes.get(usize::from(windows.is_some())).map(|rope| f.carried("rope", rope));
        let before = windows.and_then(|w| first.iter().find(|(len, _)| *len == w.len));
        let before = before.map(|(_, table)| f.carried("rope_before", table));
        let positions = f.input(Input::Positions);
        let Some(rope) = rope else { return Ok(Carried::default()) };
        let given = ForLayer { positions, rope, before };
        let x = self.streams.around(&mut f, ATTN_SITE, x, |f, h| {
            let h = block_norm(f, ATTN_NORM, h);
            attention(f, &self.sizes, windows, given, h)
        });
        let x = f.call(&[x])?.pop().unwrap_or_default();
        let by_token = self.by_token.get(i).copied().unwrap_or(false);
        let correction = if by_token { None } else { self.experts.correction };
        let experts = Experts { by_token, correction, ..self.experts };
        let mut f = l.layer("feed", i);
        let x = f.carried("x", &x);
        let x = self.streams.around(&mut f, MLP_SITE, x, |f, h| {
            let h = block_norm(f, MLP_NORM, h);
            mixture(f, &experts, h, h)
        });
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }
}

impl Shape for DeepseekV4 {
    fn facts(&self) -> &Facts {
        &self.decoder.facts
    }

    fn yields(&self) -> Yields {
        Yields::LogitsOrRows(Pool::Last)
    }

    fn chooses(&self, tensor: &str) -> bool {
        // Tables of experts are read, but as numbers.
        [".attn.indexer.", ".ffn.gate.tid2eid"].iter().any(|part| tensor.contains(part))
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let d = &self.decoder;
        let (x, ropes) = decoder::embedding(l, d)?;
        let first = match ropes.get(1) {
            Some(rope) => self.first_tokens(l, rope)?,
            None => vec![],
        };
        let mut f = l.func("streams");
        let x = f.carried("x", &x);
        let x = self.streams.begin(&mut f, x);
        let mut x = f.call(&[x])?.pop().unwrap_or_default();
        for i in 0..d.facts.layers {
            x = self.layer(l, i, &x, (&ropes, &first))?;
        }
        let mut f = l.func("head");
        let x = f.carried("x", &x);
        let wanted = f.input(Input::OutRows);
        let x: Value = f.op(Op::GatherRows, &[x, wanted]);
        let x = self.streams.sum(&mut f, x);
        let x = super::blocks::norm(&mut f, NORM, d.norm, x, d.facts.hidden);
        decoder::output(f, d, x)
    }
}

/// Kinds of layers, the second with short windows, the third with long ones.
const KINDS: &[&str] = &["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"];

/// Kinds of mixtures, the first with experts by tokens.
const MIXTURES: &[&str] = &["hash_moe", "moe"];

/// Most tokens of a window.
const LENGTH: Accepts = Accepts::Size(1024);

const RATES: &[Field] = &[Field::new(KINDS[1], LENGTH), Field::new(KINDS[2], LENGTH)];

const OWN: &[Field] = &[
    RMS_NORM,
    Field::new("q_lora_rank", WIDTH),
    Field::new("o_lora_rank", WIDTH),
    Field::new("o_groups", Accepts::Size(4096)),
    Field::new("qk_rope_head_dim", Accepts::Size(1 << 14)),
    Field::new("sliding_window", TOKENS),
    Field::new("layer_types", Accepts::ListOf(KINDS)),
    Field::new("compress_ratios", Accepts::Numbers),
    Field::new("compress_rates", Accepts::Object),
    Field::new("compress_rate_csa", LENGTH),
    Field::new("compress_rate_hca", LENGTH),
    Field::new("compress_rope_theta", Accepts::Number),
    Field::new("index_topk", Accepts::Size(1 << 24)),
    Field::new("n_routed_experts", Accepts::Size(4096)),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("moe_intermediate_size", WIDTH),
    Field::new("routed_scaling_factor", Accepts::Number),
    Field::new("swiglu_limit", Accepts::Number),
    Field::new("mlp_layer_types", Accepts::ListOf(MIXTURES)),
    Field::new("num_hash_layers", Accepts::Count),
];

/// Names as Transformers writes them, and as they were published.
const NAMES: Table = &[
    (TABLE, "model.embed_tokens"),
    (TABLE, "embed"),
    (NORM, "model.norm"),
    (NORM, "norm"),
    (HEAD, "head"),
    (HEAD, "lm_head"),
    (ATTN_NORM, "model.layers.{}.attn_norm"),
    (ATTN_NORM, "layers.{}.attn_norm"),
    (MLP_NORM, "model.layers.{}.ffn_norm"),
    (MLP_NORM, "layers.{}.ffn_norm"),
    (ROUTER, "model.layers.{}.ffn.gate"),
    (ROUTER, "layers.{}.ffn.gate"),
    (CORRECTION, "model.layers.{}.ffn.gate.bias"),
    (CORRECTION, "layers.{}.ffn.gate.bias"),
    (TOKEN_EXPERTS, "model.layers.{}.ffn.gate.tid2eid"),
    (TOKEN_EXPERTS, "layers.{}.ffn.gate.tid2eid"),
    (EXPERT_GATE, "model.layers.{}.ffn.experts.{e}.w1"),
    (EXPERT_GATE, "layers.{}.ffn.experts.{e}.w1"),
    (EXPERT_DOWN, "model.layers.{}.ffn.experts.{e}.w2"),
    (EXPERT_DOWN, "layers.{}.ffn.experts.{e}.w2"),
    (EXPERT_UP, "model.layers.{}.ffn.experts.{e}.w3"),
    (EXPERT_UP, "layers.{}.ffn.experts.{e}.w3"),
    (SHARED_GATE, "model.layers.{}.ffn.shared_experts.w1"),
    (SHARED_GATE, "layers.{}.ffn.shared_experts.w1"),
    (SHARED_DOWN, "model.layers.{}.ffn.shared_experts.w2"),
    (SHARED_DOWN, "layers.{}.ffn.shared_experts.w2"),
    (SHARED_UP, "model.layers.{}.ffn.shared_experts.w3"),
    (SHARED_UP, "layers.{}.ffn.shared_experts.w3"),
];
