//! GTE (Alibaba, arXiv 2407.19669): BERT with rotary positions and gated MLPs. Its authors' files call it
//! `new`.

use crate::arch::blocks::encoder::{Encoder, FIELDS_WITHOUT_TYPES};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_OUT, ATTN_POST_NORM, ATTN_QKV, CLASSES, MLP_DOWN, MLP_GATE_UP, MLP_POST_NORM, Names, POOLER, TABLE,
    TABLE_NORM, TYPES, Table,
};
use crate::config::common::{Facts, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gte",
    class: "GteModel",
    fields: &[IDENTITY, MODEL, ROTARY, FIELDS_WITHOUT_TYPES, TYPES_OF_TOKENS],
    // The first and the last ones are in files of the authors' own class.
    fixed: &[
        ("model_type", Neutral::Words(&["new"])),
        ("architectures", Neutral::Words(&["NewModel"])),
        ("is_decoder", Neutral::Off),
        ("add_cross_attention", Neutral::Off),
        ("position_embedding_type", Neutral::Words(&["absolute", "rope"])),
        ("layer_norm_type", Neutral::Words(&["layer_norm"])),
        ("logn_attention_scale", Neutral::Off),
        ("logn_attention_clip1", Neutral::Off),
        ("pack_qkv", Neutral::On),
        ("unpad_inputs", Neutral::Any),
        ("use_memory_efficient_attention", Neutral::Any),
    ],
    goldens: &["gte", "gte_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let facts = Facts::read(f, Some(250_048), 8192, true)?;
        let mut e = Encoder::rotated(f, facts, 3072, 1e-12, 160_000.0)?;
        e.types = f.count("type_vocab_size").unwrap_or(1);
        for layer in &mut e.layers {
            let m = &mut layer.mlp;
            (m.gated, m.fused, m.up_first, m.bias, m.out_bias) = (true, true, true, false, true);
        }
        // (The classifier of the multilingual one weighs single tokens.)
        e.spare = &["gte.pooler.", "new.pooler.", "pooler.", "lm_head.", "classifier."];
        Ok(Box::new(e))
    },
};

// There may be none.
const TYPES_OF_TOKENS: &[Field] = &[Field::new("type_vocab_size", Accepts::Count)];

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
    // As the authors' class calls them.
    (TABLE, "new.embeddings.word_embeddings"),
    (TYPES, "new.embeddings.token_type_embeddings"),
    (TABLE_NORM, "new.embeddings.LayerNorm"),
    (ATTN_QKV, "new.encoder.layer.{}.attention.qkv_proj"),
    (ATTN_OUT, "new.encoder.layer.{}.attention.o_proj"),
    (ATTN_POST_NORM, "new.encoder.layer.{}.attn_ln"),
    (MLP_GATE_UP, "new.encoder.layer.{}.mlp.up_gate_proj"),
    (MLP_DOWN, "new.encoder.layer.{}.mlp.down_proj"),
    (MLP_POST_NORM, "new.encoder.layer.{}.mlp_ln"),
    (POOLER, "new.pooler.dense"),
];
