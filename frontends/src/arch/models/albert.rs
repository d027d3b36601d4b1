//! ALBERT (arXiv 1909.11942): BERT whose tables are narrower than its layers, which share their weights.

use crate::arch::blocks::encoder::{Defaults, FIELDS, WIDEN};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::shared_layers::Groups;

pub(crate) const ARCH: Arch = Arch {
    model_type: "albert",
    class: "AlbertModel",
    fields: &[IDENTITY, MODEL, FIELDS, fields! { embedding_size, num_hidden_groups, inner_group_num }],
    fixed: fixed! {
        Words(&["absolute"]) => position_embedding_type;
        // Fields of the authors' program; nothing reads them.
        Any => gap_size;
        Any => net_structure_type num_memory_blocks down_scale_factor;
    },
    goldens: &["albert", "albert_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let spare = &["albert.pooler.", "pooler.", "predictions.", "sop_classifier."];
        let defaults = Defaults { spare, act: UnaryOp::GeluTanh, ..Defaults::BERT };
        let mut e = Encoder::read(f, &defaults)?;
        e.embedding.narrow = Some(f.size("embedding_size").or(128));
        let groups = Groups { count: f.size("num_hidden_groups").or(1), inner: f.size("inner_group_num").or(1) };
        if groups.count > e.facts.layers {
            let help = format!("this architecture supports at most as many groups as layers ({})", e.facts.layers);
            return Err(f.unsupported("num_hidden_groups", groups.count.to_string(), help));
        }
        e.groups = Some(groups);
        Ok(Box::new(e))
    },
};

const NAMES: Table = names! {
    "albert." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TYPES => "embeddings.token_type_embeddings", TABLE_NORM => "embeddings.LayerNorm",
        WIDEN => "encoder.embedding_hidden_mapping_in", POOLER => "pooler",
    }
    "albert.encoder.albert_layer_groups.{}." {
        ATTN_Q => "albert_layers.{e}.attention.query", ATTN_K => "albert_layers.{e}.attention.key",
        ATTN_V => "albert_layers.{e}.attention.value", ATTN_OUT => "albert_layers.{e}.attention.dense",
        ATTN_POST_NORM => "albert_layers.{e}.attention.LayerNorm", MLP_UP => "albert_layers.{e}.ffn",
        MLP_DOWN => "albert_layers.{e}.ffn_output", MLP_POST_NORM => "albert_layers.{e}.full_layer_layer_norm",
    }
    "" { CLASSES => "classifier" }
};
