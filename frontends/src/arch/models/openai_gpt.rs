//! GPT, the first (Radford et al., 2018): as GPT-2, but with norms after the residual addition, and no last norm.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "openai-gpt",
    class: "OpenAIGPTLMHeadModel",
    fields: &[IDENTITY, GPT_MODEL, OWN],
    // The MLP is four times as wide as the model, whatever files say.
    fixed: &[],
    goldens: &["openai_gpt"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! { vocab: 40_478, max_position: 512, ..GPT2 };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        (d.norm, d.norms, d.embedding.positions, d.head.norm) =
            (Norm::layer(d.norm.eps), Norms::Around, Some(Positions::Learned(0)), false);
        let act = activation(f);
        let d = d.with_heads(|_, a, h| {
            (h.projection, h.transposed) = (Projection::Fused, true);
            (h.qkv_bias, h.out_bias, a.rotary) = (true, true, None);
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

const OWN: &[Field] = fields! { layer_norm_epsilon, afn: Accepts::OneOf(&["gelu", "relu", "silu", "swish"]) };

/// As the class for text generation saves it, and as the model without its head is published.
const NAMES: Table = names! {
    "transformer." | "" { TABLE => "tokens_embed", POSITIONS => "positions_embed" }
    "" { HEAD => "lm_head" }
    "transformer.h.{}." | "h.{}." {
        ATTN_NORM => "ln_1", ATTN_QKV => "attn.c_attn", ATTN_OUT => "attn.c_proj", MLP_NORM => "ln_2",
        MLP_UP => "mlp.c_fc", MLP_DOWN => "mlp.c_proj",
    }
};
