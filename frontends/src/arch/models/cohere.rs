//! Command R (Cohere): attention and MLP side by side behind one LayerNorm without bias, rotation
//! of neighbours, scaled logits, norms of queries and keys with gains of each head if asked for.

use crate::arch::blocks::families::command_r::{DEFAULTS, LOGIT_SCALE, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "cohere",
    class: "CohereForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, LAYER_NORM_MLP, ROTARY, ATTENTION_BIAS, LOGIT_SCALE, fields! { use_qk_norm }],
    fixed: &[],
    goldens: &["cohere", "cohere_norms"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let qk_norm = f.flag("use_qk_norm").then_some(QkNorm::Heads);
        let d = read(f, &defaults! { theta: 5e5, ..DEFAULTS })?;
        Ok(Box::new(d.with_heads(|_, _, h| h.qk_norm = qk_norm)))
    },
};
