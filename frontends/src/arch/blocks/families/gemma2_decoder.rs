//! Common parts of Gemma 2 and VaultGemma: soft caps on scores and logits, and windows in every
//! other layer.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::defaults::defaults;
use crate::config::ConfigError;
use crate::config::common;
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields, Given};
use crate::config::known::Neutral;

/// Fields of the first release's files with the same meaning as [`OWN`].
pub(crate) const FIXED: &[(&str, Neutral)] =
    &[("hidden_act", Neutral::Words(&["gelu_pytorch_tanh"])), ("sliding_window_size", Neutral::Any)];

/// The fields that [`read`] reads, of those that not all decoders have.
pub(crate) const OWN: &[Field] = fields! {
    intermediate_size, hidden_activation, rms_norm_eps, query_pre_attn_scalar, attn_logit_softcapping,
    final_logit_softcapping,
};

/// The decoder, with norms before the blocks.
pub(crate) fn read(f: &Fields) -> Result<Decoder, ConfigError> {
    let bias = f.flag("attention_bias");
    let defaults = defaults! {
        vocab: 256_000, heads: 8, kv_heads: 4, head_dim: 256, max_position: 8192, window: Most(4096, 2), tied: true,
        act(hidden_activation): GeluTanh, ..LLAMA
    };
    let scores = cap(f, "attn_logit_softcapping", 50.0)?;
    let mut d = Decoder::read(f, &defaults)?;
    (d.norm.from_one, d.scales.embedding_root) = (true, true);
    d.scales.cap = cap(f, "final_logit_softcapping", 30.0)?;
    let scale = (1.0 / f.factor_or("query_pre_attn_scalar", 256.0)?.sqrt()) as f32;
    Ok(d.with_heads(|_, a, h| {
        (h.qkv_bias, h.out_bias, a.scale) = (bias, bias, scale);
        h.with_dot(|s| s.softcap = scores);
    }))
}

/// A cap. Absent is not `null`, which is none.
fn cap(f: &Fields, name: &str, default: f32) -> Result<Option<f32>, ConfigError> {
    match f.get(name) {
        Given::Absent => Ok(Some(default)),
        Given::Null | Given::Value(_) => common::limit(f, name),
    }
}
