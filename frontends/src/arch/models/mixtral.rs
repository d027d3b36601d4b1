//! Mixtral (arXiv 2401.04088): Mistral with a mixture of experts in every layer.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::Experts;
use crate::arch::blocks::names::{HUGGING_FACE, MIXTRAL_EXPERTS, Names};
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY, WINDOW, WindowRule};
use crate::config::fields::{Accepts, Field, IDENTITY};
use llmcc_ir::graph::Router;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mixtral",
    class: "MixtralForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW, EXPERTS],
    fixed: &[],
    goldens: &["mixtral"],
    names: Names(&[MIXTRAL_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let window = WindowRule::Given;
        let (max_position, eps, theta) = (131_072, 1e-5, 1e6);
        let defaults = Defaults { kv_heads: Some(8), max_position, window, eps, theta, ..Defaults::LLAMA };
        let d = Decoder::read(f, &defaults)?;
        let router = Router::softmax(f.size("num_experts_per_tok").or(2), true);
        let experts = Experts::like(&d, router, f.size("num_local_experts").or(8));
        let experts = experts.checked(f, ["num_local_experts", "num_experts_per_tok"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const EXPERTS: &[Field] = &[
    Field::new("num_local_experts", Accepts::Size(4096)).or(&["num_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
];
