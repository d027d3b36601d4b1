//! What Gemma 2 and VaultGemma have in common: soft caps on scores and logits, and windows in every
//! other layer.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::config::ConfigError;
use crate::config::common::{self, ACTIVATIONS, RMS_NORM, WIDTH, WindowRule};
use crate::config::fields::{Accepts, Field, Fields, Given};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

/// What files of the first release say beside [`OWN`], and means the same.
pub(crate) const FIXED: &[(&str, Neutral)] =
    &[("hidden_act", Neutral::Words(&["gelu_pytorch_tanh"])), ("sliding_window_size", Neutral::Any)];

/// The fields that [`read`] reads, of those that not all decoders have.
pub(crate) const OWN: &[Field] = &[
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_activation", Accepts::OneOf(ACTIVATIONS)),
    RMS_NORM,
    Field::new("query_pre_attn_scalar", Accepts::Number).unless(Neutral::HeadDim),
    Field::new("attn_logit_softcapping", Accepts::Number),
    Field::new("final_logit_softcapping", Accepts::Number),
];

/// The decoder, with norms before the blocks.
pub(crate) fn read(f: &Fields) -> Result<Decoder, ConfigError> {
    let bias = f.flag("attention_bias");
    let defaults = Defaults {
        vocab: Some(256_000),
        heads: Some(8),
        kv_heads: Some(4),
        head_dim: Some(256),
        max_position: 8192,
        window: WindowRule::Most(4096, 2),
        tied: true,
        act: ("hidden_activation", UnaryOp::GeluTanh),
        ..Defaults::LLAMA
    };
    let scores = cap(f, "attn_logit_softcapping", 50.0)?;
    let mut d = Decoder::read(f, &defaults)?;
    (d.norm.from_one, d.scales.embedding_root) = (true, true);
    d.scales.cap = cap(f, "final_logit_softcapping", 30.0)?;
    let scale = (1.0 / f.factor_or("query_pre_attn_scalar", 256.0)?.sqrt()) as f32;
    Ok(d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.scale, a.softcap) = (bias, bias, scale, scores)))
}

/// A cap. Absent is not `null`, which is none.
fn cap(f: &Fields, name: &str, default: f32) -> Result<Option<f32>, ConfigError> {
    match f.get(name) {
        Given::Absent => Ok(Some(default)),
        Given::Null | Given::Value(_) => common::limit(f, name),
    }
}
