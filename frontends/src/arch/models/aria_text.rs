//! Aria (arXiv 2410.05993), its text model: Llama with experts in every layer, as stacks of transposed
//! matrices, beside an MLP for all tokens.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "aria_text",
    class: "AriaTextForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, OWN],
    fixed: &[],
    goldens: &["aria_text"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 32_000, heads: 32, ffn: 1, ..LLAMA };
        let bias = f.flag("attention_bias");
        let d = Decoder::read(f, &defaults)?.with_attention_bias(bias);
        silu_alone(f, &d)?;
        let router = Router::softmax(f.size("moe_topk").or(2), true);
        let experts = Experts::like(&d, router, f.size("moe_num_experts").or(8));
        let beside = f.size("moe_num_shared_experts").or(2);
        let shared = Some(Shared::plain(experts.ffn.saturating_mul(beside)));
        let experts = Experts { stored: Stored::JoinedTurned, shared, ..experts };
        let experts = experts.checked(f, ["moe_num_experts", "moe_topk"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = fields! { moe_num_experts, moe_topk, moe_num_shared_experts: Accepts::Size(4096) };

const NAMES: Table = names! {
    "model.layers.{}." {
        ROUTER => "mlp.router", EXPERTS_GATE_UP => "mlp.experts.fc1.weight",
        EXPERTS_GATE_UP => "mlp.experts.gate_up_proj", EXPERTS_DOWN => "mlp.experts.fc2.weight",
        EXPERTS_DOWN => "mlp.experts.down_proj", SHARED_GATE => "mlp.shared_experts.gate_proj",
        SHARED_UP => "mlp.shared_experts.up_proj", SHARED_DOWN => "mlp.shared_experts.down_proj",
    }
};
