//! Jina's BERT of version 2 (arXiv 2310.19923): BERT whose scores fall with the distance of the key, on
//! both sides, instead of learned positions, and whose MLPs may have gates. The model for code normalizes
//! queries and keys, and what attention gave twice.
//!
//! Its files call themselves `bert`; the class tells them apart.

use crate::arch::blocks::attention_scores::Distance;
use crate::arch::blocks::encoder::{AGAIN_NORM, Defaults, Encoder, FIELDS};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_K_NORM, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_Q_NORM, ATTN_V, CLASSES, MLP_DOWN, MLP_GATE,
    MLP_GATE_UP, MLP_POST_NORM, MLP_UP, Names, POOLER, TABLE, TABLE_NORM, TYPES, Table,
};
use crate::config::common::MODEL;
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "jina_bert",
    class: "JinaBertModel",
    fields: &[IDENTITY, MODEL, FIELDS, OWN],
    fixed: &[
        ("position_embedding_type", Neutral::Words(&["alibi"])),
        ("is_decoder", Neutral::Off),
        ("add_cross_attention", Neutral::Off),
        ("emb_pooler", Neutral::Words(&["mean"])),
        ("attn_implementation", Neutral::Any),
        ("model_max_length", Neutral::Any),
    ],
    goldens: &["jina_bert", "jina_bert_reglu", "jina_bert_norms"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults::BERT)?;
        e.positions = None;
        let gated = match f.text("feed_forward_type") {
            Some("geglu") => Some(UnaryOp::Gelu),
            Some("reglu") => Some(UnaryOp::Relu),
            _ => None,
        };
        // The model for code does not say so: it has the tensors.
        let normed = f.flag("qk_post_norm");
        for layer in &mut e.layers {
            layer.again = Some(normed);
            layer.attention.distance = Some(Distance::BothWays);
            if let Some(act) = gated {
                let m = &mut layer.mlp;
                (m.act, m.gated, m.fused, m.bias, m.out_bias) = (act, true, true, false, true);
            }
        }
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = &[
    Field::new("feed_forward_type", Accepts::OneOf(&["original", "geglu", "reglu"])),
    Field::new("qk_post_norm", Accepts::Flag),
];

const NAMES: Table = &[
    (TABLE, "bert.embeddings.word_embeddings"),
    (TYPES, "bert.embeddings.token_type_embeddings"),
    (TABLE_NORM, "bert.embeddings.LayerNorm"),
    (ATTN_Q, "bert.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "bert.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "bert.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "bert.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "bert.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_GATE_UP, "bert.encoder.layer.{}.mlp.gated_layers"),
    // Taken apart by llama.cpp's older converters.
    (MLP_GATE, "bert.encoder.layer.{}.mlp.gated_layers_w"),
    (MLP_UP, "bert.encoder.layer.{}.mlp.gated_layers_v"),
    (MLP_DOWN, "bert.encoder.layer.{}.mlp.wo"),
    (MLP_POST_NORM, "bert.encoder.layer.{}.mlp.layernorm"),
    // Without gates.
    (MLP_UP, "bert.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "bert.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "bert.encoder.layer.{}.output.LayerNorm"),
    // Of the model for code.
    (ATTN_Q_NORM, "bert.encoder.layer.{}.attention.self.layer_norm_q"),
    (ATTN_K_NORM, "bert.encoder.layer.{}.attention.self.layer_norm_k"),
    (AGAIN_NORM, "bert.encoder.layer.{}.layer_norm_1"),
    (MLP_GATE_UP, "bert.encoder.layer.{}.mlp.up_gated_layer"),
    (MLP_DOWN, "bert.encoder.layer.{}.mlp.down_layer"),
    (MLP_POST_NORM, "bert.encoder.layer.{}.layer_norm_2"),
    (POOLER, "bert.pooler.dense"),
    (CLASSES, "classifier"),
];
