//! ERNIE 1.0 to 3.0 (arXiv 1904.09223, 2107.02137): BERT whose tokens may have the type of a task besides.
//!
//! Nothing says of a text which task it is for, and Transformers takes the first.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FIXED};
use crate::arch::blocks::names::TASKS;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ernie",
    class: "ErnieModel",
    fields: &[IDENTITY, MODEL, FIELDS, OWN],
    fixed: FIXED,
    goldens: &["ernie", "ernie_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults { spare: &["ernie.pooler.", "pooler.", "cls."], ..Defaults::BERT })?;
        let tasks = f.size("task_type_vocab_size").or(3);
        e.tasks = if f.flag("use_task_id") { tasks } else { 0 };
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = fields! {
    use_task_id,
    // How many there are where there are any.
    task_type_vocab_size,
};

const NAMES: Table = names! {
    "ernie." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TYPES => "embeddings.token_type_embeddings", TASKS => "embeddings.task_type_embeddings",
        TABLE_NORM => "embeddings.LayerNorm", POOLER => "pooler.dense",
    }
    "ernie.encoder.layer.{}." {
        ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key", ATTN_V => "attention.self.value",
        ATTN_OUT => "attention.output.dense", ATTN_POST_NORM => "attention.output.LayerNorm",
        MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense", MLP_POST_NORM => "output.LayerNorm",
    }
    "" { CLASSES => "classifier" }
};
