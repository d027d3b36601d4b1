//! Qwen's decoders with the gated delta rule.

use super::super::file::{Config, File, Wrong, set_layer_types, size, without};
use super::super::header::Value;
use super::super::names::{Names, QWEN2_EXPERTS};
use super::{Family, Keys, Lines, PLAIN, Recipe, Stored, rows};
use crate::checkpoint::stored::Turns;
use crate::hashing;

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
        stored: Stored {
            joins: &[rows(
                "model.layers.{}.linear_attn.in_proj_qkvz.weight",
                &["blk.{}.attn_qkv.weight", "blk.{}.attn_gate.weight"],
                by_key_head,
            )],
            ..Stored::ONE_MORE
        },
        adapt: value_width,
        ..PLAIN
    },
    Family {
        name: "qwen35",
        model_type: ("qwen3_5_text", "Qwen3_5ForCausalLM"),
        keys: &[DELTA],
        quiet: DELTA_QUIET,
        names: &[DELTA_NAMES],
        stored: Stored { joins: TILED, ..Stored::ONE_MORE },
        adapt: value_width,
        ..PLAIN
    },
    Family {
        name: "qwen35moe",
        model_type: ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
        keys: &[DELTA, QWEN_EXPERTS],
        quiet: DELTA_QUIET,
        names: &[DELTA_NAMES, QWEN2_EXPERTS],
        stored: Stored { joins: TILED, ..Stored::ONE_MORE },
        adapt: |f, config| {
            value_width(f, config)?;
            without(config, &["intermediate_size"])
        },
        ..PLAIN
    },
    Family {
        name: "qwen4exp",
        model_type: ("qwen4_exp_text", "Qwen4ExpForCausalLM"),
        keys: &[
            DELTA,
            QWEN_EXPERTS,
            &[
                ("hyper_connection.count", "hc_count"),
                ("hyper_connection.low_rank", "hc_lowrank"),
                ("attention.indexer.top_k", "indexer_budget"),
                ("ple.ngram_size", "ngram_size"),
                ("ple.heads_per_ngram", "heads_per_ngram"),
                ("ple.conv_kernel", "ple_conv_kernel_size"),
            ],
        ],
        quiet: &[
            "ssm.inner_size",
            "rope.dimension_sections",
            RECURRENT,
            "attention.indexer.head_count",
            "attention.indexer.key_length",
            "attention.compress_ratios",
            "embedding_length_per_layer_input",
            "ple.layers",
            "ple.eos_token_id",
            "ple.image_token_id",
            "ple.layer_multipliers",
            "ple.head_offsets",
            "ple.head_vocab_sizes",
        ],
        fixed: &[("norm_topk_prob", true)],
        names: &[QWEN4, DELTA_NAMES, QWEN2_EXPERTS],
        stored: Stored { joins: TILED, ..Stored::ONE_MORE },
        adapt: qwen4,
        ..PLAIN
    },
];

const QWEN4: Names = &[
    ("output_hc_norm", "model.hyper_connection_mixer.hc_norm"),
    ("output_hc_down", "model.hyper_connection_mixer.input_mix_weight_down"),
    ("output_hc_up", "model.hyper_connection_mixer.input_mix_weight_up"),
    ("blk.{}.hc_attn_norm", "model.layers.{}.attn_hyper_connection.hc_norm"),
    ("blk.{}.hc_attn_down", "model.layers.{}.attn_hyper_connection.input_mix_weight_down"),
    ("blk.{}.hc_attn_up", "model.layers.{}.attn_hyper_connection.input_mix_weight_up"),
    ("blk.{}.hc_attn_inject", "model.layers.{}.attn_hyper_connection.block_inject_weight"),
    ("blk.{}.hc_ffn_norm", "model.layers.{}.mlp_hyper_connection.hc_norm"),
    ("blk.{}.hc_ffn_down", "model.layers.{}.mlp_hyper_connection.input_mix_weight_down"),
    ("blk.{}.hc_ffn_up", "model.layers.{}.mlp_hyper_connection.input_mix_weight_up"),
    ("blk.{}.hc_ffn_inject", "model.layers.{}.mlp_hyper_connection.block_inject_weight"),
    ("blk.{}.indexer.q_proj", "model.layers.{}.self_attn.indexer.q_proj"),
    ("blk.{}.indexer.k_proj", "model.layers.{}.self_attn.indexer.k_proj"),
    ("blk.{}.indexer.q_norm", "model.layers.{}.self_attn.indexer.q_layernorm"),
    ("blk.{}.indexer.k_norm", "model.layers.{}.self_attn.indexer.k_layernorm"),
    ("blk.{}.ple_conv1d", "model.layers.{}.ple.conv1d"),
    ("blk.{}.ple_key", "model.layers.{}.ple.key_proj"),
    ("blk.{}.ple_value", "model.layers.{}.ple.value_proj"),
    ("blk.{}.ple_norm_conv", "model.layers.{}.ple.norm_conv"),
    ("blk.{}.ple_norm_key", "model.layers.{}.ple.norm_key"),
    ("blk.{}.ple_norm_query", "model.layers.{}.ple.norm_query"),
    ("per_layer_token_embd", "model.ngram_embedding"),
];

fn qwen4(f: &File, config: &mut Config) -> Result<(), Wrong> {
    value_width(f, config)?;
    // As llama.cpp.
    config.insert("output_gate_type".into(), "sigmoid".into());
    if let Some(ratio) = f.size("attention.compress_ratios").filter(|ratio| *ratio > 0) {
        config.insert("indexer_compress_ratio".into(), ratio.into());
    }
    without(config, &["intermediate_size"])?;
    let numbers = |key: &str| -> Vec<u64> {
        let list = f.get(key).and_then(Value::list).unwrap_or_default();
        list.iter().filter_map(Value::unsigned).collect()
    };
    let layers = numbers("ple.layers");
    if layers.is_empty() {
        return Ok(());
    }
    if layers.len() > 1 {
        return f.refused("has several layers with n-grams, but a file has only one table for them");
    }
    // Ends of texts, that of n-grams first.
    let end = f.required("ple.eos_token_id")?;
    let others = config.remove("eos_token_id").and_then(|v| v.as_u64()).filter(|id| *id != end);
    config.insert("eos_token_id".into(), std::iter::once(end).chain(others).collect());
    config.insert("ple_layer_ids".into(), layers.iter().map(|i| i.saturating_add(1)).collect());
    let sizes = numbers("ple.head_vocab_sizes");
    let table = f.tensors.get("per_layer_token_embd.weight").map(|(_, info)| &info.shape[..]);
    let (Some(first), Some([rows, columns])) = (sizes.first(), table) else {
        return f.refused("has no `ple.head_vocab_sizes` with `per_layer_token_embd.weight`");
    };
    config.insert("ple_embed_dim".into(), columns.saturating_mul(sizes.len()).into());
    config.insert("ngram_vocab_size_base".into(), (*first).into());
    // Those rows that fill up.
    config.insert("make_ngram_vocab_size_divisible_by".into(), (*rows).into());
    ngrams_of_the_class(f, config, &sizes, &numbers("ple.layer_multipliers"))
}

/// Sizes and factors of hashes are those that the class makes of the first size and its seed.
fn ngrams_of_the_class(f: &File, config: &Config, sizes: &[u64], factors: &[u64]) -> Result<(), Wrong> {
    let (vocab, size) = (size(config, "vocab_size"), size(config, "ngram_size").min(16));
    let vocab = config.get("vocab_size").and_then(serde_json::Value::as_u64).map_or(vocab, |n| n as usize);
    let made = hashing::factors(vocab, size, 0, SEED);
    if !made.iter().map(|n| *n as u64).eq(factors.iter().copied()) {
        return f.refused(format_args!("has hash factors in `ple.layer_multipliers` from a seed other than {SEED}"));
    }
    // Larger ones are refused by the class.
    let primes = |pair: &[u64]| pair[0] < 1 << 28 && hashing::next_prime(pair[0] as usize) as u64 == pair[1];
    if sizes.len() > 256 || !sizes.windows(2).all(primes) {
        return f.refused("has table sizes in `ple.head_vocab_sizes` that are not consecutive primes");
    }
    Ok(())
}

/// The class's default.
const SEED: u64 = 1234;

/// Columns of a head of values, and which layers attend, where they are listed.
fn value_width(f: &File, config: &mut Config) -> Result<(), Wrong> {
    if f.get(RECURRENT).is_some() {
        set_layer_types(config, &f.layers(RECURRENT), ["linear_attention", "full_attention"]);
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

/// The order of value heads: Transformers keeps a key head's value heads together; files have the
/// first of all key heads, then the second. Behind queries and keys.
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
