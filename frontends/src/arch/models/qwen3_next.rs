//! Qwen3-Next (Qwen, 2025): as Qwen3.5 with experts, projections of the gated delta rule stored head by head.

use crate::arch::blocks::families::qwen_gated_delta::{
    self, DELTA, EXPERTS, GATE, LAYERS, decoder, delta, drafted, experts,
};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::{DELTA_QKV, DELTA_RATE, GatedDelta, Projections};

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen3_next",
    class: "Qwen3NextForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, MLP, ATTENTION_BIAS, DELTA, LAYERS, EXPERTS, OWN],
    fixed: &[("attn_output_gate", Neutral::On), GATE],
    goldens: &["qwen3_next"],
    names: Names(&[NAMES, qwen_gated_delta::NAMES, QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 151_936, heads: 16, kv_heads: 2, head_dim: 256, max_position: 32_768, partial: 0.25, ..LLAMA
        };
        let delta = GatedDelta { stored: Projections::ByHead, ..delta(f)? };
        let d = decoder(f, &defaults, delta)?;
        let experts = experts(f, &d, [512, 10], f.flag_or("norm_topk_prob", true))?;
        let sparse = Experts::sparse_layers(f, d.layers.len());
        Ok(Box::new(drafted(d.with_experts(|i| sparse[i].then_some(experts)))))
    },
};

const OWN: &[Field] = fields! { norm_topk_prob, decoder_sparse_step, mlp_only_layers };

const NAMES: Table = names! {
    "model.layers.{}." { DELTA_QKV => "linear_attn.in_proj_qkvz", DELTA_RATE => "linear_attn.in_proj_ba" }
};
