//! Gemma 4 whose text model reads images and sound as they are (12B; Google, 2026), its text model: Gemma 4
//! without experts and without embeddings for each layer.

use crate::arch::blocks::families::gemma4::{FIELDS, SCALES, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gemma4_unified_text",
    class: "Gemma4UnifiedForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ATTENTION_BIAS, WINDOW, FIELDS],
    fixed: &[
        // A field about images; text has none.
        ("use_bidirectional_attention", Neutral::Words(&["vision"])),
        // Rows of a table that there is none of.
        ("vocab_size_per_layer_input", Neutral::Any),
    ],
    goldens: &["gemma4_unified"],
    names: Names(&[SCALES, SANDWICH_NORMS, POST_NORMS, HUGGING_FACE]),
    read: |f| read(f, 1024, 262_144),
};
