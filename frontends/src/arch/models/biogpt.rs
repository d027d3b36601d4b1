//! BioGPT (arXiv 2210.10341): OPT's decoder with scaled embeddings and an activation that is not cut.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "biogpt",
    class: "BioGptForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, fields! { intermediate_size, hidden_act, scale_embedding }],
    // Files say 1e-12, but the norms of the class have always had 1e-5.
    fixed: &[("layer_norm_eps", Neutral::Any)],
    goldens: &["biogpt"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! {
            vocab: 42_384, heads: 16, max_position: 1024, tied: true, eps: 1e-5, act: Gelu, ..LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        (d.norm, d.embedding.positions) = (Norm::layer(d.norm.eps), Some(Positions::Learned(2)));
        let scaled = f.flag_or("scale_embedding", true);
        d.scales.embedding = scaled.then(|| (d.facts.hidden as f64).sqrt() as f32);
        let d = d.with_heads(|_, a, h| (h.qkv_bias, h.out_bias, a.rotary) = (true, true, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const NAMES: Table = names! {
    "biogpt." { TABLE => "embed_tokens", POSITIONS => "embed_positions", NORM => "layer_norm" }
    "" { HEAD => "output_projection" }
    "biogpt.layers.{}." {
        ATTN_NORM => "self_attn_layer_norm", ATTN_Q => "self_attn.q_proj", ATTN_K => "self_attn.k_proj",
        ATTN_V => "self_attn.v_proj", ATTN_OUT => "self_attn.out_proj", MLP_NORM => "final_layer_norm",
        MLP_UP => "fc1", MLP_DOWN => "fc2",
    }
};
