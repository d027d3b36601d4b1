//! Command A+ (Cohere, 2026): Cohere 2 with experts, which may stand beside an MLP for all tokens, and
//! perhaps some layers without before them.

use crate::arch::blocks::families::command_r::{DEFAULTS, LOGIT_SCALE, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "cohere2_moe",
    class: "Cohere2MoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, LAYER_NORM_MLP, ROTARY, ATTENTION_BIAS, LOGIT_SCALE, WINDOW, OWN],
    fixed: &[],
    goldens: &["cohere2_moe", "cohere2_moe_average"],
    names: Names(&[DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let mut d = read(f, &defaults! { head_dim: 128, ..DEFAULTS })?;
        if f.number("rms_norm_eps").is_some() {
            d.norm = Norm::rms(common::eps(f, "rms_norm_eps", 1e-6)?);
        }
        let layers = d.facts.layers;
        let first = f.count(DENSE).unwrap_or(0);
        let sparse = sparse_by_types(f, layers, first)?;
        let window = f.size("sliding_window").or_null(4096);
        let before = f.size(PATTERN_BEFORE).or(1);
        let every = f.size("sliding_window_pattern").or(4);
        let slides = |i: usize| match i.checked_sub(first) {
            Some(i) => !(i + 1).is_multiple_of(every),
            None => !(i + 1).is_multiple_of(before),
        };
        let sliding = common::sliding_layers(f, layers)?;
        let mut d = d.with_attention(|i, a| {
            a.window = window.filter(|_| sliding.as_ref().map_or(slides(i), |s| s[i]));
            let rotates = a.window.is_some() || !sparse[i] && before == 1;
            a.rotary = rotates.then_some(0);
        });
        let experts = experts(f, Experts::like(&d, router(f), f.size("num_experts").or(8)))?;
        if let Some(layer) = sparse.iter().position(|sparse| !sparse) {
            let ffn = f.size(DENSE_WIDTH).or(d.layers[layer].mlp.ffn);
            d = d.with_mlp(|m| m.ffn = ffn);
        }
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

/// The experts with the greatest logits, whatever function makes their weights.
fn router(f: &Fields) -> Router {
    let top = f.size("num_experts_per_tok").or(2);
    match f.text("expert_selection_fn") {
        Some("sigmoid") => Router { score: Score::Sigmoid, ..Router::softmax(top, f.flag_or("norm_topk_prob", true)) },
        _ => Router { score: Score::Chosen, ..Router::softmax(top, false) },
    }
}

fn experts(f: &Fields, experts: Experts) -> Result<Experts, ConfigError> {
    let beside = f.count("num_shared_experts").unwrap_or(0);
    let averaged = f.text(COMBINATION) != Some("sum");
    let shared = (beside > 0).then(|| Shared { averaged, ..Shared::plain(experts.ffn.saturating_mul(beside)) });
    Experts { shared, ..experts }.checked(f, ["num_experts", "num_experts_per_tok"])
}

/// Layers without experts, before the others.
const DENSE: &str = "first_k_dense_replace";
const DENSE_WIDTH: &str = "prefix_dense_intermediate_size";
const PATTERN_BEFORE: &str = "prefix_dense_sliding_window_pattern";
const COMBINATION: &str = "shared_expert_combination_strategy";

const OWN: &[Field] = fields! {
    rms_norm_eps, sliding_window_pattern, num_experts | num_local_experts, num_experts_per_tok,
    num_shared_experts: Accepts::Count, shared_expert_combination_strategy: Accepts::OneOf(&["average", "sum"]),
    expert_selection_fn: Accepts::OneOf(&["softmax", "sigmoid"]), norm_topk_prob, mlp_layer_types,
    first_k_dense_replace, prefix_dense_intermediate_size, prefix_dense_sliding_window_pattern,
};
