//! Granite, dense (arXiv 2405.04324 and IBM's Granite 3): Llama with four multipliers.

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{self, ATTENTION, ATTENTION_BIAS, MLP, MLP_BIAS, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};

pub(super) const ARCH: Arch = Arch {
    model_type: "granite",
    class: "GraniteForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, MULTIPLIERS],
    fixed: &[],
    goldens: &["granite"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let (attention, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        // Instead of 1/√head_dim, also where the file does not say it.
        let scale = common::factor(f, "attention_multiplier")?.unwrap_or(1.0);
        let mut d = Decoder::read(f, &Defaults::LLAMA)?;
        d.scales.embedding = common::factor(f, "embedding_multiplier")?;
        d.scales.residual = common::factor(f, "residual_multiplier")?;
        d.scales.logits = common::factor(f, "logits_scaling")?.map(|x| 1.0 / x);
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.scale) = (attention, attention, scale));
        Ok(Box::new(d.with_mlp(|m| m.bias = mlp)))
    },
};

const MULTIPLIERS: &[Field] = &[
    Field::new("embedding_multiplier", Accepts::Number),
    Field::new("residual_multiplier", Accepts::Number),
    Field::new("attention_multiplier", Accepts::Number),
    Field::new("logits_scaling", Accepts::Number),
];
