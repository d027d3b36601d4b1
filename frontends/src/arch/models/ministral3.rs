//! Ministral 3 (Mistral AI, 2025): Mistral without windows; queries grow with the logarithm of the
//! position beyond the context of pretraining.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ministral3",
    class: "Ministral3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW, fields! { llama_4_scaling_beta }],
    fixed: &[],
    goldens: &["ministral3"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 131_072, heads: 32, kv_heads: 8, head_dim: 128, max_position: 262_144, window: Given, eps: 1e-5,
            ..LLAMA
        };
        if rope::described(f)? {
            let (beta, step) = rope::tuning(f)?;
            let d = Decoder::read(f, &defaults)?;
            return Ok(Box::new(
                d.with_attention(|_, a| a.tuning = Some(Tuning { beta, shift: 0, step, power: false })),
            ));
        }
        // The class's default.
        let step = f.size("original_max_position_embeddings").or(16_384);
        let beta = f.number("llama_4_scaling_beta").unwrap_or(0.1);
        let scaling = RopeScaling::Yarn {
            factor: 16.0,
            attention_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original: step as f64,
            truncate: true,
        };
        let d = Decoder::read_with(f, &defaults, |heads, max| {
            Ok(vec![RopeConfig { scaling, ..rope::read(f, heads.dim, max, 1e6)? }])
        })?;
        Ok(Box::new(d.with_attention(|_, a| a.tuning = Some(Tuning { beta, shift: 0, step, power: false }))))
    },
};
