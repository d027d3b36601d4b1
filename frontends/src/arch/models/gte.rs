//! GTE (Alibaba, arXiv 2407.19669): BERT with rotary positions and gated MLPs. Its authors' files call it `new`.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gte",
    class: "GteModel",
    // There may be no types of tokens.
    fields: &[IDENTITY, MODEL, ROTARY, FIELDS_WITHOUT_TYPES, fields! { type_vocab_size: Accepts::Count }],
    // The first and the last ones are in files of the authors' own class.
    fixed: fixed! {
        Words(&["new"]) => model_type;
        Words(&["NewModel"]) => architectures;
        Off => is_decoder add_cross_attention logn_attention_scale logn_attention_clip1;
        Words(&["absolute", "rope"]) => position_embedding_type;
        Words(&["layer_norm"]) => layer_norm_type;
        On => pack_qkv;
        Any => unpad_inputs use_memory_efficient_attention;
    },
    goldens: &["gte", "gte_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let facts = Facts::read(f, Some(250_048), 8192, true)?;
        let mut e = Encoder::rotated(f, facts, 3072, 1e-12, 160_000.0)?;
        e.embedding.types = f.count("type_vocab_size").unwrap_or(1);
        for layer in &mut e.layers {
            let m = &mut layer.mlp;
            (m.gated, m.joined, m.bias, m.out_bias) = (true, Some(Joined::UpGate), false, true);
        }
        // (The classifier of the multilingual one weighs single tokens.)
        e.spare = &["gte.pooler.", "new.pooler.", "pooler.", "lm_head.", "classifier."];
        Ok(Box::new(e))
    },
};

const NAMES: Table = names! {
    "gte." {
        TABLE => "embeddings.word_embeddings", TYPES => "embeddings.token_type_embeddings",
        TABLE_NORM => "embeddings.LayerNorm", POOLER => "pooler.dense",
    }
    "gte.encoder.layer.{}." {
        ATTN_QKV => "attention.qkv_proj", ATTN_OUT => "attention.o_proj", ATTN_POST_NORM => "attn_ln",
        MLP_GATE_UP => "mlp.up_gate_proj", MLP_DOWN => "mlp.down_proj", MLP_POST_NORM => "mlp_ln",
    }
    "" { CLASSES => "classifier" }
    "new." {
        // As the authors' class calls them.
        TABLE => "embeddings.word_embeddings", TYPES => "embeddings.token_type_embeddings",
        TABLE_NORM => "embeddings.LayerNorm", POOLER => "pooler.dense",
    }
    "new.encoder.layer.{}." {
        ATTN_QKV => "attention.qkv_proj", ATTN_OUT => "attention.o_proj", ATTN_POST_NORM => "attn_ln",
        MLP_GATE_UP => "mlp.up_gate_proj", MLP_DOWN => "mlp.down_proj", MLP_POST_NORM => "mlp_ln",
    }
};
