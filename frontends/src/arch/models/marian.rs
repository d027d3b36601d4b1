//! Marian's translation models (OPUS-MT): BART without a norm of the embeddings, and with sines as positions.

use crate::arch::blocks::families::bart_stacks::{Differences, FIELDS, NAMES, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "marian",
    class: "MarianMTModel",
    fields: &[IDENTITY, FIELDS],
    fixed: fixed! {
        On => is_encoder_decoder static_position_embeddings share_encoder_decoder_embeddings;
        Off => is_decoder normalize_embedding normalize_before add_final_layer_norm;
        Same("vocab_size") => decoder_vocab_size;
        // A bias of logits that the file has is read.
        Any => num_hidden_layers extra_pos_embeddings add_bias_logits;
    },
    goldens: &["marian"],
    names: Names(&[NAMES]),
    read: |f| {
        Ok(Box::new(read(f, &Differences { norm_first: false, norm_embedding: false, sines: true, vocab: 58_101 })?))
    },
};
