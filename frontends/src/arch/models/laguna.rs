//! Laguna (Poolside, 2026): norms of queries and keys, as many heads as each layer wants, windows and
//! rotations that differ with them, gates that are not bounded, experts chosen by corrected sigmoids.

use crate::arch::blocks::prelude::*;
use serde_json::Value;

pub(crate) const ARCH: Arch = Arch {
    model_type: "laguna",
    class: "LagunaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY_OF_KINDS, MLP, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[("moe_apply_router_weight_on_input", Neutral::Off)],
    goldens: &["laguna", "laguna_columns"],
    names: Names(&[NAMES, QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 100_352, heads: 48, kv_heads: 8, head_dim: 128, max_position: 131_072, ..LLAMA
        };
        let d = Decoder::read_with(f, &defaults, |heads, max| {
            let class = TwoRopes { parts: [0.5, 1.0], partial: true, ..TwoRopes::new([5e5, 1e4]) };
            read_two(f, heads.dim, max, class)
        })?;
        let layers = d.facts.layers;
        let (gate, queries) = (gate(f)?, queries(f, layers)?);
        let (bias, window) = (f.flag("attention_bias"), f.size("sliding_window").or_null(512));
        let sliding = common::sliding_layers(f, layers)?;
        let d = d.with_heads(|i, a, h| {
            (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Head));
            (a.gate, a.gate_act) = (Some(gate), UnaryOp::Softplus);
            let slides = sliding.as_ref().is_some_and(|s| s[i]);
            (a.window, a.rotary) = (window.filter(|_| slides), Some(usize::from(slides)));
            a.heads.queries = queries.as_ref().map_or(a.heads.queries, |q| q[i]);
        });
        if let Some(a) = d.layers.iter().map(|l| l.attention).find(|a| !a.heads.queries.is_multiple_of(a.heads.kv)) {
            let expected = format!("multiples of the {} heads of keys and values", a.heads.kv);
            return Err(f.invalid(QUERIES, &a.heads.queries, expected));
        }
        let experts = experts(f, &d)?;
        Ok(Box::new(d.with_sparse(f, 1, experts)?))
    },
};

fn gate(f: &Fields) -> Result<Gate, ConfigError> {
    match f.get("gating").value() {
        None | Some(Value::Bool(true)) => Ok(Gate::Heads),
        Some(v) if v == "per-head" => Ok(Gate::Heads),
        Some(v) if v == "per-element" => Ok(Gate::Columns),
        Some(v) => Err(f.invalid_value("gating", v, "true, \"per-head\" or \"per-element\"".into())),
    }
}

/// Heads of each layer, where they are listed.
fn queries(f: &Fields, layers: usize) -> Result<Option<Vec<usize>>, ConfigError> {
    let Some(list) = f.numbers(QUERIES) else { return Ok(None) };
    let whole = |x: &f64| x.fract() == 0.0 && (1.0..=f64::from(1 << 14)).contains(x);
    if list.len() != layers || !list.iter().all(whole) {
        return Err(f.invalid(QUERIES, &list, format!("{layers} numbers of heads")));
    }
    Ok(Some(list.iter().map(|x| *x as usize).collect()))
}

fn experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let router = sigmoid_router(f, 8, ("moe_routed_scaling_factor", 1.0))?;
    let cap = if f.number(CAP).is_some_and(|cap| cap <= 0.0) { None } else { common::limit(f, CAP)? };
    let experts = Experts {
        ffn: f.size("moe_intermediate_size").or(512),
        correction: Some(CORRECTION),
        routing: Routing { cap, ..Routing::default() },
        shared: Some(Shared::plain(f.size("shared_expert_intermediate_size").or(512))),
        ..Experts::like(d, router, f.size("num_experts").or(256))
    };
    experts.checked(f, ["num_experts", "num_experts_per_tok"])
}

const QUERIES: &str = "num_attention_heads_per_layer";
/// 0 and less: none.
const CAP: &str = "moe_router_logit_softcapping";

const OWN: &[Field] = fields! {
    gating, num_attention_heads_per_layer, mlp_layer_types, num_experts | num_local_experts, num_experts_per_tok,
    moe_intermediate_size, shared_expert_intermediate_size, moe_routed_scaling_factor, moe_router_logit_softcapping,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_GATE => "self_attn.g_proj", CORRECTION => "mlp.experts.e_score_correction_bias",
        CORRECTION => "mlp.gate.e_score_correction_bias",
        // The second of each as Transformers 5 has it in memory.
        SHARED_GATE => "mlp.shared_expert.gate_proj", SHARED_GATE => "mlp.shared_experts.gate_proj",
        SHARED_UP => "mlp.shared_expert.up_proj", SHARED_UP => "mlp.shared_experts.up_proj",
        SHARED_DOWN => "mlp.shared_expert.down_proj", SHARED_DOWN => "mlp.shared_experts.down_proj",
    }
};
