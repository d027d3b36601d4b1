//! Jina's embeddings, version 3 (arXiv 2409.10173): XLM-RoBERTa with rotary positions. The adapters of its tasks are
//! folders of their own; the model is the one that Transformers loads without an adapter.

use crate::arch::blocks::encoder::{FIELDS, FIXED};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "jina_embeddings_v3",
    class: "JinaEmbeddingsV3Model",
    fields: &[IDENTITY, MODEL, ROTARY, FIELDS],
    fixed: FIXED,
    goldens: &["jina_embeddings_v3", "jina_embeddings_v3_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let facts = Facts::read(f, Some(250_002), 8194, true)?;
        let mut e = Encoder::rotated(f, facts, 4096, 1e-5, 20_000.0)?;
        e.embedding.types = f.size("type_vocab_size").or(1);
        e.spare = &["roberta.pooler.", "pooler.", "lm_head."];
        Ok(Box::new(e))
    },
};

const NAMES: Table = names! {
    "roberta." {
        TABLE => "embeddings.word_embeddings", TYPES => "embeddings.token_type_embeddings", TABLE_NORM => "emb_ln",
    }
    "roberta.encoder.layers.{}." {
        ATTN_QKV => "mixer.Wqkv", ATTN_OUT => "mixer.out_proj", ATTN_POST_NORM => "norm1", MLP_UP => "mlp.fc1",
        MLP_DOWN => "mlp.fc2", MLP_POST_NORM => "norm2",
    }
    "classifier." { POOLER => "dense", CLASSES => "out_proj" }
};
