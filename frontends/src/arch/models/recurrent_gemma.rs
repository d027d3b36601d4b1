//! RecurrentGemma (arXiv 2404.07839): Griffin's gated linear units in two of three layers, attention
//! with a window in the others, norms and scales as in Gemma, logits with a soft cap.

use crate::arch::blocks::prelude::*;
use crate::arch::blocks::rg_lru::{self, LinearUnit};

pub(crate) const ARCH: Arch = Arch {
    model_type: "recurrent_gemma",
    class: "RecurrentGemmaForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, PARTIAL_ROTARY, ATTENTION_BIAS, OWN],
    // The classes divide the width among the heads, and multiply embeddings.
    fixed: fixed! { On => embeddings_scale_by_sqrt_dim; Any => final_w_init_variance_scale w_init_variance_scale; },
    goldens: &["recurrent_gemma"],
    names: Names(&[NAMES, rg_lru::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 256_000, heads: 10, max_position: 1 << 20, window: AllLayers(2048), tied: true, partial: 0.5,
            act(hidden_activation): GeluTanh, ..LLAMA
        };
        let (unit, bias) = (unit(f)?, f.flag("attention_bias"));
        let heads = f.size("num_attention_heads").or(10);
        common::follows(
            f,
            "head_dim",
            f.required_size("hidden_size")? / heads,
            "`hidden_size` over `num_attention_heads`",
        )?;
        let mut d = Decoder::read(f, &defaults)?;
        let kinds = kinds(f)?;
        d.norm.from_one = true;
        d.scales.embedding = Some(half::bf16::from_f32((d.facts.hidden as f64).sqrt() as f32).to_f32());
        d.scales.cap = Some(f.factor_or("logits_soft_cap", 30.0)? as f32);
        let d = d.with_mixers(|i| (!kinds[i % kinds.len()]).then_some(Mixer::Linear(unit)));
        let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias) = (bias, true));
        // The two matrices of gate and input together have that width.
        Ok(Box::new(d.with_mlp(|m| (m.ffn, m.bias) = (m.ffn / 2, true))))
    },
};

const OWN: &[Field] = fields! {
    head_dim: Accepts::Any, rms_norm_eps, num_key_value_heads, intermediate_size, hidden_activation, lru_width,
    conv1d_width, sliding_window | attention_window_size, logits_soft_cap,
    block_types | _block_types: Accepts::ListOf(KINDS),
};

const NAMES: Table = names! {
    "" { NORM => "model.final_norm" }
    "model.layers.{}." {
        ATTN_NORM => "temporal_pre_norm", MLP_NORM => "channel_pre_norm", ATTN_Q => "temporal_block.q_proj",
        ATTN_K => "temporal_block.k_proj", ATTN_V => "temporal_block.v_proj", ATTN_OUT => "temporal_block.o_proj",
        MLP_GATE => "mlp_block.gate_proj", MLP_UP => "mlp_block.up_proj", MLP_DOWN => "mlp_block.down_proj",
    }
};

fn unit(f: &Fields) -> Result<LinearUnit, ConfigError> {
    let (hidden, heads) = (f.required_size("hidden_size")?, f.size("num_attention_heads").or(10));
    let width = f.size("lru_width").or(hidden);
    if !width.is_multiple_of(heads) {
        return Err(f.invalid("lru_width", &width, format!("a multiple of `num_attention_heads` ({heads})")));
    }
    let conv = common::conv_width(f, "conv1d_width", 4)?;
    Ok(LinearUnit { width, heads, conv, act: common::activation(f, "hidden_activation", UnaryOp::GeluTanh) })
}

/// Which layers have attention: a pattern that is repeated.
fn kinds(f: &Fields) -> Result<Vec<bool>, ConfigError> {
    let Some(list) = f.get("block_types").value().and_then(|v| v.as_array()) else {
        return Ok(vec![false, false, true]);
    };
    if list.is_empty() || list.iter().any(|v| v.as_str() == Some("full_attention")) {
        let help = "this architecture supports linear units, and attention with a window".to_string();
        return Err(f.unsupported("block_types", serde_json::Value::from(list.clone()).to_string(), help));
    }
    Ok(list.iter().map(|v| v.as_str() != Some("recurrent")).collect())
}

/// The last is refused with a word of its own.
const KINDS: &[&str] = &["recurrent", "attention", "sliding_attention", "full_attention"];
