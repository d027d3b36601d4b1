//! Nomic BERT (arXiv 2402.01613): BERT with rotary positions and gated MLPs, without biases in
//! products.

use super::encoder::{Encoder, FIELDS_OF_LAYERS, FIXED};
use super::entry::Arch;
use super::names::{
    ATTN_OUT, ATTN_POST_NORM, ATTN_QKV, CLASSES, MLP_DOWN, MLP_GATE, MLP_POST_NORM, MLP_UP, Names, POOLER, TABLE,
    TABLE_NORM, TYPES, Table,
};
use crate::config::common::{self, ATTENTION, DefaultHeads, Facts, Heads, MODEL, ROTARY};
use crate::config::fields::IDENTITY;
use crate::config::rope;
use llmcc_ir::graph::UnaryOp;

pub(super) const ARCH: Arch = Arch {
    model_type: "nomic_bert",
    class: "NomicBertModel",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, FIELDS_OF_LAYERS],
    fixed: FIXED,
    goldens: &["nomic_bert"],
    names: Names(&[NAMES]),
    read: |f| {
        let facts = Facts::read(f, Some(30_528), 2048, true)?;
        let heads = Heads::read(f, facts.hidden, DefaultHeads::default())?;
        let (ffn, act) = (f.required_size("intermediate_size")?, common::activation(f, "hidden_act", UnaryOp::Silu));
        let rope = rope::read(f, heads.dim, facts.max_position, 1000.0)?;
        let mut e = Encoder::alike(facts, heads, (ffn, act), common::eps(f, "layer_norm_eps", 1e-12)?);
        e.types = f.size("type_vocab_size").or(2);
        e.ropes = vec![rope];
        for layer in &mut e.layers {
            let a = &mut layer.attention;
            (a.fused, a.qkv_bias, a.out_bias, a.rotary) = (true, false, false, Some(0));
            (layer.mlp.gated, layer.mlp.bias) = (true, false);
        }
        e.spare = &["nomic_bert.pooler.", "pooler.", "cls."];
        Ok(Box::new(e))
    },
};

const NAMES: Table = &[
    (TABLE, "nomic_bert.embeddings.word_embeddings"),
    (TYPES, "nomic_bert.embeddings.token_type_embeddings"),
    (TABLE_NORM, "nomic_bert.emb_ln"),
    (ATTN_QKV, "nomic_bert.encoder.layers.{}.attn.Wqkv"),
    (ATTN_OUT, "nomic_bert.encoder.layers.{}.attn.out_proj"),
    (ATTN_POST_NORM, "nomic_bert.encoder.layers.{}.norm1"),
    (MLP_GATE, "nomic_bert.encoder.layers.{}.mlp.fc12"),
    (MLP_UP, "nomic_bert.encoder.layers.{}.mlp.fc11"),
    (MLP_DOWN, "nomic_bert.encoder.layers.{}.mlp.fc2"),
    (MLP_POST_NORM, "nomic_bert.encoder.layers.{}.norm2"),
    (POOLER, "nomic_bert.pooler.dense"),
    (CLASSES, "classifier"),
];
