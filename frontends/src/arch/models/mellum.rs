//! Mellum 2 (JetBrains, 2026): Qwen3 with experts, windows in some layers, whose frequencies are others.
//!
//! The layer that predicts a further token is a draft head, and no part of the model.

use crate::arch::blocks::drafts::Drafts;
use crate::arch::blocks::families::draft_names::DraftNames;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mellum",
    class: "MellumForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY_OF_KINDS, MLP, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("num_mtp_layers", Neutral::Any)],
    goldens: &["mellum"],
    names: Names(&[QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = defaults! {
            vocab: 98_304, heads: 32, kv_heads: 4, head_dim: 128, max_position: 131_072, ..LLAMA
        };
        let d = Decoder::read_with(f, &defaults, |heads, max| read_two(f, heads.dim, max, TwoRopes::new([5e5, 1e4])))?;
        let window = f.size("sliding_window").or_null(1024);
        let sliding = common::sliding_layers(f, d.layers.len())?;
        let d = d.with_heads(|i, a, h| {
            (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Head));
            let slides = sliding.as_ref().is_some_and(|s| s[i]);
            (a.window, a.rotary) = (window.filter(|_| slides), Some(usize::from(slides)));
        });
        let router = Router::softmax(f.size("num_experts_per_tok").or(8), f.flag_or("norm_topk_prob", true));
        let experts = Experts {
            ffn: f.size("moe_intermediate_size").or(896),
            ..Experts::like(&d, router, f.size("num_experts").or(64))
        };
        let experts = experts.checked(f, ["num_experts", "num_experts_per_tok"])?;
        let d = d.with_sparse(f, 0, experts)?;
        let [slides, mixes] = ahead(f);
        let draft = d.layers.last().map(|layer| {
            let (window, rotary) = (window.filter(|_| slides), Some(usize::from(slides)));
            let attention = Attention { window, rotary, ..layer.attention };
            let layer = Layer { attention, experts: mixes.then_some(experts), ..*layer };
            Drafts { names: DraftNames::Apart, layer }
        });
        Ok(Box::new(Decoder { draft, ..d }))
    },
};

/// Whether the layer that predicts a further token has a window, and experts.
fn ahead(f: &Fields) -> [bool; 2] {
    let first = |name: &str| f.get(name).value()?.as_array()?.first()?.as_str();
    [first("mtp_layer_types") != Some("full_attention"), first("mtp_mlp_layer_types") != Some("dense")]
}

const OWN: &[Field] = fields! {
    mtp_layer_types: Accepts::ListOf(&["sliding_attention", "full_attention"]),
    mtp_mlp_layer_types: Accepts::ListOf(&["sparse", "dense"]), mlp_layer_types, num_experts | num_local_experts,
    num_experts_per_tok, moe_intermediate_size, norm_topk_prob,
};
