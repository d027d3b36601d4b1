//! HyperCLOVA X SEED Think (arXiv 2506.22403): Granite with norms after the blocks too.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "hyperclovax",
    class: "HyperCLOVAXForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, OWN],
    fixed: &[],
    goldens: &["hyperclovax"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let mut d = Decoder::read(f, &defaults! { vocab: 32_000, heads: 32, ..LLAMA })?;
        // Unlike Granite's, this one multiplies.
        d.scales.logits = common::factor(f, "logits_scaling")?;
        d.scales.embedding = common::factor(f, "embedding_multiplier")?;
        d.scales.residual = common::factor(f, "residual_multiplier")?;
        if f.flag_or("use_post_norm", true) {
            d.norms = Norms::Both;
        }
        let scale = match f.number("attention_multiplier") {
            Some(_) => Some(common::factor(f, "attention_multiplier")?.unwrap_or(1.0)),
            None => None,
        };
        Ok(Box::new(d.with_biases(f).with_attention(|_, a| a.scale = scale.unwrap_or(a.scale))))
    },
};

const OWN: &[Field] = fields! {
    embedding_multiplier, residual_multiplier, attention_multiplier, logits_scaling, use_post_norm,
};

const NAMES: Table = names! { "model.layers.{}." { ATTN_POST_NORM => "post_norm1", MLP_POST_NORM => "post_norm2" } };
