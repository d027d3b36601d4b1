//! GTE (Alibaba, arXiv 2407.19669): BERT with rotary positions and gated MLPs.

use super::encoder::{Encoder, FIELDS, FIXED};
use super::entry::Arch;
use super::names::{
    ATTN_OUT, ATTN_POST_NORM, ATTN_QKV, CLASSES, MLP_DOWN, MLP_GATE_UP, MLP_POST_NORM, Names, POOLER, TABLE,
    TABLE_NORM, TYPES, Table,
};
use crate::config::common::{self, DefaultHeads, Facts, Heads, MODEL, ROTARY};
use crate::config::fields::IDENTITY;
use crate::config::rope;
use llmcc_ir::graph::UnaryOp;

pub(super) const ARCH: Arch = Arch {
    model_type: "gte",
    class: "GteModel",
    fields: &[IDENTITY, MODEL, ROTARY, FIELDS],
    fixed: FIXED,
    goldens: &["gte"],
    names: Names(&[NAMES]),
    read: |f| {
        let facts = Facts::read(f, Some(250_048), 8192, true)?;
        let heads = Heads::read(f, facts.hidden, DefaultHeads::default())?;
        let (ffn, act) = (f.size("intermediate_size").or(3072), common::activation(f, "hidden_act", UnaryOp::Gelu));
        let rope = rope::read(f, heads.dim, facts.max_position, 160_000.0)?;
        let mut e = Encoder::alike(facts, heads, (ffn, act), common::eps(f, "layer_norm_eps", 1e-12)?);
        e.types = f.count("type_vocab_size").unwrap_or(1);
        e.ropes = vec![rope];
        for layer in &mut e.layers {
            (layer.attention.fused, layer.attention.rotary) = (true, Some(0));
            let m = &mut layer.mlp;
            (m.gated, m.fused, m.up_first, m.bias, m.out_bias) = (true, true, true, false, true);
        }
        e.spare = &["gte.pooler.", "new.pooler.", "pooler.", "lm_head."];
        Ok(Box::new(e))
    },
};

const NAMES: Table = &[
    (TABLE, "gte.embeddings.word_embeddings"),
    (TYPES, "gte.embeddings.token_type_embeddings"),
    (TABLE_NORM, "gte.embeddings.LayerNorm"),
    (ATTN_QKV, "gte.encoder.layer.{}.attention.qkv_proj"),
    (ATTN_OUT, "gte.encoder.layer.{}.attention.o_proj"),
    (ATTN_POST_NORM, "gte.encoder.layer.{}.attn_ln"),
    (MLP_GATE_UP, "gte.encoder.layer.{}.mlp.up_gate_proj"),
    (MLP_DOWN, "gte.encoder.layer.{}.mlp.down_proj"),
    (MLP_POST_NORM, "gte.encoder.layer.{}.mlp_ln"),
    (POOLER, "gte.pooler.dense"),
    (CLASSES, "classifier"),
];
