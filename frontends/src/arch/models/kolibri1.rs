//! Kolibri (Aleph Alpha, 2026): norms on both sides of the blocks and of queries and keys, windows in
//! most layers, positions rotated there only, experts chosen by corrected logits in every layer.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "kolibri1",
    class: "Kolibri1ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, WINDOW, OWN],
    fixed: &[("attention_bias", Neutral::Off)],
    goldens: &["kolibri1"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 128_000, heads: 48, kv_heads: 4, head_dim: 128, max_position: 262_144,
            // The experts are the only MLPs.
            ffn: 1, ..LLAMA
        };
        let mut d = Decoder::read(f, &defaults)?;
        d.norms = Norms::Both;
        let window = f.size("sliding_window").or_null(513);
        let sliding = common::sliding_layers(f, d.facts.layers)?;
        let d = d.with_heads(|i, a, h| {
            let slides = sliding.as_ref().map_or(!(i + 1).is_multiple_of(5), |s| s[i]);
            (h.qk_norm, a.window) = (Some(QkNorm::Head), window.filter(|_| slides));
            a.rotary = (slides || window.is_none()).then_some(0);
        });
        let router = Router::softmax(f.size("num_experts_per_tok").or(6), f.flag("norm_topk_prob"));
        let router = Router { score: Score::SigmoidOfChosen, ..router };
        let experts = Experts {
            ffn: f.size("moe_intermediate_size").or(512),
            correction: Some(CORRECTION),
            shared: Some(Shared::plain(f.size("shared_expert_intermediate_size").or(512))),
            ..Experts::like(&d, router, f.size("num_experts").or(384))
        };
        let experts = experts.checked(f, ["num_experts", "num_experts_per_tok"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = fields! {
    rms_norm_eps, hidden_act, num_experts | num_local_experts, num_experts_per_tok, moe_intermediate_size,
    shared_expert_intermediate_size, norm_topk_prob,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_POST_NORM => "post_attn_norm", ATTN_POST_NORM => "post_self_attn_layernorm",
        MLP_NORM => "post_attention_layernorm", MLP_POST_NORM => "post_ffn_norm", MLP_POST_NORM => "post_mlp_layernorm",
        CORRECTION => "moe.router.expert_bias", CORRECTION => "mlp.gate.e_score_correction_bias",
    }
};
