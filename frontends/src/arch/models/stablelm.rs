//! StableLM (arXiv 2402.17834): Llama with LayerNorm and rotation of a part of each head; attention
//! and MLP side by side, norms of queries and keys with gains of each head, if asked for.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "stablelm",
    class: "StableLmForCausalLM",
    fields: &[IDENTITY, MODEL, DIVIDED, LAYER_NORM_MLP, PARTIAL_ROTARY, OWN],
    // Fields of the first configurations, which had a class of their own.
    fixed: &[("rotary_scaling_factor", Neutral::One), ("rope_pct", Neutral::Same("partial_rotary_factor"))],
    goldens: &["stablelm", "stablelm_parallel", "stablelm_norms"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            heads: 32, kv_heads: 32, max_position: 4096, eps(layer_norm_eps): 1e-5, partial: 0.25, ..LLAMA
        };
        let bias = f.flag("use_qkv_bias");
        let qk_norm = f.flag("qk_layernorm").then_some(QkNorm::HeadsApart);
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm::layer(d.norm.eps);
        if f.flag("use_parallel_residual") {
            d.norms = Norms::Parallel { own: false };
        }
        Ok(Box::new(d.with_heads(|_, _, h| (h.qkv_bias, h.qk_norm) = (bias, qk_norm))))
    },
};

const OWN: &[Field] = fields! { use_qkv_bias, use_parallel_residual, qk_layernorm };

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_Q_NORM => "self_attn.q_layernorm.norms.{e}", ATTN_K_NORM => "self_attn.k_layernorm.norms.{e}",
    }
};
