//! mBART (arXiv 2001.08210) and mBART-50: BART with norms before the blocks, over many languages.

use crate::arch::blocks::families::bart_stacks::{Differences, FIELDS, NAMES, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mbart",
    class: "MBartForConditionalGeneration",
    fields: &[IDENTITY, FIELDS],
    fixed: fixed! {
        On => is_encoder_decoder normalize_embedding normalize_before add_final_layer_norm;
        Off => is_decoder add_bias_logits static_position_embeddings;
        Any => num_hidden_layers extra_pos_embeddings;
    },
    goldens: &["mbart"],
    names: Names(&[NAMES]),
    read: |f| {
        Ok(Box::new(read(f, &Differences { norm_first: true, norm_embedding: true, sines: false, vocab: 50_265 })?))
    },
};
