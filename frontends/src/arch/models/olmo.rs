//! OLMo (arXiv 2402.00838): Llama with a LayerNorm that has neither gain nor bias.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{HUGGING_FACE, Names};
use crate::config::common::{self, ACTIVATIONS, ATTENTION, ATTENTION_BIAS, MODEL, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};

pub(crate) const ARCH: Arch = Arch {
    model_type: "olmo",
    class: "OlmoForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, OWN],
    fixed: &[],
    goldens: &["olmo"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let mut d = Decoder::read(f, &Defaults { eps: 1e-5, ..Defaults::LLAMA })?;
        d.norm = Norm { gain: false, bias: false, ..Norm::layer(d.norm.eps) };
        let clip = common::limit(f, "clip_qkv")?;
        Ok(Box::new(d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.clip) = (bias, bias, clip))))
    },
};

const OWN: &[Field] = &[
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("clip_qkv", Accepts::Number),
];
