//! Muse Glimmer (Meta, 2026): norms on both sides of the blocks, of embeddings, queries and keys, a
//! gate of attention's result, windows in most layers, positions rotated there only.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "muse_glimmer_text",
    class: "MuseGlimmerForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[],
    goldens: &["muse_glimmer"],
    names: Names(&[NAMES, SANDWICH_NORMS, POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 202_048, heads: 32, kv_heads: 2, head_dim: 128, max_position: 131_072, eps: 1e-5,
            act(hidden_activation): Silu, ..LLAMA
        };
        Ok(Box::new(decoder(f, &defaults, [0.196_116_135_138_184_04, 3.87])?))
    },
};

/// The decoder; factors of logits and queries are defaults.
pub(crate) fn decoder(
    f: &Fields,
    default: &Defaults,
    [of_logits, of_queries]: [f64; 2],
) -> Result<Decoder, ConfigError> {
    let mut d = Decoder::read(f, default)?;
    let before = Norm { from_one: true, ..d.norm };
    let after = Norm { eps: common::eps(f, "post_norm_eps", 1e-8)?, ..before };
    (d.norms, d.block_norms.own) = (Norms::Both, Some([before, after]));
    d.embedding.norm = Some(Norm { gain: false, ..d.norm });
    d.scales.logits = Some(f.factor_or("output_multiplier", of_logits)? as f32);
    d.scales.cap = common::limit(f, "final_logit_softcapping")?.or(Some(20.0));
    let layers = d.facts.layers;
    let (bias, window) = (f.flag("attention_bias"), f.size("sliding_window").or_null(2048));
    let of_queries = f.factor_or("qk_scale_factor", of_queries)?;
    let full = |i: usize| (layers - 1 - i).is_multiple_of(4);
    let sliding = common::sliding_layers(f, layers)?;
    let bases = f.numbers(BASES);
    if let Some(list) = bases.as_ref().filter(|list| list.len() != layers) {
        return Err(f.invalid(BASES, list, format!("{layers} bases, 0 where positions are not rotated")));
    }
    Ok(d.with_heads(|i, a, h| {
        (h.qkv_bias, h.out_bias, h.qk_norm, a.gate) = (bias, bias, Some(QkNorm::Bare), Some(Gate::Columns));
        a.scale = (of_queries / (a.heads.dim as f64).sqrt()) as f32;
        let slides = sliding.as_ref().map_or(!full(i), |s| s[i]);
        let rotates = bases.as_ref().map_or(!full(i), |b| b[i] != 0.0);
        (a.window, a.rotary) = (window.filter(|_| slides), rotates.then_some(0));
    }))
}

/// Its class rotates by the base of all layers where this is not 0.
const BASES: &str = "layer_rope_theta";

/// The fields that [`decoder`] reads, beside those that are shared.
pub(crate) const OWN: &[Field] = fields! {
    intermediate_size, hidden_activation | hidden_act, rms_norm_eps, post_norm_eps, qk_scale_factor,
    output_multiplier, final_logit_softcapping, layer_rope_theta,
};

pub(crate) const NAMES: Table = names! { "model.layers.{}." { ATTN_GATE => "self_attn.gate_proj" } };
