//! Qwen3-VL with experts (arXiv 2511.21631), its text model: Qwen3 with experts in stacks, whose weights always have
//! the sum 1. Published files have the stacks transposed, those that Transformers saves anew may have them either way.

use crate::arch::blocks::families::qwen_experts::{EXPERTS, experts, in_layers};
use crate::arch::blocks::prelude::*;
use crate::config::sections::Form;

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen3_vl_moe_text",
    class: "Qwen3VLMoeForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, EXPERTS],
    fixed: &[("norm_topk_prob", Neutral::On)],
    goldens: &["qwen3_vl_moe_text"],
    names: Names(&[NAMES, QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = defaults! {
            vocab: 151_936, heads: 16, kv_heads: 16, max_position: 128_000, theta: 5e5, tied: true, ..LLAMA
        };
        let d = Decoder::read(f, &defaults)?.with_sections(f, Form::Interleaved, [24, 20, 20])?;
        let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Head)));
        let experts = Experts { stored: Stored::JoinedEitherWay, ..experts(f, &d, [4, 1408, 60], true) };
        in_layers(f, d, experts)
    },
};

const NAMES: Table = names! {
    "model.layers.{}." { EXPERTS_GATE_UP => "mlp.experts.gate_up_proj", EXPERTS_DOWN => "mlp.experts.down_proj" }
};
