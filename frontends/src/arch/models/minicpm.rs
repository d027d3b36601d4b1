//! MiniCPM (arXiv 2404.06395): Llama with scales of embeddings, residuals and logits.
//!
//! Checked against Transformers' Granite with the same scales, which it has no class for MiniCPM.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "minicpm",
    class: "MiniCPMForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, SCALES],
    // Attention to a part of the sequence, of later models.
    fixed: &[("sparse_config", Neutral::Off)],
    goldens: &["minicpm"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 32_000, heads: 32, tied: true, ..LLAMA };
        let bias = f.flag("attention_bias");
        let mut d = Decoder::read(f, &defaults)?;
        d.scales.embedding = common::factor(f, "scale_emb")?;
        let depth = f.factor_or("scale_depth", 1.0)?;
        d.scales.residual = Some((depth / (d.facts.layers as f64).sqrt()) as f32);
        let base = f.factor_or("dim_model_base", 1.0)?;
        d.scales.logits = Some((base / d.facts.hidden as f64) as f32);
        Ok(Box::new(d.with_attention_bias(bias)))
    },
};

const SCALES: &[Field] = fields! { scale_emb, scale_depth, dim_model_base };
