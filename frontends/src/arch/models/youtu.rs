//! Youtu-LLM (arXiv 2512.24618): Llama with latent attention.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "youtu",
    class: "YoutuForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, fields! { rope_interleave }],
    fixed: &[("mlp_bias", Neutral::Off)],
    goldens: &["youtu"],
    names: Names(&[latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 128_256, heads: 16, max_position: 131_072, tied: true, ..LLAMA };
        let latent = Latent::of(f);
        Ok(Box::new(latent_decoder::decoder(f, defaults, latent)?))
    },
};
