//! ESM Cambrian (EvolutionaryScale, 2024), which reads proteins: Llama's layers with LayerNorm, also of whole rows
//! of queries and keys, in which every token sees the whole text, and what blocks add is less the more there are.

use crate::arch::blocks::attention::{Norm, QkNorm};
use crate::arch::blocks::decoder::{Decoder, Defaults, DenseHead};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_K_NORM, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_Q_NORM, ATTN_V, MLP_DOWN, MLP_GATE, MLP_NORM, MLP_UP, NORM,
    Names, TABLE, Table,
};
use crate::config::common::{ACTIVATIONS, ATTENTION_BIAS, HEADS, MLP_BIAS, MODEL, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "esmc",
    class: "EsmcModel",
    fields: &[IDENTITY, MODEL, HEADS, ROTARY, ATTENTION_BIAS, MLP_BIAS, OWN],
    fixed: &[("num_key_value_heads", Neutral::Same("num_attention_heads"))],
    goldens: &["esmc"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults { vocab: Some(64), heads: Some(40), ffn: None, ..Defaults::LLAMA };
        let mut d = Decoder::read(f, &defaults)?;
        // The files say nothing of it.
        let plain = Norm { bias: false, ..Norm::layer(1e-5) };
        (d.norm, d.block_norms) = (plain, Some([Norm::layer(1e-5); 2]));
        d.scales.residual = Some((36.0 / d.facts.layers as f64).sqrt() as f32).filter(|scale| *scale != 1.0);
        // Of no use for embeddings.
        d.dense_head = Some(DenseHead { act: UnaryOp::Gelu, bias: true });
        let (bias, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let d = d.with_attention(|_, a| {
            (a.qkv_bias, a.out_bias, a.causal, a.qk_norm) = (bias, bias, false, Some(QkNorm::Row));
        });
        Ok(Box::new(d.with_mlp(|m| m.bias = mlp)))
    },
};

const OWN: &[Field] = &[
    Field::new("head_dim", Accepts::Size(1 << 14)),
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)),
];

const NAMES: Table = &[
    (TABLE, "esmc.embed_tokens"),
    (NORM, "esmc.norm"),
    (ATTN_NORM, "esmc.layers.{}.input_layernorm"),
    (ATTN_Q, "esmc.layers.{}.self_attn.q_proj"),
    (ATTN_K, "esmc.layers.{}.self_attn.k_proj"),
    (ATTN_V, "esmc.layers.{}.self_attn.v_proj"),
    (ATTN_Q_NORM, "esmc.layers.{}.self_attn.q_norm"),
    (ATTN_K_NORM, "esmc.layers.{}.self_attn.k_norm"),
    (ATTN_OUT, "esmc.layers.{}.self_attn.o_proj"),
    (MLP_NORM, "esmc.layers.{}.post_attention_layernorm"),
    (MLP_GATE, "esmc.layers.{}.mlp.gate_proj"),
    (MLP_UP, "esmc.layers.{}.mlp.up_proj"),
    (MLP_DOWN, "esmc.layers.{}.mlp.down_proj"),
];
