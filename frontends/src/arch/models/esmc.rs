//! ESM Cambrian (EvolutionaryScale, 2024), which reads proteins: Llama's layers with LayerNorm, also of whole rows of
//! queries and keys, in which every token sees the whole text, and blocks' outputs are scaled down with their number.

use crate::arch::blocks::decoder::DenseHead;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "esmc",
    class: "EsmcModel",
    fields: &[IDENTITY, MODEL, HEADS, ROTARY, ATTENTION_BIAS, MLP_BIAS, OWN],
    fixed: &[("num_key_value_heads", Neutral::Same("num_attention_heads"))],
    goldens: &["esmc"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! { vocab: 64, heads: 40, ..LLAMA };
        let mut d = Decoder::read(f, &defaults)?;
        // The files say nothing of it.
        let plain = Norm { bias: false, ..Norm::layer(1e-5) };
        (d.norm, d.block_norms.own) = (plain, Some([Norm::layer(1e-5); 2]));
        d.scales.residual = Some((36.0 / d.facts.layers as f64).sqrt() as f32).filter(|scale| *scale != 1.0);
        // Not used for embeddings.
        d.head.dense = Some(DenseHead { act: UnaryOp::Gelu, bias: true });
        let (bias, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let d = d.with_heads(|_, a, h| {
            (h.qkv_bias, h.out_bias, a.causal, h.qk_norm) = (bias, bias, false, Some(QkNorm::Row));
        });
        Ok(Box::new(d.with_mlp(|m| m.bias = mlp)))
    },
};

const OWN: &[Field] = fields! { head_dim, intermediate_size, hidden_act };

const NAMES: Table = names! {
    "esmc." { TABLE => "embed_tokens", NORM => "norm" }
    "esmc.layers.{}." {
        ATTN_NORM => "input_layernorm", ATTN_Q => "self_attn.q_proj", ATTN_K => "self_attn.k_proj",
        ATTN_V => "self_attn.v_proj", ATTN_Q_NORM => "self_attn.q_norm", ATTN_K_NORM => "self_attn.k_norm",
        ATTN_OUT => "self_attn.o_proj", MLP_NORM => "post_attention_layernorm", MLP_GATE => "mlp.gate_proj",
        MLP_UP => "mlp.up_proj", MLP_DOWN => "mlp.down_proj",
    }
};
