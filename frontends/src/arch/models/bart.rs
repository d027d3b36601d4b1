//! BART (arXiv 1910.13461).

use crate::arch::blocks::families::bart_stacks::{Differences, FIELDS, NAMES, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "bart",
    class: "BartForConditionalGeneration",
    fields: &[IDENTITY, FIELDS],
    fixed: fixed! {
        On => is_encoder_decoder normalize_embedding;
        Off => is_decoder normalize_before add_final_layer_norm add_bias_logits static_position_embeddings;
        Any => num_hidden_layers extra_pos_embeddings;
    },
    goldens: &["bart"],
    names: Names(&[NAMES]),
    read: |f| {
        Ok(Box::new(read(f, &Differences { norm_first: false, norm_embedding: true, sines: false, vocab: 50_265 })?))
    },
};
