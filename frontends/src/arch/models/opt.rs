//! OPT (arXiv 2205.01068): LayerNorm before the blocks, learned positions from row 2 of their table
//! on, ReLU without gate, biases. The model of 350M has norms after the residual addition, and rows
//! of its table are narrower than the layers.

use crate::arch::blocks::decoder::{NARROW, WIDEN};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "opt",
    class: "OPTForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, OWN],
    fixed: &[],
    goldens: &["opt", "opt_350m"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! {
            vocab: 50272, heads: 12, max_position: 2048, tied: true, eps: 1e-5, act: Relu, ..LLAMA
        };
        let (bias, affine) = (f.flag_or("enable_bias", true), f.flag_or("layer_norm_elementwise_affine", true));
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        d.norm = Norm { gain: affine, bias: affine, ..Norm::layer(d.norm.eps) };
        d.embedding.positions = Some(Positions::Learned(2));
        let before = f.flag_or("do_layer_norm_before", true);
        d.head.norm = before && !f.flag("_remove_final_layer_norm");
        if !before {
            d.norms = Norms::Around;
        }
        d.embedding.narrow = f.size("word_embed_proj_dim").value().filter(|n| *n != d.facts.hidden);
        let d = d.with_heads(|_, a, h| (h.qkv_bias, h.out_bias, a.rotary) = (bias, bias, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, bias))))
    },
};

const OWN: &[Field] = fields! {
    intermediate_size | ffn_dim, hidden_act | activation_function, enable_bias, layer_norm_elementwise_affine,
    do_layer_norm_before, _remove_final_layer_norm, word_embed_proj_dim,
};

/// As the class for text generation saves them, and as they are published.
const NAMES: Table = names! {
    "model.decoder." | "decoder." {
        TABLE => "embed_tokens", POSITIONS => "embed_positions", WIDEN => "project_in", NARROW => "project_out",
        NORM => "final_layer_norm",
    }
    "" { HEAD => "lm_head" }
    "model.decoder.layers.{}." | "decoder.layers.{}." {
        ATTN_NORM => "self_attn_layer_norm", ATTN_Q => "self_attn.q_proj", ATTN_K => "self_attn.k_proj",
        ATTN_V => "self_attn.v_proj", ATTN_OUT => "self_attn.out_proj", MLP_NORM => "final_layer_norm",
        MLP_UP => "fc1", MLP_DOWN => "fc2",
    }
};
