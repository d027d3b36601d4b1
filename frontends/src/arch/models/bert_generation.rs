//! BERT that predicts the next token (arXiv 1907.12461): the decoder by itself, which reads no encoder.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, Names, POSITIONS, TABLE, TABLE_NORM,
    Table,
};
use crate::config::common::{HEADS, LAYER_NORM_MLP, MODEL};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "bert-generation",
    class: "BertGenerationDecoder",
    fields: &[IDENTITY, MODEL, HEADS, LAYER_NORM_MLP, OWN],
    fixed: &[("add_cross_attention", Neutral::Off), ("position_embedding_type", Neutral::Words(&["absolute"]))],
    goldens: &["bert_generation"],
    names: Names(&[NAMES]),
    read: |f| {
        if !f.flag("is_decoder") {
            let help = "this architecture has tokens that see no later ones, as a model that predicts these must";
            return Err(f.unsupported("is_decoder", "false".into(), help.into()));
        }
        let defaults = Defaults {
            vocab: Some(50_358),
            heads: Some(16),
            max_position: 512,
            tied: true,
            eps_field: "layer_norm_eps",
            eps: 1e-12,
            act: ("hidden_act", UnaryOp::Gelu),
            ..Defaults::LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        let norm = Norm::layer(d.norm.eps);
        (d.norm, d.norms, d.learned, d.table_norm) = (norm, Norms::Around, Some(0), Some(norm));
        (d.last_norm, d.head_bias) = (false, true);
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.rotary) = (true, true, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = &[Field::new("is_decoder", Accepts::Flag)];

const NAMES: Table = &[
    (TABLE, "bert.embeddings.word_embeddings"),
    (POSITIONS, "bert.embeddings.position_embeddings"),
    (TABLE_NORM, "bert.embeddings.LayerNorm"),
    (ATTN_Q, "bert.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "bert.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "bert.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "bert.encoder.layer.{}.attention.output.dense"),
    (ATTN_NORM, "bert.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "bert.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "bert.encoder.layer.{}.output.dense"),
    (MLP_NORM, "bert.encoder.layer.{}.output.LayerNorm"),
    (HEAD, "lm_head.decoder"),
    (HEAD, "lm_head"),
];
