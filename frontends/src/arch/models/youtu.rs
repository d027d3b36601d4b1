//! Youtu-LLM (arXiv 2512.24618): Llama with latent attention.

use crate::arch::blocks::decoder::Defaults;
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::latent_attention::{self, LATENT, Latent};
use crate::arch::blocks::latent_decoder;
use crate::arch::blocks::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "youtu",
    class: "YoutuForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, INTERLEAVED],
    fixed: &[("mlp_bias", Neutral::Off)],
    goldens: &["youtu"],
    names: Names(&[latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults =
            Defaults { vocab: Some(128_256), heads: Some(16), max_position: 131_072, tied: true, ..Defaults::LLAMA };
        let latent = Latent {
            interleaved: f.flag_or("rope_interleave", true),
            bias: f.flag("attention_bias"),
            ..Latent::DEEPSEEK
        };
        Ok(Box::new(latent_decoder::decoder(f, defaults, latent)?))
    },
};

const INTERLEAVED: &[Field] = &[Field::new("rope_interleave", Accepts::Flag)];
