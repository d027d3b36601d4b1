//! The text model of Molmo 2 (Ai2, 2025): Qwen3's norms of heads or OLMo 2's of rows, norms before or after the
//! blocks, and rotations that are scaled in some layers. Rows of a second table are of tokens that no text has.

use crate::arch::blocks::embedding_and_head::MORE_ROWS;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "molmo2_text",
    class: "Molmo2ForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, OWN],
    fixed: &[("use_qk_norm", Neutral::On)],
    goldens: &["molmo2"],
    names: Names(&[NAMES]),
    read: |f| {
        let f = &f.by_default(&[("hidden_size", 4096), ("intermediate_size", 12_288), ("num_hidden_layers", 36)]);
        let defaults = defaults! {
            vocab: 151_936, heads: 32, kv_heads: 8, head_dim: 128, max_position: 36_864, ..LLAMA
        };
        let d = Decoder::read_with(f, &defaults, |heads, max_position| {
            let scaled = rope::read(f, heads.dim, max_position, defaults.theta)?;
            let plain = RopeConfig { scaling: RopeScaling::Default, ..scaled.clone() };
            Ok(if scaled.scaling == RopeScaling::Default { vec![scaled] } else { vec![scaled, plain] })
        })?;
        let more = f.count("additional_vocab_size").unwrap_or(128).min(1 << 24);
        let mut d = d.with_more_rows(f, more, "tables")?;
        if f.flag("norm_after") {
            d.norms = Norms::After;
        }
        let norm = if f.text("qk_norm_type") == Some("olmo") { QkNorm::Row } else { QkNorm::Head };
        // The layers whose rotations are scaled; none given: all.
        let scaled = common::layer_numbers(f, "rope_scaling_layers")?;
        let (bias, tables) = (f.flag("attention_bias"), d.ropes.len());
        let d = d.with_heads(|i, a, h| {
            (h.projection, h.qkv_bias, h.qk_norm) = (Projection::Fused, bias, Some(norm));
            let plain = scaled.as_ref().is_some_and(|list| !list.contains(&i));
            a.rotary = Some(usize::from(plain && tables > 1));
        });
        Ok(Box::new(d.with_mlp(|m| m.joined = Some(Joined::UpGate))))
    },
};

const OWN: &[Field] = fields! {
    qk_norm_type: Accepts::OneOf(&["qwen3", "olmo"]), norm_after, additional_vocab_size, rope_scaling_layers,
};

const NAMES: Table = names! {
    "model." {
        TABLE => "transformer.wte.embedding", MORE_ROWS => "transformer.wte.new_embedding", NORM => "transformer.ln_f",
    }
    "" { HEAD => "lm_head" }
    "model.transformer.blocks.{}." {
        ATTN_NORM => "attn_norm", ATTN_POST_NORM => "attn_norm", ATTN_QKV => "self_attn.att_proj",
        ATTN_Q_NORM => "self_attn.q_norm", ATTN_K_NORM => "self_attn.k_norm", ATTN_OUT => "self_attn.attn_out",
        MLP_NORM => "ff_norm", MLP_POST_NORM => "ff_norm", MLP_GATE_UP => "mlp.ff_proj", MLP_DOWN => "mlp.ff_out",
    }
};
