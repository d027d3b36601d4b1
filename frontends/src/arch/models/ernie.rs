//! ERNIE 1.0 to 3.0 (arXiv 1904.09223, 2107.02137): BERT whose tokens may have the type of a task besides.
//!
//! Nothing says of a text which task it is for, and Transformers takes the first.

use crate::arch::blocks::encoder::{Defaults, Encoder, FIELDS, FIXED};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POOLER,
    POSITIONS, TABLE, TABLE_NORM, TASKS, TYPES, Table,
};
use crate::config::common::MODEL;
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

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

const OWN: &[Field] = &[
    Field::new("use_task_id", Accepts::Flag),
    // How many there are where there are any.
    Field::new("task_type_vocab_size", Accepts::Size(1 << 14)).unless(Neutral::Any),
];

const NAMES: Table = &[
    (TABLE, "ernie.embeddings.word_embeddings"),
    (POSITIONS, "ernie.embeddings.position_embeddings"),
    (TYPES, "ernie.embeddings.token_type_embeddings"),
    (TASKS, "ernie.embeddings.task_type_embeddings"),
    (TABLE_NORM, "ernie.embeddings.LayerNorm"),
    (ATTN_Q, "ernie.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "ernie.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "ernie.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "ernie.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "ernie.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "ernie.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "ernie.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "ernie.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "ernie.pooler.dense"),
    (CLASSES, "classifier"),
];
