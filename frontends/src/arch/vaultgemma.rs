//! VaultGemma (arXiv 2510.15001): Gemma 2 with norms before the blocks only.

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names, SANDWICH_NORMS};
use crate::config::common::{
    self, ACTIVATIONS, ATTENTION, ATTENTION_BIAS, MODEL, RMS_NORM, ROTARY, WIDTH, WINDOW, WindowRule,
};
use crate::config::fields::{Accepts, Field, Fields, Given, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(super) const ARCH: Arch = Arch {
    model_type: "vaultgemma",
    class: "VaultGemmaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[("hidden_act", Neutral::Words(&["gelu_pytorch_tanh"]))],
    goldens: &["vaultgemma"],
    names: Names(&[SANDWICH_NORMS, HUGGING_FACE]),
    read: |f| {
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
        // Absent is not `null`, which is none.
        let cap = |f: &Fields, name: &str, default: f32| match f.get(name) {
            Given::Absent => Ok(Some(default)),
            Given::Null | Given::Value(_) => common::factor(f, name),
        };
        let scores = cap(f, "attn_logit_softcapping", 50.0)?;
        let mut d = Decoder::read(f, &defaults)?;
        (d.norm.from_one, d.scales.embedding_root) = (true, true);
        d.scales.cap = cap(f, "final_logit_softcapping", 30.0)?;
        let scale = (1.0 / f.factor_or("query_pre_attn_scalar", 256.0)?.sqrt()) as f32;
        Ok(Box::new(d.with_attention(|_, a| {
            (a.qkv_bias, a.out_bias, a.scale, a.softcap) = (bias, bias, scale, scores);
        })))
    },
};

const OWN: &[Field] = &[
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_activation", Accepts::OneOf(ACTIVATIONS)),
    RMS_NORM,
    Field::new("query_pre_attn_scalar", Accepts::Number).unless(Neutral::HeadDim),
    Field::new("attn_logit_softcapping", Accepts::Number),
    Field::new("final_logit_softcapping", Accepts::Number),
];
