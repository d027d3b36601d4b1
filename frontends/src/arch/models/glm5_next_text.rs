//! GLM-5.3 (Z.ai, 2026), the text model: several residual streams, Kimi's delta attention in most layers, latent
//! attention without positions in the others, limited activations, experts as in DeepSeek-V3.
//!
//! Latent attention reads pools of tokens that an indexer selects, and the tokens of the last pool:
//! only contexts in which none is dropped are compiled.

mod delta;
#[cfg(test)]
mod tests;

use crate::arch::blocks::embedding_and_head::gathered;
use crate::arch::blocks::families::indexer::{Selection, dense_of};
use crate::arch::blocks::families::latent_experts::{MIXTURE, experts, sigmoids};
use crate::arch::blocks::hyper_connections::{self, ATTEND, FEED, STREAMS, Streams};
use crate::arch::blocks::kimi_delta;
use crate::arch::blocks::prelude::*;
use delta::delta;

pub(crate) const ARCH: Arch = Arch {
    model_type: "glm5_next_text",
    class: "Glm5NextForConditionalGeneration",
    fields: &[IDENTITY, MODEL, DIVIDED, MLP, ATTENTION_BIAS, LATENTS, MIXTURE, STREAMS, OWN],
    fixed: fixed! {
        // Nothing is rotated, and the size of a head says nothing.
        Any => head_dim;
        Any => rope_theta rope_scaling rope_parameters rope_interleave index_n_heads index_head_dim index_topk_freq
            index_topk_pattern index_skip_topk_offset indexer_types;
        Off => mlp_bias;
        Words(&["sigmoid"]) => scoring_func;
        Words(&["noaux_tc"]) => topk_method;
        One => moe_layer_freq;
    },
    goldens: &["glm5_next_text"],
    names: Names(&[
        DEEPSEEK_CORRECTION,
        hyper_connections::NAMES,
        kimi_delta::NAMES,
        DEEPSEEK_EXPERTS,
        latent_attention::NAMES,
        HUGGING_FACE,
    ]),
    read: |f| {
        let defaults = defaults! {
            vocab: 154_880, heads: 64, head_dim: 256, max_position: 1 << 20, eps: 1e-5, ..LLAMA
        };
        let d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        silu_alone(f, &d)?;
        let latent = Latent { nope: 256, rope: 0, value: 256, eps: d.norm.eps, ..Latent::DEEPSEEK };
        let latent = Latent { bias: f.flag("attention_bias"), interleaved: false, ..latent };
        let (latent, heads) = Latent::read(f, f.size_or("num_attention_heads", Some(64))?, latent)?;
        if latent.q_rank.is_none() {
            return Err(f.unsupported("q_lora_rank", "null".into(), "this architecture expects a number".into()));
        }
        let d = d.with_attention(|_, a| {
            (a.heads, a.scale, a.rotary, a.form) = (heads, heads.scale(), None, Form::Latent(latent))
        });
        let limits = Some(Limits::Entering(f.factor_or("swiglu_limit", 10.0)? as f32));
        let d = d.with_mlp(|m| m.limits = limits);
        let (delta, linear) = (delta(f)?, linear_layers(f, d.facts.layers)?);
        let d = selected(f, d.with_mixers(|i| linear[i].then_some(Mixer::Kimi(delta))), &linear)?;
        let experts = experts(f, &d, sigmoids(f, 8, 2.5)?, [288, 1, 2048])?;
        let shared = experts.shared.map(|shared| Shared { limits, ..shared });
        let experts = Experts { correction: Some(CORRECTION), limits, shared, ..experts };
        let decoder = d.with_sparse(f, 3, experts)?;
        let streams = Streams::read(f, decoder.norm.eps)?;
        Ok(Box::new(Glm5Next { decoder, streams }))
    },
};

/// Fields of latent attention, without rotation.
const LATENTS: &[Field] = fields! {
    q_lora_rank: latent_attention::WIDEST, kv_lora_rank: latent_attention::WIDEST,
    qk_nope_head_dim: latent_attention::WIDEST, qk_rope_head_dim: Accepts::Count,
    v_head_dim: latent_attention::WIDEST, qk_head_dim: latent_attention::WIDEST,
};

const OWN: &[Field] = fields! {
    swiglu_limit, mlp_layer_types,
    layer_types: Accepts::ListOf(&["linear_attention", "indexed_attention", "full_attention", WINDOW]), index_topk,
    index_kpool, index_kpool_always_select_tail, linear_attn_config, linear_num_heads, linear_head_dim,
    linear_conv_kernel_dim, linear_lower_bound,
};

/// Refused with a word of its own.
const WINDOW: &str = "sliding_attention";

/// Tokens of a pool.
const POOL: &str = "index_kpool";
/// The tokens of the last pool are read, which is not whole.
const TAIL: &str = "index_kpool_always_select_tail";

/// Which layers have delta attention: three of four.
fn linear_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let types = common::layer_types(f, layers)?;
    if types.as_ref().is_some_and(|types| types.contains(&WINDOW)) {
        let help = "this architecture supports delta attention and attention that selects".to_string();
        return Err(f.unsupported("layer_types", WINDOW.into(), help));
    }
    let linear = types.map(|types| types.iter().map(|t| *t == "linear_attention").collect());
    Ok(linear.unwrap_or_else(|| (0..layers).map(|i| i % 4 != 3).collect()))
}

/// Limits contexts to those in which nothing is dropped, if any layer selects: as many whole pools
/// as are selected, and the beginning of one more.
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
    answered_by! { decoder: facts yields chooses }

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
