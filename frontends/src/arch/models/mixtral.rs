//! Mixtral (arXiv 2401.04088): Mistral with a mixture of experts in every layer.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mixtral",
    class: "MixtralForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW, EXPERTS],
    fixed: &[],
    goldens: &["mixtral"],
    names: Names(&[MIXTRAL_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { kv_heads: 8, max_position: 131_072, window: Given, eps: 1e-5, theta: 1e6, ..LLAMA };
        let d = Decoder::read(f, &defaults)?;
        let router = Router::softmax(f.size("num_experts_per_tok").or(2), true);
        let experts = Experts::like(&d, router, f.size("num_local_experts").or(8));
        let experts = experts.checked(f, ["num_local_experts", "num_experts_per_tok"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const EXPERTS: &[Field] = fields! { num_local_experts | num_experts, num_experts_per_tok };
