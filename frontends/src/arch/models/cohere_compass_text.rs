//! Cohere Compass (North Micro Vision, Cohere, 2026), the text models: Command A with halves of heads
//! rotated, in the layers of those kinds that `rope_parameters` has something for.

use crate::arch::blocks::families::command_r::{DEFAULTS, LOGIT_SCALE, read_with};
use crate::arch::blocks::families::rotary_by_kind::{all_said, rotated_kinds, table_of, turning};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "cohere_compass_text",
    class: "CohereCompassForCausalLM",
    fields: &[IDENTITY, MODEL, DIVIDED, LAYER_NORM_MLP, ATTENTION_BIAS, LOGIT_SCALE, WINDOW, OWN],
    // Fields of classifiers, which have a class of their own.
    fixed: &[("pooling", Neutral::Any)],
    goldens: &["cohere_compass"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let heads = f.required_size("num_attention_heads")?;
        common::follows(
            f,
            "head_dim",
            f.required_size("hidden_size")? / heads,
            "`hidden_size` over `num_attention_heads`",
        )?;
        let rotates = rotated_kinds(f)?;
        let mut d =
            read_with(f, &defaults! { window: None, ..DEFAULTS }, |heads, max| turning(f, rotates, heads.dim, max))?;
        d.scales.logits = common::factor(f, "logit_scale")?;
        let layers = d.layers.len();
        let sliding = common::sliding_layers(f, layers)?.unwrap_or_else(|| vec![false; layers]);
        all_said(f, rotates, &sliding)?;
        let window = f.size("sliding_window").or_null(4096);
        Ok(Box::new(d.with_heads(|i, a, h| {
            h.neighbours = 0;
            a.window = window.filter(|_| sliding[i]);
            a.rotary = table_of(rotates, sliding[i]);
        })))
    },
};

const OWN: &[Field] = fields! { rope_parameters, head_dim: Accepts::Any };
