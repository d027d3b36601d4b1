//! LFM3 (Liquid AI, 2026): LFM2 with norms after the blocks too, windows in some of the layers that
//! attend, a gate for each head, and rotations that differ with the window.

use crate::arch::blocks::families::lfm2_layers;
use crate::arch::blocks::prelude::*;
use crate::config::rope_kinds::read_proportional;

pub(crate) const ARCH: Arch = Arch {
    model_type: "lfm3",
    class: "Lfm3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ATTENTION_BIAS, OWN],
    fixed: &[],
    goldens: &["lfm3"],
    names: Names(&[NAMES, lfm2_layers::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 128_000, heads: 16, kv_heads: 4, head_dim: 128, max_position: 128_000, tied: true,
            eps(norm_eps): 1e-5, ..LLAMA
        };
        let mut d =
            Decoder::read_with(f, &defaults, |heads, max| read_proportional(f, [heads.dim, heads.dim], 0.5, max))?;
        let named = common::layer_types(f, d.facts.layers)?;
        let kind = |i: usize| match &named {
            Some(types) => types[i],
            None if i % 4 == 2 => FULL,
            None if i.is_multiple_of(4) && i > 0 => WINDOWED,
            None => CONVOLVED,
        };
        let types: Vec<&str> = (0..d.facts.layers).map(kind).collect();
        let window = f.size("sliding_window").or(256);
        let (bias, gated) = (f.flag("attention_bias"), f.flag_or("use_attention_gate", true));
        if f.flag_or("use_sandwich_norm", true) {
            d.norms = Norms::Both;
        }
        let conv = lfm2_layers::conv(f, 7)?;
        let d = d.with_heads(|i, a, h| {
            (h.qk_norm, h.qkv_bias, h.out_bias) = (Some(QkNorm::Head), bias, bias);
            a.gate = gated.then_some(Gate::Heads);
            a.window = (types[i] == WINDOWED).then_some(window);
            a.rotary = Some(usize::from(types[i] == WINDOWED));
        });
        let convolved: Vec<bool> = types.iter().map(|t| *t == CONVOLVED).collect();
        Ok(Box::new(lfm2_layers::with_convolutions(d, conv, &convolved)))
    },
};

const CONVOLVED: &str = "conv";
const FULL: &str = "full_attention";
const WINDOWED: &str = "sliding_attention";

const OWN: &[Field] = fields! {
    intermediate_size, norm_eps, conv_bias, conv_L_cache, rope_parameters, sliding_window, use_sandwich_norm,
    use_attention_gate, layer_types: Accepts::ListOf(lfm2_layers::LAYER_TYPES),
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_Q_NORM => "self_attn.q_norm", ATTN_K_NORM => "self_attn.k_norm", ATTN_OUT => "self_attn.o_proj",
        ATTN_GATE => "self_attn.gate_proj", ATTN_POST_NORM => "post_operator_norm", MLP_POST_NORM => "post_ffn_norm",
    }
};
