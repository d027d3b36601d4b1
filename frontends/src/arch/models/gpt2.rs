//! GPT-2 (Radford et al., 2019): LayerNorm before the blocks, learned positions, an MLP without gate,
//! matrices stored `[in, out]`, biases everywhere.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_QKV, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, POSITIONS, TABLE, Table,
};
use crate::config::common::GPT_MODEL;
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gpt2",
    class: "GPT2LMHeadModel",
    fields: &[IDENTITY, GPT_MODEL, OWN],
    // GPT-SW3 (arXiv 2305.12987) is one of these.
    fixed: &[("model_type", Neutral::Words(&["gpt-sw3"]))],
    goldens: &["gpt2"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut d = Decoder::read_with(f, &Defaults::GPT2, |_, _| Ok(vec![]))?;
        (d.norm, d.learned) = (Norm::layer(d.norm.eps), Some(0));
        let (scaled, by_layer) = (f.flag_or("scale_attn_weights", true), f.flag("scale_attn_by_inverse_layer_idx"));
        let d = d.with_attention(|i, a| {
            (a.fused, a.transposed, a.qkv_bias, a.out_bias, a.rotary) = (true, true, true, true, None);
            a.scale = if scaled { a.scale } else { 1.0 } / if by_layer { (i + 1) as f32 } else { 1.0 };
        });
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.transposed, m.bias) = (false, true, true))))
    },
};

const OWN: &[Field] = &[
    Field::new("layer_norm_epsilon", Accepts::Number),
    Field::new("scale_attn_weights", Accepts::Flag).unless(Neutral::On),
    // Of Stanford's models.
    Field::new("scale_attn_by_inverse_layer_idx", Accepts::Flag),
];

/// As the class for text generation saves it, and as the model without its head is published.
const NAMES: Table = &[
    (TABLE, "transformer.wte"),
    (TABLE, "wte"),
    (POSITIONS, "transformer.wpe"),
    (POSITIONS, "wpe"),
    (HEAD, "lm_head"),
    (NORM, "transformer.ln_f"),
    (NORM, "ln_f"),
    (ATTN_NORM, "transformer.h.{}.ln_1"),
    (ATTN_NORM, "h.{}.ln_1"),
    (ATTN_QKV, "transformer.h.{}.attn.c_attn"),
    (ATTN_QKV, "h.{}.attn.c_attn"),
    (ATTN_OUT, "transformer.h.{}.attn.c_proj"),
    (ATTN_OUT, "h.{}.attn.c_proj"),
    (MLP_NORM, "transformer.h.{}.ln_2"),
    (MLP_NORM, "h.{}.ln_2"),
    (MLP_UP, "transformer.h.{}.mlp.c_fc"),
    (MLP_UP, "h.{}.mlp.c_fc"),
    (MLP_DOWN, "transformer.h.{}.mlp.c_proj"),
    (MLP_DOWN, "h.{}.mlp.c_proj"),
];
