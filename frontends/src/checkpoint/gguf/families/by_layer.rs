//! Decoders with experts whose layers with a window have other heads than those without.

use super::super::file::{CONVERT_AGAIN, Config, File, Wrong, without};
use super::super::header::Value;
use super::super::names::{DEEPSEEK_EXPERTS, Names};
use super::mixtures::set_sparse;
use super::{EXPERTS, Family, PLAIN, Reading, Stored, WINDOW};
use serde_json::json;

const HEADS: &str = "attention.head_count";
const KV_HEADS: &str = "attention.head_count_kv";
const WINDOWS: &str = "attention.sliding_window_pattern";
const LIMITS: [(&str, &str); 2] =
    [("swiglu_clamp_exp", "swiglu_limits"), ("swiglu_clamp_shexp", "swiglu_limits_shared")];

pub(in super::super) const FAMILIES: &[Family] = &[
    Family {
        name: "step35",
        model_type: ("step3p5", "Step3p7ForConditionalGeneration"),
        keys: &[
            WINDOW,
            &[
                ("expert_count", "n_routed_experts"),
                ("expert_used_count", "num_experts_per_tok"),
                ("expert_feed_forward_length", "moe_intermediate_size"),
                ("expert_shared_feed_forward_length", "share_expert_dim"),
                ("expert_weights_scale", "moe_router_scaling_factor"),
                ("expert_weights_norm", "norm_expert_weight"),
            ],
        ],
        reading: Reading { lists: &[HEADS], own_factors: true, ..Reading::SIGMOIDS },
        quiet: &[
            "rope.freq_base_swa",
            "leading_dense_block_count",
            "moe_every_n_layers",
            "swiglu_clamp_exp",
            "swiglu_clamp_shexp",
        ],
        names: &[STEP],
        stored: Stored::ONE_MORE,
        adapt: step,
        ..PLAIN
    },
    Family {
        name: "mimo2",
        model_type: ("mimo_v2_flash", "MiMoV2FlashForCausalLM"),
        keys: &[
            WINDOW,
            EXPERTS,
            &[("attention.value_length", "v_head_dim"), ("attention.value_scale", "attention_value_scale")],
        ],
        reading: Reading { lists: &[KV_HEADS], ..Reading::SIGMOIDS },
        quiet: &["rope.freq_base_swa"],
        names: &[MIMO, DEEPSEEK_EXPERTS],
        adapt: mimo,
        ..PLAIN
    },
];

const STEP: Names = &[
    ("blk.{}.attn_gate", "model.layers.{}.self_attn.g_proj"),
    ("blk.{}.ffn_gate_inp", "model.layers.{}.moe.gate"),
    ("blk.{}.exp_probs_b.bias", "model.layers.{}.moe.router_bias"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.moe.gate_proj"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.moe.up_proj"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.moe.down_proj"),
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.share_expert.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.share_expert.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.share_expert.down_proj"),
];

const MIMO: Names = &[("blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.attention_sink_bias")];

/// Factors of frequencies.
const FACTORS: &str = "rope_freqs.weight";

/// Which layers have a window; said in truth values or numbers.
fn windowed(f: &File, config: &mut Config) -> Result<Vec<bool>, Wrong> {
    let list = f.get(WINDOWS).and_then(Value::list).unwrap_or_default();
    let windowed = |v: &Value| v.flag().or_else(|| v.number().map(|x| x != 0.0));
    let all: Option<Vec<bool>> = list.iter().take(f.own_layers()?).map(windowed).collect();
    match all.filter(|all| Some(all.len()) == f.own_layers().ok()) {
        Some(all) => {
            super::super::file::set_layer_types(config, &all, ["sliding_attention", "full_attention"]);
            Ok(all)
        }
        None => f.refused(format_args!("does not tell for each layer in `{WINDOWS}` whether it has a window")),
    }
}

/// Heads of the layers without a window and of those with: a number for all, or a list.
fn heads(f: &File, key: &str, windowed: &[bool]) -> Result<[u64; 2], Wrong> {
    let Some(list) = f.get(key).and_then(Value::list) else { return Ok([f.required(key)?; 2]) };
    let mut found = [None; 2];
    for (n, windowed) in list.iter().zip(windowed) {
        let n = n.unsigned().unwrap_or(0);
        let known = *found[usize::from(*windowed)].get_or_insert(n);
        if known != n || n == 0 {
            return f.refused(format_args!("has both {known} and {n} heads in layers of one kind (`{key}`)"));
        }
    }
    match (found, list.len() >= windowed.len()) {
        ([Some(full), Some(windowed)], true) => Ok([full, windowed]),
        ([Some(one), None] | [None, Some(one)], true) => Ok([one; 2]),
        _ => f.refused(format_args!("does not give the heads of each layer in `{key}`")),
    }
}

/// Two rotations, of layers without and with a window, of such parts of a head.
fn rotations(f: &File, config: &mut Config, parts: [f64; 2]) -> Result<(), Wrong> {
    let full = f.number("rope.freq_base").unwrap_or(1e4);
    let bases = [full, f.number("rope.freq_base_swa").unwrap_or(full)];
    let one = |i: usize| json!({ "rope_type": "default", "rope_theta": bases[i], "partial_rotary_factor": parts[i] });
    let both = json!({ "full_attention": one(0), "sliding_attention": one(1) });
    config.insert("rope_parameters".into(), both);
    without(config, &["rope_theta", "partial_rotary_factor"])
}

/// Layers without a window rotate half as much as the others, by frequencies that may be scaled.
fn step(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let windowed = windowed(f, config)?;
    let [full, sliding] = heads(f, HEADS, &windowed)?;
    config.insert("num_attention_heads".into(), full.into());
    config.insert("num_sliding_attention_heads".into(), sliding.into());
    let dim = f.required("attention.key_length")?;
    let rotated = f.size("rope.dimension_count").unwrap_or(dim) as f64 / dim as f64;
    rotations(f, config, [rotated / 2.0, rotated])?;
    if f.has(FACTORS) {
        let pairs = (dim as f64 * rotated / 4.0).round() as usize;
        let all = f.floats(FACTORS).filter(|all| all.len() >= pairs && all.iter().all(|x| x.is_finite() && *x > 0.0));
        let Some(all) = all else {
            return f.refused(format_args!("does not have {pairs} F32 factors in `{FACTORS}`"));
        };
        let (factors, others) = all.split_at(pairs);
        if others.iter().any(|x| *x != 1.0) {
            let what = format!("`{FACTORS}` has factors for whole heads, but only half of a head is rotated");
            return Err((what, CONVERT_AGAIN));
        }
        let full = &mut config["rope_parameters"]["full_attention"];
        (full["rope_type"], full["attention_factor"]) = ("longrope".into(), 1.0.into());
        (full["long_factor"], full["short_factor"]) = (json!(factors), json!(factors));
        full["original_max_position_embeddings"] = f.required("context_length")?.into();
    }
    set_sparse(f, config)?;
    for (key, field) in LIMITS {
        if let Some(list) = f.get(key).and_then(Value::list) {
            let limits: Vec<_> = list.iter().take(windowed.len()).map(Value::to_json).collect();
            config.insert(field.into(), limits.into());
        }
    }
    Ok(())
}

/// Layers with a window have twice the heads of keys and values.
fn mimo(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let windowed = windowed(f, config)?;
    let [full, sliding] = heads(f, KV_HEADS, &windowed)?;
    config.insert("num_key_value_heads".into(), full.into());
    config.insert("swa_num_key_value_heads".into(), sliding.into());
    let dim = f.required("attention.key_length")?;
    let rotated = f.size("rope.dimension_count").unwrap_or(dim) as f64 / dim as f64;
    rotations(f, config, [rotated; 2])?;
    // Without, nothing is scaled; the class takes another number.
    config.entry("attention_value_scale").or_insert(serde_json::Value::Null);
    without(config, &["first_k_dense_replace", "n_shared_experts"])?;
    set_sparse(f, config)
}
