//! Mistral 4 (Mistral AI, 2026), the text models: latent attention whose queries grow with the
//! position, experts chosen in groups by their probabilities.

use crate::arch::blocks::attention::Tuning;
use crate::arch::blocks::families::latent_experts::{EXPERTS, experts, with_dense};
use crate::arch::blocks::prelude::*;
use crate::config::rope;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mistral4",
    class: "Mistral4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, EXPERTS, OWN],
    fixed: &[],
    goldens: &["mistral4"],
    names: Names(&[DEEPSEEK_EXPERTS, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 131_072, heads: 32, max_position: 1_048_576, ..LLAMA };
        let latent = Latent {
            q_rank: Some(1024),
            kv_rank: 256,
            nope: 64,
            rope: 64,
            value: 128,
            interleaved: f.flag_or("rope_interleave", true),
            bias: f.flag("attention_bias"),
            ..Latent::DEEPSEEK
        };
        let d = latent_decoder::decoder(f, defaults, latent)?;
        let (beta, step) = rope::tuning(f)?;
        let d = d.with_attention(|_, a| a.tuning = Some(Tuning { beta, shift: 0, step, power: false }));
        let router = Router {
            eps: F32::new(1e-20),
            scale: F32::new(f.factor_or("routed_scaling_factor", 1.0)? as f32),
            groups: f.size("n_group").or(1),
            kept: f.size("topk_group").or(1),
            pairs: f.size("n_group").or(1) > 1,
            ..Router::softmax(f.size("num_experts_per_tok").or(4), f.flag_or("norm_topk_prob", true))
        };
        let experts = experts(f, &d, router, [128, 1, 2048])?;
        Ok(Box::new(with_dense(f, d, experts, 0)))
    },
};

const OWN: &[Field] = fields! { rope_interleave, llama_4_scaling_beta, partial_rotary_factor };
