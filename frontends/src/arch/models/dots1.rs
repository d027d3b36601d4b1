//! dots.llm1 (arXiv 2506.05767): Qwen3's attention, then mixtures of experts as DeepSeek-V3 has them.

use crate::arch::blocks::families::latent_experts::sigmoids_of;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "dots1",
    class: "Dots1ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, WINDOW, OWN],
    fixed: fixed! {
        Words(&["noaux_tc", "sigmoid"]) => scoring_func;
        Words(&["noaux_tc"]) => topk_method;
        One => moe_layer_freq;
    },
    goldens: &["dots1"],
    names: Names(&[DEEPSEEK_CORRECTION, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = defaults! { vocab: 152_064, heads: 32, kv_heads: 32, ..LLAMA };
        let d = Decoder::read(f, &defaults)?;
        let window = f.size("sliding_window").or_null(4096);
        let (first, sliding) = (f.count("max_window_layers").unwrap_or(62), common::sliding_layers(f, d.layers.len())?);
        let d = d.with_heads(|i, a, h| {
            (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Head));
            a.window = window.filter(|_| sliding.as_ref().map_or(i >= first, |s| s[i]));
        });
        let chosen = Router::softmax(f.required_size("num_experts_per_tok")?, f.flag("norm_topk_prob"));
        let router = sigmoids_of(f, chosen, 1.0)?;
        let ffn = f.size("moe_intermediate_size").or(1408);
        let beside = f.required_size("n_shared_experts")?;
        let experts = Experts {
            ffn,
            correction: Some(CORRECTION),
            shared: Some(Shared::plain(ffn.saturating_mul(beside))),
            ..Experts::like(&d, router, f.required_size("n_routed_experts")?)
        };
        let experts = experts.checked(f, ["n_routed_experts", "num_experts_per_tok"])?;
        let dense = f.count("first_k_dense_replace").unwrap_or(0);
        Ok(Box::new(d.with_experts(|i| (i >= dense).then_some(experts))))
    },
};

const OWN: &[Field] = fields! {
    n_routed_experts | num_local_experts, num_experts_per_tok, n_shared_experts, moe_intermediate_size,
    first_k_dense_replace, routed_scaling_factor, n_group, topk_group, norm_topk_prob, max_window_layers,
};
