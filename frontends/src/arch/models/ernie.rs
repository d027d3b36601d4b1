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
    names: Names(&[bert_names!("ernie."), NAMES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults { spare: &["ernie.pooler.", "pooler.", "cls."], ..Defaults::BERT })?;
        let tasks = f.size("task_type_vocab_size").or(3);
        e.embedding.tasks = if f.flag("use_task_id") { tasks } else { 0 };
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = fields! {
    use_task_id,
    // How many there are where there are any.
    task_type_vocab_size,
};

const NAMES: Table = names! {
    "ernie." { TASKS => "embeddings.task_type_embeddings", POOLER => "pooler.dense" }
    "" { CLASSES => "classifier" }
};
