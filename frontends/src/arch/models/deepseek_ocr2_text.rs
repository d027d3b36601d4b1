//! The text model of DeepSeek-OCR (arXiv 2510.18234) and its successor: DeepSeek-V2's experts, and before them
//! Llama's attention.

use crate::arch::blocks::experts::sparse_by_types_or_every;
use crate::arch::blocks::families::latent_experts::{EXPERTS, second_experts};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "deepseek_ocr2_text",
    class: "DeepseekOcr2ForConditionalGeneration",
    fields: &[IDENTITY, MODEL, DIVIDED, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, EXPERTS, OWN],
    fixed: &[
        ("scoring_func", Neutral::Words(&["softmax"])),
        // The class divides the width among the heads, whatever files say.
        ("head_dim", Neutral::Any),
        // Its name under `plain_attention`.
        ("model_type", Neutral::Words(&["deepseek_plain"])),
    ],
    goldens: &["deepseek_ocr2"],
    names: Names(&[DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        f.refuse_flag("mlp_bias", "this architecture expects experts without biases")?;
        f.refuse_flag("norm_topk_prob", "this architecture does not normalize the weights")?;
        let bias = f.flag("attention_bias");
        let d = Decoder::read(f, &defaults! { vocab: 102_400, heads: 32, ..LLAMA })?;
        let experts = second_experts(f, &d)?;
        let sparse = sparse_by_types_or_every(f, d.facts.layers)?;
        let d = d.with_attention_bias(bias);
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const OWN: &[Field] = fields! { topk_method, mlp_layer_types, moe_layer_freq };
