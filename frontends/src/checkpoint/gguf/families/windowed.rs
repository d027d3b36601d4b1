//! Decoders of 2026 with windows in most layers: Granite's with sinks, Laguna, Muse Glimmer.

use super::super::file::{Config, File, Wrong, set_layer_types, without};
use super::super::header::Value;
use super::super::names::{DEEPSEEK_EXPERTS, Names, QWEN_EXPERTS, SANDWICH_NORMS, UNREAD};
use super::mixtures::{GRANITE_EXPERTS, LOCAL, MULTIPLIERS, set_sparse};
use super::{ATTENTION_BIAS, Family, Gains, Heads, PLAIN, Q_BIAS, Reading, Stored, WINDOW, has_experts};
use serde_json::json;

const HEADS: &str = "attention.head_count";
const ROTATED: &str = "attention.rope_pattern";

pub(in super::super) const FAMILIES: &[Family] = &[
    Family {
        model_type: ("granitemoe_swa", "GraniteMoeSWAForCausalLM"),
        suits: has_experts,
        keys: &[WINDOW, MULTIPLIERS, LOCAL],
        names: &[SINKS, GRANITE_SHARED, GRANITE_EXPERTS],
        found: ATTENTION_BIAS,
        ..GRANITE
    },
    GRANITE,
    Family {
        name: "laguna",
        model_type: ("laguna", "LagunaForCausalLM"),
        keys: &[
            WINDOW,
            &[
                ("expert_count", "num_experts"),
                ("expert_used_count", "num_experts_per_tok"),
                ("expert_feed_forward_length", "moe_intermediate_size"),
                ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
                ("expert_weights_scale", "moe_routed_scaling_factor"),
            ],
        ],
        reading: Reading { lists: &[HEADS], ..Reading::SIGMOIDS },
        quiet: &["leading_dense_block_count", "expert_weights_norm", "rope.dimension_count_swa", "rope.freq_base_swa"],
        names: &[LAGUNA, QWEN_EXPERTS, DEEPSEEK_EXPERTS],
        found: ATTENTION_BIAS,
        adapt: laguna,
        ..PLAIN
    },
    Family {
        name: "muse-glimmer",
        model_type: ("muse_glimmer_text", "MuseGlimmerForConditionalGeneration"),
        keys: &[
            WINDOW,
            &[("logit_scale", "output_multiplier"), ("final_logit_softcapping", "final_logit_softcapping")],
        ],
        names: &[MUSE, SANDWICH_NORMS],
        stored: Stored {
            heads: Heads::Neighbours,
            gains: Gains::OneMore { but: &["output_norm.weight"] },
            ..Stored::SAME
        },
        found: ATTENTION_BIAS,
        adapt: muse,
        ..PLAIN
    },
];

const GRANITE: Family = Family {
    name: "granite_swa",
    model_type: ("granite_swa", "GraniteSWAForCausalLM"),
    keys: &[WINDOW, MULTIPLIERS],
    quiet: &[ROTATED],
    names: &[SINKS],
    stored: Stored::NEIGHBOURS,
    found: &[("attention_bias", Q_BIAS), ("mlp_bias", "blk.0.ffn_up.bias")],
    adapt: granite,
    ..PLAIN
};

const SINKS: Names = &[("blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks")];

const GRANITE_SHARED: Names = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.shared_mlp.input_linear"),
];

/// Which layers rotate; without a list, all do.
fn granite(f: &File, config: &mut Config) -> Result<(), Wrong> {
    if let Some(list) = f.get(ROTATED).and_then(Value::list) {
        let base = f.number("rope.freq_base").unwrap_or(1e4);
        let bases: Vec<f64> = list.iter().map(|v| if v.flag() == Some(false) { 0.0 } else { base }).collect();
        config.insert("layer_rope_theta".into(), json!(bases));
    }
    Ok(())
}

const LAGUNA: Names = &[
    ("blk.{}.attn_gate", "model.layers.{}.self_attn.g_proj"),
    ("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.experts.e_score_correction_bias"),
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"),
];

/// Heads of each layer, gates of heads or of their columns, and two rotations.
fn laguna(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let layers = f.own_layers()?;
    let first = f.required(HEADS)?;
    if let Some(list) = config.insert("num_attention_heads".into(), first.into()).filter(|v| v.is_array()) {
        config.insert("num_attention_heads_per_layer".into(), list);
    }
    let columns = f.rows("blk.0.attn_gate.weight").is_some_and(|rows| rows as u64 != first);
    config.insert("gating".into(), if columns { "per-element" } else { "per-head" }.into());
    // As llama.cpp: where a file does not say it, every fourth layer from the first has no window.
    if f.size("attention.sliding_window").unwrap_or(0) == 0 {
        set_layer_types(config, &vec![false; layers], ["sliding_attention", "full_attention"]);
        config.remove("sliding_window");
    } else if !config.contains_key("layer_types") {
        let windowed: Vec<bool> = (0..layers).map(|i| i % 4 != 0).collect();
        set_layer_types(config, &windowed, ["sliding_attention", "full_attention"]);
    }
    set_sparse(f, config)?;
    let dim = f.required("attention.key_length")?.max(1) as f64;
    let theta = f.number("rope.freq_base").unwrap_or(1e4);
    let mut full = config.remove("rope_scaling").unwrap_or_else(|| json!({ "rope_type": "default" }));
    full["rope_theta"] = theta.into();
    full["partial_rotary_factor"] = (f.size("rope.dimension_count").map_or(dim, |n| n as f64) / dim).into();
    let windowed = json!({
        "rope_type": "default",
        "rope_theta": f.number("rope.freq_base_swa").unwrap_or(theta),
        "partial_rotary_factor": f.size("rope.dimension_count_swa").map_or(dim, |n| n as f64) / dim,
    });
    config.insert("rope_parameters".into(), json!({ "full_attention": full, "sliding_attention": windowed }));
    without(config, &["rope_theta", "partial_rotary_factor"])
}

/// Queries and keys have norms without gains: files' gains are the factor of scores, and ones.
const MUSE: Names = &[
    ("blk.{}.attn_gate", "model.layers.{}.self_attn.gate_proj"),
    ("blk.{}.attn_q_norm.weight", UNREAD),
    ("blk.{}.attn_k_norm.weight", UNREAD),
];

fn muse(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let mut of_queries = None;
    for (name, what) in f.tensors.keys().filter_map(|name| Some((name, name.strip_prefix("blk.")?.split_once('.')?.1)))
    {
        let queries = what == "attn_q_norm.weight";
        if !queries && what != "attn_k_norm.weight" {
            continue;
        }
        let Some(gains) = f.floats(name).filter(|list| !list.is_empty()) else {
            return f.refused(format_args!("does not have F32 numbers in `{name}`"));
        };
        let wanted = if queries { *of_queries.get_or_insert(gains[0]) } else { 1.0 };
        if gains.iter().any(|x| *x != wanted) {
            return f.refused(format_args!("has gains in `{name}` that are not all {wanted}"));
        }
    }
    let Some(scale) = of_queries else { return f.refused("has no `blk.0.attn_q_norm.weight`") };
    config.insert("qk_scale_factor".into(), scale.into());
    Ok(())
}
