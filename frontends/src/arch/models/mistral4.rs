//! Mistral 4 (Mistral AI, 2026), the text models: latent attention whose queries grow with the
//! position, experts chosen in groups by their probabilities.

use crate::arch::blocks::families::latent_experts::{EXPERTS, experts, probabilities, with_dense};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mistral4",
    class: "Mistral4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, EXPERTS, OWN],
    fixed: &[],
    goldens: &["mistral4"],
    names: Names(&[DEEPSEEK_EXPERTS, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 131_072, heads: 32, max_position: 1_048_576, ..LLAMA };
        let latent = Latent { q_rank: Some(1024), kv_rank: 256, nope: 64, rope: 64, value: 128, ..Latent::of(f) };
        let d = latent_decoder::decoder(f, defaults, latent)?;
        let (beta, step) = rope::tuning(f)?;
        let d = d.with_attention(|_, a| a.tuning = Some(Tuning { beta, shift: 0, step, power: false }));
        let router = probabilities(f, 4, 1.0)?;
        let experts = experts(f, &d, router, [128, 1, 2048])?;
        Ok(Box::new(with_dense(f, d, experts, 0)))
    },
};

const OWN: &[Field] = fields! { rope_interleave, llama_4_scaling_beta, partial_rotary_factor };
