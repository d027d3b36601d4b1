//! DeepSeek-V2 and V2-Lite (arXiv 2405.04434): latent attention, and from some layer on mixtures of
//! experts beside an MLP for all tokens.

use crate::arch::blocks::families::latent_experts::{EXPERTS, second_experts, with_dense};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "deepseek_v2",
    class: "DeepseekV2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, LATENT, EXPERTS, CHOICE],
    fixed: &[("moe_layer_freq", Neutral::One), ("scoring_func", Neutral::Words(&["softmax"]))],
    goldens: &["deepseek_v2", "deepseek_v2_lite"],
    names: Names(&[DEEPSEEK_EXPERTS, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 102_400, heads: 32, ..LLAMA };
        f.refuse_flag("mlp_bias", "this architecture expects experts without biases")?;
        f.refuse_flag("norm_topk_prob", "this architecture, as in Transformers, does not normalize the weights")?;
        let d = latent_decoder::decoder(f, defaults, Latent::of(f))?;
        let experts = second_experts(f, &d)?;
        Ok(Box::new(with_dense(f, d, experts, 0)))
    },
};

const CHOICE: &[Field] = fields! { topk_method };
