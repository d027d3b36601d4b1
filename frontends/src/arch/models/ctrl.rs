//! CTRL (arXiv 1909.05858): LayerNorm before the blocks, positions of sines and cosines, scaled embeddings,
//! ReLU without gate, biases everywhere.

use crate::arch::blocks::prelude::*;
use crate::arch::blocks::sinusoidal_positions::{Rates, Sines};

pub(crate) const ARCH: Arch = Arch {
    model_type: "ctrl",
    class: "CTRLLMHeadModel",
    fields: &[IDENTITY, GPT_MODEL, fields! { intermediate_size | dff, layer_norm_epsilon }],
    fixed: &[],
    goldens: &["ctrl"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! {
            vocab: 246_534, heads: 16, max_position: 256, tied: true, eps(layer_norm_epsilon): 1e-6, act: Relu, ..LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        d.norm = Norm::layer(d.norm.eps);
        // The file's value is for the last norm; the others have always had 1e-6.
        d.block_norms.own = Some([Norm::layer(1e-6); 2]);
        d.embedding.positions = Some(Positions::Sines(Sines { rates: Rates::BeforeNext, skip: 0, zero: None }));
        d.scales.embedding = Some((d.facts.hidden as f64).sqrt() as f32);
        d.head.bias = true;
        let d = d.with_heads(|_, a, h| (h.qkv_bias, h.out_bias, a.rotary) = (true, true, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const NAMES: Table = names! {
    "transformer." { TABLE => "w", NORM => "layernorm" }
    "" { HEAD => "lm_head" }
    "transformer.h.{}." {
        ATTN_NORM => "layernorm1", ATTN_Q => "multi_head_attention.Wq", ATTN_K => "multi_head_attention.Wk",
        ATTN_V => "multi_head_attention.Wv", ATTN_OUT => "multi_head_attention.dense", MLP_NORM => "layernorm2",
        MLP_UP => "ffn.0", MLP_DOWN => "ffn.2",
    }
};
