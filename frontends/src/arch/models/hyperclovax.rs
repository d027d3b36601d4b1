//! HyperCLOVA X SEED Think (arXiv 2506.22403): Granite with norms after the blocks too.

use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{ATTN_POST_NORM, HUGGING_FACE, MLP_POST_NORM, Names, Table};
use crate::config::common::{self, ATTENTION, ATTENTION_BIAS, MLP, MLP_BIAS, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};

pub(crate) const ARCH: Arch = Arch {
    model_type: "hyperclovax",
    class: "HyperCLOVAXForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, OWN],
    fixed: &[],
    goldens: &["hyperclovax"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let (attention, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let mut d = Decoder::read(f, &Defaults { vocab: Some(32_000), heads: Some(32), ..Defaults::LLAMA })?;
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
        let d = d.with_attention(|_, a| {
            (a.qkv_bias, a.out_bias, a.scale) = (attention, attention, scale.unwrap_or(a.scale));
        });
        Ok(Box::new(d.with_mlp(|m| m.bias = mlp)))
    },
};

const OWN: &[Field] = &[
    Field::new("embedding_multiplier", Accepts::Number),
    Field::new("residual_multiplier", Accepts::Number),
    Field::new("attention_multiplier", Accepts::Number),
    Field::new("logits_scaling", Accepts::Number),
    Field::new("use_post_norm", Accepts::Flag),
];

const NAMES: Table = &[(ATTN_POST_NORM, "model.layers.{}.post_norm1"), (MLP_POST_NORM, "model.layers.{}.post_norm2")];
