//! EmbeddingGemma 2 (Google, 2026), of texts: Gemma 4 whose tokens see later ones too, with rows for each layer
//! that a projection of the embeddings makes alone, and a matrix after the last norm.

use crate::arch::blocks::decoder::NARROW;
use crate::arch::blocks::families::gemma4::{SCALES, Wide, decoder};
use crate::arch::blocks::per_layer_embeddings::{LayerRows, ROW_GATE, ROW_NORM, ROW_OUT, ROWS_NORM, ROWS_PROJECTION};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "embedding_gemma2_text",
    class: "EmbeddingGemma2Model",
    fields: &[IDENTITY, MODEL, ATTENTION, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[],
    goldens: &["embedding_gemma2"],
    names: Names(&[SCALES, NAMES, SANDWICH_NORMS, POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let mut d = decoder(f, [4, 2], [512, 262_144], Wide { rotated: 1.0, kv: Some(1) })?;
        let rows = LayerRows { width: f.size(ROWS).or(512), vocab: None };
        d.rows = Some(rows.checked(f, ROWS, d.facts.layers)?);
        d.made = Some(f.size("embedding_dim").or(768));
        // As far as a window says, on either side.
        Ok(Box::new(d.with_attention(|_, a| (a.causal, a.window) = (false, a.window.map(|w| w + 1)))))
    },
};

const ROWS: &str = "hidden_size_per_layer_input";

const OWN: &[Field] = fields! {
    intermediate_size, hidden_activation, rms_norm_eps, rope_parameters, per_layer_config, sliding_window_pattern,
    global_head_dim, num_global_key_value_heads, hidden_size_per_layer_input, embedding_dim,
};

const NAMES: Table = names! {
    "model." {
        ROWS_PROJECTION => "ple.per_layer_model_projection", ROWS_NORM => "ple.per_layer_projection_norm",
        NARROW => "embedding_projection",
    }
    "model.layers.{}." {
        ROW_GATE => "ple_block.per_layer_input_gate", ROW_OUT => "ple_block.per_layer_projection",
        ROW_NORM => "ple_block.post_per_layer_input_norm",
    }
};
