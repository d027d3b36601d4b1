//! GPT-2 (Radford et al., 2019): LayerNorm before the blocks, learned positions, an MLP without gate,
//! matrices stored `[in, out]`, biases everywhere.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gpt2",
    class: "GPT2LMHeadModel",
    fields: &[IDENTITY, GPT_MODEL, GPT_MLP, OWN],
    // GPT-SW3 (arXiv 2305.12987) is one of these.
    fixed: &[("model_type", Neutral::Words(&["gpt-sw3"]))],
    goldens: &["gpt2"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut d = Decoder::read_with(f, &Defaults::GPT2, |_, _| Ok(vec![]))?;
        (d.norm, d.embedding.positions) = (Norm::layer(d.norm.eps), Some(Positions::Learned(0)));
        let (scaled, by_layer) = (f.flag_or("scale_attn_weights", true), f.flag("scale_attn_by_inverse_layer_idx"));
        let d = d.with_heads(|i, a, h| {
            (h.projection, h.transposed) = (Projection::Fused, true);
            (h.qkv_bias, h.out_bias, a.rotary) = (true, true, None);
            a.scale = if scaled { a.scale } else { 1.0 } / if by_layer { (i + 1) as f32 } else { 1.0 };
        });
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.transposed, m.bias) = (false, true, true))))
    },
};

const OWN: &[Field] = fields! {
    layer_norm_epsilon, scale_attn_weights,
    // Stanford's models have it.
    scale_attn_by_inverse_layer_idx,
};

/// As the class for text generation saves it, and as the model without its head is published.
const NAMES: Table = names! {
    "transformer." | "" { TABLE => "wte", POSITIONS => "wpe", NORM => "ln_f" }
    "" { HEAD => "lm_head" }
    "transformer.h.{}." | "h.{}." {
        ATTN_NORM => "ln_1", ATTN_QKV => "attn.c_attn", ATTN_OUT => "attn.c_proj", MLP_NORM => "ln_2",
        MLP_UP => "mlp.c_fc", MLP_DOWN => "mlp.c_proj",
    }
};
