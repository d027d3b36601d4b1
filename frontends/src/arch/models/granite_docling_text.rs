//! The text model of Granite-Docling (IBM, 2026): Granite, to whose layers image features are added.

use crate::arch::blocks::families::granite_experts::{MULTIPLIERS, dense};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "granite_docling_text",
    class: "GraniteDoclingForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, MULTIPLIERS],
    fixed: &[],
    goldens: &["granite_docling"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        // The defaults of Transformers' class differ from all other Granite models'.
        if let Some(absent) = MULTIPLIERS.iter().find(|field| f.number(field.name).is_none()) {
            return Err(f.missing(absent.name));
        }
        let defaults = defaults! {
            vocab: 133_800, heads: 16, kv_heads: 4, max_position: 32_768, eps: 1e-5, tied: true, ..LLAMA
        };
        Ok(Box::new(dense(f, &defaults)?))
    },
};
