//! Flint (Recursive, 2026): Qwen3 with experts, but sinks in all layers, rotation in those with a window
//! only, sigmoids as scores of experts, and an MLP for all tokens beside them.

use crate::arch::blocks::families::qwen_experts::{EXPERTS, NORMALIZED, experts, in_those};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "flint",
    class: "FlintForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, WINDOW, EXPERTS, NORMALIZED, OWN],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["flint"],
    names: Names(&[NAMES, QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 150_144, heads: 32, kv_heads: 4, head_dim: 128, max_position: 262_144, ..LLAMA
        };
        let d = Decoder::read(f, &defaults)?;
        let (layers, bias) = (d.facts.layers, f.flag("attention_bias"));
        // The first two see everything, and so do every fourth and the last one.
        let full = |i: usize| i < 2 || i % 4 == 1 || i + 1 == layers;
        let sliding = common::sliding_layers(f, layers)?.unwrap_or_else(|| (0..layers).map(|i| !full(i)).collect());
        let window = f.size("sliding_window").or(513);
        let d = d.with_heads(|i, a, h| {
            (h.qkv_bias, h.out_bias, h.qk_norm, a.sinks) = (bias, bias, Some(QkNorm::Head), true);
            (a.rotary, a.window) = (sliding[i].then_some(0), sliding[i].then_some(window));
        });
        let experts = experts(f, &d, [6, 512, 256], f.flag_or("norm_topk_prob", true));
        let experts = Experts {
            router: Router { score: Score::Sigmoid, ..experts.router },
            shared: Some(Shared::plain(f.size("shared_expert_intermediate_size").or(1024))),
            ..experts
        };
        in_those(f, d, experts, &sparse_layers(f, layers))
    },
};

/// Which layers have experts: all but the first two, where the file does not say.
fn sparse_layers(f: &Fields, layers: usize) -> Vec<bool> {
    let named = f.numbers("mlp_only_layers").is_some();
    let sparse = Experts::sparse_layers(f, layers);
    sparse.into_iter().enumerate().map(|(i, sparse)| sparse && (named || i >= 2)).collect()
}

const OWN: &[Field] = fields! { shared_expert_intermediate_size };

const NAMES: Table = names! {
    "model.layers.{}." { ATTN_SINKS => "self_attn.softmax_offset", ATTN_SINKS => "self_attn.sinks" }
};
