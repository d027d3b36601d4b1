//! Gemma 3n and Gemma 4, whose layers have embeddings of their own and share caches.

use super::super::file::{Config, File, Wrong, without};
use super::super::header::Value;
use super::super::names::{Names, SANDWICH_NORMS};
use super::{Family, Keys, PLAIN, Reading, WINDOW};
use serde_json::json;
use std::f64::consts::FRAC_1_SQRT_2;

pub(in super::super) const FAMILIES: &[Family] = &[
    Family {
        name: "gemma3n",
        model_type: ("gemma3n_text", "Gemma3nForCausalLM"),
        keys: &[
            WINDOW,
            ROWS,
            &[
                ("altup.active_idx", "altup_active_idx"),
                ("altup.num_inputs", "altup_num_inputs"),
                ("rope.freq_base_swa", "rope_local_base_freq"),
            ],
        ],
        reading: Reading { lists: &["feed_forward_length"], ..Reading::PLAIN },
        quiet: &[SPARSITY],
        names: &[STREAMS, ROW_NAMES, SANDWICH_NORMS],
        adapt: third,
        ..PLAIN
    },
    Family {
        name: "gemma4",
        model_type: ("gemma4_text", "Gemma4ForCausalLM"),
        keys: &[WINDOW, ROWS, &[("expert_feed_forward_length", "moe_intermediate_size")]],
        reading: Reading { lists: &[WIDTHS, KV_HEADS], own_factors: true, ..Reading::PLAIN },
        quiet: &[DIM, "attention.value_length_swa", ROTATED, "rope.freq_base_swa"],
        names: &[EXPERTS, ROW_NAMES, SANDWICH_NORMS],
        found: &[("enable_moe_block", "blk.{}.ffn_gate_inp.weight")],
        adapt: fourth,
        ..PLAIN
    },
];

/// Where a gate begins, in standard deviations.
const SPARSITY: &str = "activation_sparsity_scale";
const WIDTHS: &str = "feed_forward_length";
const KV_HEADS: &str = "attention.head_count_kv";
/// In layers with a window: columns of a head, and the rotated ones.
const DIM: &str = "attention.key_length_swa";
const ROTATED: &str = "rope.dimension_count_swa";

const ROWS: Keys = &[
    ("embedding_length_per_layer_input", "hidden_size_per_layer_input"),
    ("attention.shared_kv_layers", "num_kv_shared_layers"),
    ("final_logit_softcapping", "final_logit_softcapping"),
];

/// Embeddings of layers.
const ROW_NAMES: Names = &[
    ("per_layer_token_embd", "model.embed_tokens_per_layer"),
    ("per_layer_model_proj", "model.per_layer_model_projection"),
    ("per_layer_proj_norm", "model.per_layer_projection_norm"),
    ("blk.{}.inp_gate", "model.layers.{}.per_layer_input_gate"),
    ("blk.{}.proj", "model.layers.{}.per_layer_projection"),
    ("blk.{}.post_norm", "model.layers.{}.post_per_layer_input_norm"),
];

/// Residual streams, and the branch beside attention.
const STREAMS: Names = &[
    ("altup_proj", "model.altup_projections.{e}"),
    ("altup_unembd_proj", "model.altup_unembed_projections.{e}"),
    ("blk.{}.altup_router", "model.layers.{}.altup.modality_router"),
    ("blk.{}.altup_router_norm", "model.layers.{}.altup.router_norm"),
    ("blk.{}.altup_predict_coef", "model.layers.{}.altup.prediction_coefs"),
    ("blk.{}.altup_correct_coef", "model.layers.{}.altup.correction_coefs"),
    ("blk.{}.altup_correct_scale.weight", "model.layers.{}.altup.correct_output_scale"),
    ("blk.{}.laurel_l", "model.layers.{}.laurel.linear_left"),
    ("blk.{}.laurel_r", "model.layers.{}.laurel.linear_right"),
    ("blk.{}.laurel_post_norm", "model.layers.{}.laurel.post_laurel_norm"),
];

/// Experts beside the MLP.
const EXPERTS: Names = &[
    ("blk.{}.layer_output_scale.weight", "model.layers.{}.layer_scalar"),
    ("blk.{}.ffn_gate_inp", "model.layers.{}.router.proj"),
    ("blk.{}.ffn_gate_inp.scale", "model.layers.{}.router.scale"),
    (
        "blk.{}.ffn_gate_up_exps.weight",
        "model.layers.{}.experts.{e}.gate_proj.weight|model.layers.{}.experts.{e}.up_proj.weight",
    ),
    ("blk.{}.ffn_down_exps.weight", "model.layers.{}.experts.{e}.down_proj.weight"),
    ("blk.{}.ffn_down_exps.scale", "model.layers.{}.router.per_expert_scale"),
    ("blk.{}.pre_ffw_norm_2", "model.layers.{}.pre_feedforward_layernorm_2"),
    ("blk.{}.post_ffw_norm_1", "model.layers.{}.post_feedforward_layernorm_1"),
    ("blk.{}.post_ffw_norm_2", "model.layers.{}.post_feedforward_layernorm_2"),
];

/// How many rows the table of the layers' embeddings has.
fn set_rows(f: &File, config: &mut Config) {
    let vocab = f.rows("per_layer_token_embd.weight");
    config.extend(vocab.map(|n| ("vocab_size_per_layer_input".to_string(), n.into())));
}

fn third(f: &File, config: &mut Config) -> Result<(), Wrong> {
    set_rows(f, config);
    let rank = f.rows("blk.0.laurel_l.weight");
    config.extend(rank.map(|n| ("laurel_rank".to_string(), n.into())));
    if let Some(list) = f.get(SPARSITY).and_then(Value::list) {
        let parts: Vec<f64> = list.iter().filter_map(Value::number).map(part_below).collect();
        config.insert("activation_sparsity_pattern".into(), json!(parts));
    }
    Ok(())
}

/// The part of a normal distribution that is below so many standard deviations; of numbers that were
/// made of a short decimal in f32, that one.
fn part_below(deviations: f64) -> f64 {
    let part = 0.5 * libm::erfc(-deviations * FRAC_1_SQRT_2);
    let short = (part * 1e4).round() / 1e4;
    if (short - part).abs() < 1e-7 { short } else { part }
}

fn fourth(f: &File, config: &mut Config) -> Result<(), Wrong> {
    set_rows(f, config);
    let (wide, dim) = (f.required("attention.key_length")?, f.required(DIM)?);
    if f.size(ROTATED).is_some_and(|n| n != dim) {
        return f.refused("rotates only part of the heads in layers with a window");
    }
    config.insert("global_head_dim".into(), wide.into());
    config.insert("head_dim".into(), dim.into());
    without(config, &["rope_theta", "partial_rotary_factor"])?;
    let parameters = json!({
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": rotated(f)?,
            "rope_theta": f.number("rope.freq_base").unwrap_or(1e6),
        },
        "sliding_attention": { "rope_type": "default", "rope_theta": f.number("rope.freq_base_swa").unwrap_or(1e4) },
    });
    config.insert("rope_parameters".into(), parameters);
    heads(f, config)?;
    widths(f, config)?;
    for (key, field) in [("expert_count", "num_experts"), ("expert_used_count", "num_experts_per_tok")] {
        config.extend(f.size(key).filter(|n| *n > 0).map(|n| (field.to_string(), n.into())));
    }
    Ok(())
}

/// The part of each head that layers without a window rotate: the others have endless wavelengths.
fn rotated(f: &File) -> Result<f64, Wrong> {
    const FACTORS: &str = "rope_freqs.weight";
    let Some(factors) = f.floats(FACTORS).filter(|list| !list.is_empty()) else {
        return f.refused(format_args!("has no `{FACTORS}` in F32"));
    };
    let count = factors.iter().take_while(|x| **x == 1.0).count();
    if count == 0 || factors.iter().skip(count).any(|x| *x < 1e20) {
        return f.refused(format_args!("has factors in `{FACTORS}` that are neither 1 nor infinite"));
    }
    Ok(count as f64 / factors.len() as f64)
}

/// The layers without a window.
fn full(f: &File) -> Vec<bool> {
    let windows = f.get("attention.sliding_window_pattern").and_then(Value::list).unwrap_or_default();
    windows.iter().map(|windowed| windowed.flag() == Some(false)).collect()
}

/// Heads of keys of both kinds of layers. Where one kind has no values, its keys are the values.
fn heads(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let full = full(f);
    if let Some(list) = f.get(KV_HEADS).and_then(Value::list) {
        let mut of_kind: [Option<u64>; 2] = [None; 2];
        for (n, full) in list.iter().zip(&full) {
            let n = n.unsigned().unwrap_or(0);
            let known = *of_kind[usize::from(*full)].get_or_insert(n);
            if known != n {
                return f.refused(format_args!("has both {known} and {n} key heads in layers of one kind"));
            }
        }
        for (field, n) in [("num_key_value_heads", of_kind[0]), ("num_global_key_value_heads", of_kind[1])] {
            config.extend(n.map(|n| (field.to_string(), n.into())));
        }
    }
    let without_values = |i: usize| !f.has(&format!("blk.{i}.attn_v.weight"));
    let first = full.iter().position(|full| *full);
    config.insert("attention_k_eq_v".into(), first.is_some_and(without_values).into());
    Ok(())
}

/// Columns of the MLPs, which in layers that share caches may be twice as many.
fn widths(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let Some(list) = f.get(WIDTHS).and_then(Value::list) else { return Ok(()) };
    let widths: Vec<u64> = list.iter().filter_map(Value::unsigned).collect();
    let shared = f.size("attention.shared_kv_layers").and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let (own, others) = widths.split_at(widths.len().saturating_sub(shared));
    let Some(width) = own.first().copied() else { return f.refused("has no layer with a cache of its own") };
    let double = others.first().is_some_and(|n| *n != width);
    let of_others = if double { width.saturating_mul(2) } else { width };
    if own.iter().any(|n| *n != width) || others.iter().any(|n| *n != of_others) || widths.len() != list.len() {
        return f.refused("has MLPs of several widths, other than double width where caches are shared");
    }
    config.insert("intermediate_size".into(), width.into());
    config.insert("use_double_wide_mlp".into(), double.into());
    Ok(())
}
