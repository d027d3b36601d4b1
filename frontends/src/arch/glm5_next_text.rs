//! GLM-5.3 (Z.ai, 2026), the text model: several residual streams, Kimi's delta attention in most
//! layers, latent attention without positions in the others, limited activations, experts as
//! DeepSeek-V3 has them.
//!
//! Latent attention reads pools of tokens that an indexer selects, and those of the last pool:
//! contexts of which none is left out are compiled.

use super::blocks::norm;
use super::decoder::{self, Decoder, Defaults};
use super::ends::gathered;
use super::entry::{Arch, Shape};
use super::experts::{CORRECTION, Experts, Shared, mixture, sparse_by_types};
use super::kimi_delta::{self, KimiDelta};
use super::latent::{self, LATENT, Latent};
use super::latent_experts::{MIXTURE, experts, sigmoids};
use super::lifter::Lifter;
use super::limits::Limits;
use super::mixed::{Context, mixed};
use super::mixer::Mixer;
use super::mlp::mlp;
use super::names::{ATTN_NORM, DEEPSEEK_EXPERTS, HUGGING_FACE, Kind, MLP_NORM, NORM, Names, Table};
use super::selected::{Selection, dense_of};
use super::streams::{self, ATTN_SITE, MLP_SITE, STREAMS, Streams};
use super::yields::Yields;
use crate::config::ConfigError;
use crate::config::common::{self, ATTENTION_BIAS, DIVIDED, Facts, MLP, MODEL};
use crate::config::fields::{Accepts, Field, Fields, Given, IDENTITY};
use crate::config::known::{self, Neutral};
use crate::error::FrontendError;
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::output::Pool;

pub(super) const ARCH: Arch = Arch {
    model_type: "glm5_next_text",
    class: "Glm5NextForConditionalGeneration",
    fields: &[IDENTITY, MODEL, DIVIDED, MLP, ATTENTION_BIAS, LATENTS, MIXTURE, STREAMS, OWN],
    fixed: &[
        // Nothing is rotated, and the size of a head says nothing.
        ("head_dim", Neutral::Any),
        ("rope_theta", Neutral::Any),
        ("rope_scaling", Neutral::Any),
        ("rope_parameters", Neutral::Any),
        ("rope_interleave", Neutral::Any),
        ("mlp_bias", Neutral::Off),
        ("scoring_func", Neutral::Words(&["sigmoid"])),
        ("topk_method", Neutral::Words(&["noaux_tc"])),
        ("moe_layer_freq", Neutral::One),
        ("index_n_heads", Neutral::Any),
        ("index_head_dim", Neutral::Any),
        ("index_topk_freq", Neutral::Any),
        ("index_topk_pattern", Neutral::Any),
        ("index_skip_topk_offset", Neutral::Any),
        ("indexer_types", Neutral::Any),
    ],
    goldens: &["glm5_next_text"],
    names: Names(&[NAMES, streams::NAMES, kimi_delta::NAMES, DEEPSEEK_EXPERTS, latent::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(154_880),
            heads: Some(64),
            head_dim: Some(256),
            max_position: 1 << 20,
            eps: 1e-5,
            ..Defaults::LLAMA
        };
        let d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        let latent = Latent { nope: 256, rope: 0, value: 256, eps: d.norm.eps, ..Latent::DEEPSEEK };
        let latent = Latent { bias: f.flag("attention_bias"), interleaved: false, ..latent };
        let (latent, heads) = Latent::read(f, f.size_or("num_attention_heads", Some(64))?, latent)?;
        if latent.q_rank.is_none() {
            return Err(f.unsupported("q_lora_rank", "null".into(), "this architecture has a number there".into()));
        }
        let d = d
            .with_attention(|_, a| (a.heads, a.scale, a.rotary, a.latent) = (heads, heads.scale(), None, Some(latent)));
        let limits = Some(Limits::Entering(f.factor_or("swiglu_limit", 10.0)? as f32));
        let d = d.with_mlp(|m| m.limits = limits);
        let (delta, linear) = (delta(f)?, linear_layers(f, d.facts.layers)?);
        let d = selected(f, d.with_mixers(|i| linear[i].then_some(Mixer::Kimi(delta))), &linear)?;
        let experts = experts(f, &d, sigmoids(f, 8, 2.5)?, [288, 1, 2048])?;
        let shared = experts.shared.map(|shared| Shared { limits, ..shared });
        let experts = Experts { correction: Some(CORRECTION), limits, shared, ..experts };
        let sparse = sparse_by_types(f, d.facts.layers, 3)?;
        let streams = Streams::read(f, d.norm.eps)?;
        Ok(Box::new(Glm5Next { decoder: d.with_experts(|i| sparse[i].then_some(experts)), streams }))
    },
};

/// Of latent attention, of which nothing is rotated.
const LATENTS: &[Field] =
    &[LATENT[0], LATENT[1], LATENT[2], Field::new("qk_rope_head_dim", Accepts::Count), LATENT[4], LATENT[5]];

const OWN: &[Field] = &[
    Field::new("swiglu_limit", Accepts::Number),
    Field::new("mlp_layer_types", Accepts::Any),
    Field::new("layer_types", Accepts::ListOf(&["linear_attention", "indexed_attention", "full_attention", WINDOW])),
    Field::new("index_topk", Accepts::Size(1 << 24)),
    Field::new(POOL, Accepts::Size(1 << 24)),
    Field::new(TAIL, Accepts::Flag),
    Field::new("linear_attn_config", Accepts::Object),
    Field::new("linear_num_heads", Accepts::Size(1 << 14)),
    Field::new("linear_head_dim", Accepts::Size(1 << 14)),
    Field::new("linear_conv_kernel_dim", Accepts::Size(64)),
    Field::new("linear_lower_bound", Accepts::Number),
];

/// Refused with a word of its own.
const WINDOW: &str = "sliding_attention";

/// Tokens of a pool.
const POOL: &str = "index_kpool";
/// The tokens of the last pool are read, which is not whole.
const TAIL: &str = "index_kpool_always_select_tail";

/// What published files say of delta attention is in this object.
const OBJECT: &str = "linear_attn_config.";

const DELTA: &[Field] = &[
    Field::new("num_heads", Accepts::Size(1 << 14)),
    Field::new("head_dim", Accepts::Size(1 << 14)),
    Field::new("short_conv_kernel_size", Accepts::Size(64)),
    Field::new("gate_lower_bound", Accepts::Number),
    Field::new("safe_gate", Accepts::Flag),
];

const NAMES: Table = &[(CORRECTION, "model.layers.{}.mlp.gate.e_score_correction_bias")];

/// The delta attention: what its object says comes before the fields that Transformers writes.
fn delta(f: &Fields) -> Result<KimiDelta, ConfigError> {
    const FLOOR: f64 = -5.0;
    let own = match f.object("linear_attn_config") {
        Some(map) => {
            let own = f.inside(map, OBJECT, &[DELTA])?;
            f.leave(known::unread_inside(map, OBJECT, |name| own.reads(name), &[]));
            Some(own)
        }
        None => None,
    };
    let size = |inside: &str, name: &str, default| {
        own.as_ref().and_then(|own| own.size(inside).value()).unwrap_or(f.size(name).or(default))
    };
    let conv = size("short_conv_kernel_size", "linear_conv_kernel_dim", 4);
    if conv < 2 {
        return Err(f.invalid("linear_conv_kernel_dim", &conv, "at least 2".into()));
    }
    let floor = match f.get("linear_lower_bound") {
        Given::Absent => Some(FLOOR),
        Given::Null | Given::Value(_) => f.number("linear_lower_bound"),
    };
    let floor = own.as_ref().map_or(floor, |own| {
        let floor = match own.get("gate_lower_bound") {
            Given::Absent => floor,
            Given::Null | Given::Value(_) => own.number("gate_lower_bound"),
        };
        floor.or(own.flag_or("safe_gate", true).then_some(FLOOR))
    });
    Ok(KimiDelta {
        heads: size("num_heads", "linear_num_heads", 64),
        dim: size("head_dim", "linear_head_dim", 128),
        conv,
        act: common::activation(f, "hidden_act", UnaryOp::Silu),
        rates: Kind::Bare,
        low_rank: [true; 2],
        floor: floor.map(|floor| floor as f32),
    })
}

/// Which layers have it: three of four.
fn linear_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let types = common::layer_types(f, layers)?;
    if types.as_ref().is_some_and(|types| types.contains(&WINDOW)) {
        let help = "this architecture has delta attention and attention that selects".to_string();
        return Err(f.unsupported("layer_types", WINDOW.into(), help));
    }
    let linear = types.map(|types| types.iter().map(|t| *t == "linear_attention").collect());
    Ok(linear.unwrap_or_else(|| (0..layers).map(|i| i % 4 != 3).collect()))
}

/// For contexts of which nothing is left out, if any layer selects: as many whole pools as are selected,
/// and the beginning of one more.
fn selected(f: &Fields, d: Decoder, linear: &[bool]) -> Result<Decoder, ConfigError> {
    if linear.iter().all(|linear| *linear) {
        return Ok(d);
    }
    let (tokens, pool) = (f.size("index_topk").or(2048), f.size(POOL).or(16));
    if !tokens.is_multiple_of(pool) {
        return Err(f.invalid("index_topk", &tokens, format!("a multiple of `{POOL}` ({pool})")));
    }
    if pool > 1 && !f.flag_or(TAIL, true) {
        let help = "tokens of a pool that is not whole would be left out of any context, which is not compiled";
        return Err(f.unsupported(TAIL, "false".into(), help.into()));
    }
    let field = "index_topk` by `index_kpool";
    Ok(dense_of(f, d, Selection { tokens: tokens.saturating_add(pool - 1), field }))
}

/// A decoder whose blocks mix several residual streams.
#[derive(Debug)]
struct Glm5Next {
    decoder: Decoder,
    streams: Streams,
}

impl Shape for Glm5Next {
    fn facts(&self) -> &Facts {
        &self.decoder.facts
    }

    fn yields(&self) -> Yields {
        Yields::LogitsOrRows(Pool::Last)
    }

    fn chooses(&self, tensor: &str) -> bool {
        self.decoder.chooses(tensor)
    }

    /// Each block is a function of its own: kernels are chosen for one at a time.
    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (d, hidden) = (&self.decoder, self.decoder.facts.hidden);
        let (x, ropes) = decoder::embedding(l, d)?;
        let mut f = l.func("streams");
        let x = f.carried("x", &x);
        let x = self.streams.begin(&mut f, x);
        let mut x = f.call(&[x])?.pop().unwrap_or_default();
        for (i, spec) in d.layers.iter().enumerate() {
            let mut f = l.layer("attend", i);
            let streams = f.carried("x", &x);
            let context = Context::of(&mut f, spec, &ropes);
            let y = self.streams.around(&mut f, ATTN_SITE, streams, |f, h| {
                let h = norm(f, ATTN_NORM, d.norm, h, hidden);
                mixed(f, d.norm, spec, context, h)
            });
            x = f.call(&[y])?.pop().unwrap_or_default();
            let mut f = l.layer("feed", i);
            let streams = f.carried("x", &x);
            let y = self.streams.around(&mut f, MLP_SITE, streams, |f, h| {
                let h = norm(f, MLP_NORM, d.norm, h, hidden);
                match &spec.experts {
                    Some(experts) => mixture(f, experts, h, h),
                    None => mlp(f, &spec.mlp, h),
                }
            });
            x = f.call(&[y])?.pop().unwrap_or_default();
        }
        let mut f = l.func("head");
        let x = f.carried("x", &x);
        let x = gathered(&mut f, x);
        let x = self.streams.mean(&mut f, x);
        let x = norm(&mut f, NORM, d.norm, x, hidden);
        decoder::output(f, d, x)
    }
}

#[cfg(test)]
mod tests {
    use crate::arch::Model;
    use crate::testing::{config, with};
    use serde_json::json;

    const ARCH: &str = "glm5_next_text";

    /// Published files have the delta attention in an object.
    #[test]
    fn delta_attention_in_an_object() {
        let shape = |changes| format!("{:?}", Model::parse(&with(config(ARCH), changes)).unwrap());
        let delta = |heads: usize, floor| {
            let flat = json!({ "linear_num_heads": heads, "linear_head_dim": 20, "linear_conv_kernel_dim": 3 });
            with(flat, json!({ "linear_lower_bound": floor }))
        };
        let object = |rest| {
            let own = json!({ "num_heads": 5, "head_dim": 20, "short_conv_kernel_size": 3 });
            with(delta(7, json!(-2.0)), json!({ "linear_attn_config": with(own, rest) }))
        };
        assert_eq!(shape(object(json!({ "gate_lower_bound": -0.5 }))), shape(delta(5, json!(-0.5))));
        // What it does not say, the fields beside it do.
        assert_eq!(shape(object(json!({}))), shape(delta(5, json!(-2.0))));
        // A gate is safe with a bound, where nothing else is said.
        assert_eq!(shape(object(json!({ "gate_lower_bound": null }))), shape(delta(5, json!(-5.0))));
        let free = object(json!({ "gate_lower_bound": null, "safe_gate": false }));
        assert_eq!(shape(free), shape(delta(5, json!(null))));
    }

    #[test]
    fn contexts_end_where_tokens_would_be_left_out() {
        let layers = json!({ "layer_types": ["linear_attention", "full_attention"] });
        let read = |changes| Model::parse(&with(with(config(ARCH), layers.clone()), changes));
        let most = |topk: usize, pool: usize| {
            let m = read(json!({ "index_topk": topk, "index_kpool": pool })).unwrap();
            (m.facts().max_position, m.unread)
        };
        // Whole pools, and all of one more but its last token.
        assert_eq!(most(52, 13), (64, vec![]));
        let (tokens, said) = most(40, 8);
        assert_eq!(tokens, 47);
        let start = "`index_topk` by `index_kpool` selects 47 tokens: contexts are no longer than that";
        assert!(said[0].starts_with(start), "{said:?}");
        for (changes, wanted) in [
            (json!({ "index_topk": 50 }), "a multiple of `index_kpool` (13)"),
            (json!({ "index_kpool_always_select_tail": false }), "would be left out of any context"),
            (json!({ "qk_rope_head_dim": 8 }), "this architecture has no rotated part"),
            (json!({ "q_lora_rank": null }), "this architecture has a number there"),
        ] {
            let error = read(changes).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        // Pools of one token are whole.
        let single = json!({ "index_kpool": 1, "index_kpool_always_select_tail": false, "index_topk": 30 });
        assert_eq!(read(single).unwrap().facts().max_position, 30);
        // Without a layer that selects there is no limit.
        let linear = json!({ "layer_types": ["linear_attention", "linear_attention"], "index_topk": 26 });
        assert_eq!(read(linear).unwrap().facts().max_position, 64);
    }
}
