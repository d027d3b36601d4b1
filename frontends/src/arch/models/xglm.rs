//! XGLM (arXiv 2112.10668): LayerNorm before the blocks, positions of sines and cosines from row 2 of
//! their table on, scaled embeddings, biases everywhere but in the head.

use crate::arch::blocks::prelude::*;
use crate::arch::blocks::sinusoidal_positions::{Rates, Sines};

pub(crate) const ARCH: Arch = Arch {
    model_type: "xglm",
    class: "XGLMForCausalLM",
    fields: &[IDENTITY, OWN],
    fixed: &[],
    goldens: &["xglm"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! {
            vocab: 256_008, heads: 16, max_position: 2048, tied: true, eps: 1e-5, act: Gelu, ..LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        d.norm = Norm::layer(d.norm.eps);
        // The row of the number that padding has is one of zeros; published files have 1, which no position gets.
        d.embedding.positions = Some(Positions::Sines(Sines {
            rates: Rates::ToLast,
            skip: 2,
            zero: f.count("pad_token_id").filter(|n| *n >= 2),
        }));
        let scaled = f.flag_or("scale_embedding", true);
        d.scales.embedding = scaled.then(|| (d.facts.hidden as f64).sqrt() as f32);
        let d = d.with_heads(|_, a, h| (h.qkv_bias, h.out_bias, a.rotary) = (true, true, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = fields! {
    _name_or_path, quantization_config, vocab_size, hidden_size | d_model, num_hidden_layers | num_layers,
    num_attention_heads | attention_heads, intermediate_size | ffn_dim, hidden_act | activation_function,
    max_position_embeddings, tie_word_embeddings, bos_token_id, eos_token_id, pad_token_id, scale_embedding,
};

const NAMES: Table = names! {
    "model." { TABLE => "embed_tokens", NORM => "layer_norm" }
    "" { HEAD => "lm_head" }
    "model.layers.{}." {
        ATTN_NORM => "self_attn_layer_norm", ATTN_Q => "self_attn.q_proj", ATTN_K => "self_attn.k_proj",
        ATTN_V => "self_attn.v_proj", ATTN_OUT => "self_attn.out_proj", MLP_NORM => "final_layer_norm",
        MLP_UP => "fc1", MLP_DOWN => "fc2",
    }
};
