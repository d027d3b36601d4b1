//! GPT, the first (Radford et al., 2018): as GPT-2, but with norms after what the blocks are added to,
//! and none of what the last layer gives.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_QKV, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, Names, POSITIONS, TABLE, Table,
};
use crate::config::common::GPT_SIZES;
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "openai-gpt",
    class: "OpenAIGPTLMHeadModel",
    fields: &[IDENTITY, GPT_SIZES, OWN],
    // The MLP is four times as wide as the model, whatever files say.
    fixed: &[],
    goldens: &["openai_gpt"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults { vocab: Some(40_478), max_position: 512, ..Defaults::GPT2 };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        (d.norm, d.norms, d.learned, d.last_norm) = (Norm::layer(d.norm.eps), Norms::Around, Some(0), false);
        let act = activation(f);
        let d = d.with_attention(|_, a| {
            (a.fused, a.transposed, a.qkv_bias, a.out_bias, a.rotary) = (true, true, true, true, None);
        });
        Ok(Box::new(d.with_mlp(|m| (m.act, m.gated, m.transposed, m.bias) = (act, false, true, true))))
    },
};

/// Activations, by the names that this class has for them.
fn activation(f: &Fields) -> UnaryOp {
    match f.text("afn") {
        Some("relu") => UnaryOp::Relu,
        Some("silu" | "swish") => UnaryOp::Silu,
        _ => UnaryOp::GeluTanh,
    }
}

const OWN: &[Field] = &[
    Field::new("layer_norm_epsilon", Accepts::Number),
    Field::new("afn", Accepts::OneOf(&["gelu", "relu", "silu", "swish"])),
];

/// As the class for text generation saves it, and as the model without its head is published.
const NAMES: Table = &[
    (TABLE, "transformer.tokens_embed"),
    (TABLE, "tokens_embed"),
    (POSITIONS, "transformer.positions_embed"),
    (POSITIONS, "positions_embed"),
    (HEAD, "lm_head"),
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
