//! The text model of Molmo 2 (Ai2, 2025): Qwen3's norms of heads or OLMo 2's of rows, norms before or after the
//! blocks, and rotations that are scaled in some layers. Rows of a second table are of tokens that no text has.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::embedding_and_head::MORE_ROWS;
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K_NORM, ATTN_NORM, ATTN_OUT, ATTN_POST_NORM, ATTN_Q_NORM, ATTN_QKV, HEAD, MLP_DOWN, MLP_GATE_UP, MLP_NORM,
    MLP_POST_NORM, NORM, Names, TABLE, Table,
};
use crate::config::common::{self, ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use crate::config::rope;
use crate::rope::{RopeConfig, RopeScaling};

pub(crate) const ARCH: Arch = Arch {
    model_type: "molmo2_text",
    class: "Molmo2ForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, OWN],
    fixed: &[("use_qk_norm", Neutral::On)],
    goldens: &["molmo2"],
    names: Names(&[NAMES]),
    read: |f| {
        let f = &f.by_default(&[("hidden_size", 4096), ("intermediate_size", 12_288), ("num_hidden_layers", 36)]);
        let defaults = Defaults {
            vocab: Some(151_936),
            heads: Some(32),
            kv_heads: Some(8),
            head_dim: Some(128),
            max_position: 36_864,
            ..Defaults::LLAMA
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
        let d = d.with_attention(|i, a| {
            (a.fused, a.qkv_bias, a.qk_norm) = (true, bias, Some(norm));
            let plain = scaled.as_ref().is_some_and(|list| !list.contains(&i));
            a.rotary = Some(usize::from(plain && tables > 1));
        });
        Ok(Box::new(d.with_mlp(|m| (m.fused, m.up_first) = (true, true))))
    },
};

const OWN: &[Field] = &[
    Field::new("qk_norm_type", Accepts::OneOf(&["qwen3", "olmo"])),
    Field::new("norm_after", Accepts::Flag),
    Field::new("additional_vocab_size", Accepts::Count),
    Field::new("rope_scaling_layers", Accepts::Any),
];

const NAMES: Table = &[
    (TABLE, "model.transformer.wte.embedding"),
    (MORE_ROWS, "model.transformer.wte.new_embedding"),
    (HEAD, "lm_head"),
    (NORM, "model.transformer.ln_f"),
    (ATTN_NORM, "model.transformer.blocks.{}.attn_norm"),
    (ATTN_POST_NORM, "model.transformer.blocks.{}.attn_norm"),
    (ATTN_QKV, "model.transformer.blocks.{}.self_attn.att_proj"),
    (ATTN_Q_NORM, "model.transformer.blocks.{}.self_attn.q_norm"),
    (ATTN_K_NORM, "model.transformer.blocks.{}.self_attn.k_norm"),
    (ATTN_OUT, "model.transformer.blocks.{}.self_attn.attn_out"),
    (MLP_NORM, "model.transformer.blocks.{}.ff_norm"),
    (MLP_POST_NORM, "model.transformer.blocks.{}.ff_norm"),
    (MLP_GATE_UP, "model.transformer.blocks.{}.mlp.ff_proj"),
    (MLP_DOWN, "model.transformer.blocks.{}.mlp.ff_out"),
];
