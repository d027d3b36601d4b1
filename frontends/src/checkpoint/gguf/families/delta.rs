//! Qwen's decoders with the gated delta rule.

use super::super::file::{Config, File, Wrong, set_layer_types, size, without};
use super::super::names::{Names, QWEN2_EXPERTS};
use super::{Family, Keys, Lines, PLAIN, Recipe, rows};
use crate::checkpoint::stored::Turns;

/// Attention, the delta rule, and the MLP for all tokens, of Qwen.
const DELTA: Keys = &[
    ("ssm.conv_kernel", "linear_conv_kernel_dim"),
    ("ssm.state_size", "linear_key_head_dim"),
    ("ssm.group_count", "linear_num_key_heads"),
    ("ssm.time_step_rank", "linear_num_value_heads"),
    ("full_attention_interval", "full_attention_interval"),
];

const QWEN_EXPERTS: Keys = &[
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
];

const RECURRENT: &str = "attention.recurrent_layers";
const DELTA_QUIET: &[&str] = &["ssm.inner_size", "rope.dimension_sections", RECURRENT];

pub(in super::super) const FAMILIES: &[Family] = &[
    Family {
        name: "qwen3next",
        model_type: ("qwen3_next", "Qwen3NextForCausalLM"),
        keys: &[DELTA, QWEN_EXPERTS],
        quiet: DELTA_QUIET,
        fixed: &[("norm_topk_prob", true)],
        names: &[DELTA_NAMES, QWEN2_EXPERTS],
        gains: true,
        joins: &[rows(
            "model.layers.{}.linear_attn.in_proj_qkvz.weight",
            &["blk.{}.attn_qkv.weight", "blk.{}.attn_gate.weight"],
            by_key_head,
        )],
        adapt: value_width,
        ..PLAIN
    },
    Family {
        name: "qwen35",
        model_type: ("qwen3_5_text", "Qwen3_5ForCausalLM"),
        keys: &[DELTA],
        quiet: DELTA_QUIET,
        names: &[DELTA_NAMES],
        gains: true,
        joins: TILED,
        adapt: value_width,
        ..PLAIN
    },
    Family {
        name: "qwen35moe",
        model_type: ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
        keys: &[DELTA, QWEN_EXPERTS],
        quiet: DELTA_QUIET,
        names: &[DELTA_NAMES, QWEN2_EXPERTS],
        gains: true,
        joins: TILED,
        adapt: |f, config| {
            value_width(f, config)?;
            without(config, &["intermediate_size"])
        },
        ..PLAIN
    },
];

/// Columns of a head of values, and which layers attend, where they are listed.
fn value_width(f: &File, config: &mut Config) -> Result<(), Wrong> {
    if f.get(RECURRENT).is_some() {
        let mut layers = f.layers(RECURRENT);
        layers.truncate(size(config, "num_hidden_layers"));
        set_layer_types(config, &layers, ["linear_attention", "full_attention"]);
        config.remove("full_attention_interval");
    }
    let columns = f.required("ssm.inner_size")?.checked_div(f.required("ssm.time_step_rank")?).unwrap_or(0);
    config.insert("linear_value_head_dim".into(), columns.into());
    Ok(())
}

/// Heads of keys, columns of one, value heads for each, columns of one.
fn delta(config: &Config) -> [usize; 4] {
    let heads = size(config, "linear_num_key_heads");
    let each = size(config, "linear_num_value_heads").checked_div(heads).unwrap_or(0);
    [heads, size(config, "linear_key_head_dim"), each, size(config, "linear_value_head_dim")]
}

/// For each key head its query, its key, its values and their gates.
fn by_key_head(config: &Config, _: &[usize]) -> Turns {
    let [groups, key, each, value] = delta(config);
    Turns { before: 0, groups, parts: vec![key, key, each * value, each * value] }
}

/// Value heads, of which those of a key head are together in Transformers, and the first of all key
/// heads, then the second, in files. Behind queries and keys.
fn behind_keys(config: &Config, _: &[usize]) -> Turns {
    let [groups, key, each, value] = delta(config);
    Turns { before: 2 * groups * key, groups, parts: vec![value; each] }
}

/// The same alone.
fn of_values(config: &Config, _: &[usize]) -> Turns {
    Turns { before: 0, ..behind_keys(config, &[]) }
}

/// The same of a number for each.
fn of_value_heads(config: &Config, _: &[usize]) -> Turns {
    let [groups, _, each, _] = delta(config);
    Turns { before: 0, groups, parts: vec![1; each] }
}

const TILED: &[Recipe] = &[
    rows("model.layers.{}.linear_attn.in_proj_qkv.weight", &["blk.{}.attn_qkv.weight"], behind_keys),
    rows("model.layers.{}.linear_attn.conv1d.weight", &["blk.{}.ssm_conv1d.weight"], behind_keys),
    rows("model.layers.{}.linear_attn.in_proj_z.weight", &["blk.{}.attn_gate.weight"], of_values),
    rows("model.layers.{}.linear_attn.in_proj_a.weight", &["blk.{}.ssm_alpha.weight"], of_value_heads),
    rows("model.layers.{}.linear_attn.in_proj_b.weight", &["blk.{}.ssm_beta.weight"], of_value_heads),
    rows("model.layers.{}.linear_attn.A_log", &["blk.{}.ssm_a"], of_value_heads),
    rows("model.layers.{}.linear_attn.dt_bias", &["blk.{}.ssm_dt.bias"], of_value_heads),
    Recipe {
        to: "model.layers.{}.linear_attn.out_proj.weight",
        from: &["blk.{}.ssm_out.weight"],
        lines: Lines::Columns,
        turns: of_values,
    },
];

const DELTA_NAMES: Names = &[
    ("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.ssm_in", "model.layers.{}.linear_attn.in_proj_qkvz"),
    ("blk.{}.ssm_ba", "model.layers.{}.linear_attn.in_proj_ba"),
    ("blk.{}.ssm_conv1d", "model.layers.{}.linear_attn.conv1d"),
    ("blk.{}.ssm_dt.bias", "model.layers.{}.linear_attn.dt_bias"),
    ("blk.{}.ssm_a", "model.layers.{}.linear_attn.A_log"),
    ("blk.{}.ssm_norm", "model.layers.{}.linear_attn.norm"),
    ("blk.{}.ssm_out", "model.layers.{}.linear_attn.out_proj"),
];
