//! GLM-5.3 (Z.ai, 2026), the text model: several residual streams, Kimi's delta attention in most
//! layers, latent attention without positions in the others, limited activations, experts as
//! DeepSeek-V3 has them.
//!
//! Latent attention reads pools of tokens that an indexer selects, and those of the last pool:
//! contexts of which none is left out are compiled.

mod delta;
#[cfg(test)]
mod tests;

use crate::arch::blocks::attention::norm;
use crate::arch::blocks::clamps::Limits;
use crate::arch::blocks::decoder::{self, Decoder, Defaults};
use crate::arch::blocks::decoder_experts::silu_alone;
use crate::arch::blocks::embedding_and_head::gathered;
use crate::arch::blocks::entry::{Arch, Shape};
use crate::arch::blocks::experts::{CORRECTION, Experts, Shared, mixture, sparse_by_types};
use crate::arch::blocks::families::indexer::{Selection, dense_of};
use crate::arch::blocks::families::latent_experts::{MIXTURE, experts, sigmoids};
use crate::arch::blocks::hyper_connections::{self, ATTEND, FEED, STREAMS, Streams};
use crate::arch::blocks::kimi_delta;
use crate::arch::blocks::latent_attention::{self, LATENT, Latent};
use crate::arch::blocks::lifter::{Draft, Lifter};
use crate::arch::blocks::mlp::mlp;
use crate::arch::blocks::names::{DEEPSEEK_EXPERTS, HUGGING_FACE, NORM, Names, Table};
use crate::arch::blocks::outputs::Yields;
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::arch::blocks::token_mixer::{Context, mixed};
use crate::config::ConfigError;
use crate::config::common::{self, ATTENTION_BIAS, DIVIDED, Facts, MLP, MODEL};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::error::FrontendError;
use delta::delta;
use llmcc_ir::output::Pool;

pub(crate) const ARCH: Arch = Arch {
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
    names: Names(&[
        NAMES,
        hyper_connections::NAMES,
        kimi_delta::NAMES,
        DEEPSEEK_EXPERTS,
        latent_attention::NAMES,
        HUGGING_FACE,
    ]),
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
        silu_alone(f, &d)?;
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

const NAMES: Table = &[(CORRECTION, "model.layers.{}.mlp.gate.e_score_correction_bias")];

/// Which layers have delta attention: three of four.
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

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (d, hidden) = (&self.decoder, self.decoder.facts.hidden);
        let (x, ropes) = decoder::embedding(l, d)?;
        let mut x = self.streams.begun(l, &x)?;
        for (i, spec) in d.layers.iter().enumerate() {
            let context = |f: &mut Draft| Context::of(f, spec, &ropes);
            let attend = |f: &mut Draft, context, h| mixed(f, d.norm, spec, context, h);
            x = self.streams.block(l, (ATTEND, i), (&x, d.norm), context, attend)?;
            let feed = |f: &mut Draft, (), h| match &spec.experts {
                Some(experts) => mixture(f, experts, h, h),
                None => mlp(f, &spec.mlp, h),
            };
            x = self.streams.block(l, (FEED, i), (&x, d.norm), |_| (), feed)?;
        }
        let mut f = l.func("head");
        let x = f.carried("x", &x);
        let x = gathered(&mut f, x);
        let x = self.streams.mean(&mut f, x);
        let x = norm(&mut f, NORM, d.norm, x, hidden);
        decoder::output(f, d, x)
    }
}
