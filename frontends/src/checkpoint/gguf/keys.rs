//! Keys of an architecture that a family does not read: whether they change a model's results.
//!
//! The names come from llama.cpp (`llama-arch.cpp`). A key of this table that changes something is
//! refused, as a field of `config.json` that nobody reads is; one that is not in the table is
//! reported.

use super::Value;
use super::file::{Config, File, Wrong, head_dim};
use super::kinds::said;

const HELP: &str = "if the key was left over from another model, remove it (`gguf-new-metadata --remove-metadata`); \
                    else take the model's safetensors checkpoint, or another model";

/// Which values of a key that is not read change nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Neutral {
    /// Any: it does not change results for texts, or its tensors do.
    Any,
    /// False, zero, negative (not set), empty.
    Off,
    /// A factor of one, or one that is not set.
    One,
    /// True.
    On,
    /// Off, or there are no experts.
    NoExperts,
    /// True, as classes do that read nothing of it.
    Normalized,
    /// No window, or one that no sequence outgrows.
    NoWindow,
    /// As in layers without a window, by another key, or there are no windows.
    Same(&'static str),
    /// As wide as rows are.
    Width,
    /// The scale that attention has anyway.
    AttentionScale,
    /// The settings of positions have read it.
    Magnitude,
}

/// Keys of llama.cpp beside those that all families read.
const TABLE: &[(Neutral, &str)] = &[
    (
        Neutral::Any,
        "rope.dimension_sections n_deepstack_layers deepstack_mapping token_shift_count decoder_start_token_id \
         classifier.output_labels classifier.pooling_type dense_2_feat_in dense_2_feat_out dense_3_feat_in \
         dense_3_feat_out pooling_type attention.layer_norm_epsilon attention.layer_norm_rms_epsilon \
         expert_feed_forward_length attention.recurrent_layers target_layers target_hidden_size rope.scaling.finetuned",
    ),
    (
        Neutral::Off,
        "attention.clamp_kqv attention.max_alibi_bias attn_logit_softcapping router_logit_softcapping \
         final_logit_softcapping swin_norm swiglu_clamp_exp swiglu_clamp_shexp attention.temperature_length \
         attention.temperature_scale attention.q_lora_rank attention.kv_lora_rank attention.kv_lora_rank_swa \
         attention.decay_lora_rank attention.iclr_lora_rank attention.value_residual_mix_lora_rank \
         attention.gate_lora_rank attention.key_length_mla attention.value_length_mla attention.key_length_mla_swa \
         attention.value_length_mla_swa attention.relative_buckets_count attention.group_norm_epsilon \
         attention.group_norm_groups attention.shared_kv_layers attention.indexer.head_count \
         attention.indexer.key_length attention.indexer.top_k attention.indexer.types attention.indexer.block_size \
         attention.indexer.local_blocks attention.indexer.kpool attention.indexer.kpool_select_tail \
         attention.output_group_count attention.output_lora_rank attention.compress_rope_freq_base \
         attention.compress_ratios embedding_length_per_layer_input features_length decoder_block_count \
         attn_res.block_size activation.situ_beta activation.situ_linear_beta moe_latent_size expert_latent_length \
         expert_group_scale \
         experts_per_group expert_chunk_feed_forward_length rescale_every_n_layers time_mix_extra_dim \
         time_decay_extra_dim full_attention_interval skip_loop_final_norm hrm.layers_per_stack hrm.h_cycles \
         hrm.l_cycles hrm.prefix_lm adapters.count adapters.token_ids_activate adapters.token_ids_substitute \
         adapters.lora_rank adapters.router_gain hyper_connection.count hyper_connection.sinkhorn_iterations \
         hyper_connection.epsilon hyper_connection.magnitude hyper_connection.low_rank ple.layers ple.ngram_size \
         ple.heads_per_ngram ple.conv_kernel ple.layer_multipliers ple.head_offsets ple.head_vocab_sizes \
         ple.eos_token_id ple.image_token_id hash_layer_count ssm.conv_kernel ssm.inner_size ssm.state_size \
         ssm.time_step_rank ssm.group_count ssm.dt_b_c_rms kda.head_dim kda.safe_gate kda.gate_lower_bound \
         wkv.head_size posnet.embedding_length posnet.block_count convnext.embedding_length convnext.block_count \
         decision.block_count decision.routing_block_count decision.head_count norm_before_residual norm_before_fc \
         block_size conv_kernel_size conv_group_size selector_rank selector_top_k shortconv.l_cache hidden_activation \
         use_parallel_residual altup.active_idx altup.num_inputs activation_sparsity_scale expert_swa",
    ),
    (
        Neutral::One,
        "logit_scale residual_scale embedding_scale attention.output_scale attention.value_scale rope.scaling.alpha \
         rope.scaling.yarn_ext_factor num_loops interleave_moe_layer_step moe_every_n_layers",
    ),
    (Neutral::On, "attention.rope_pattern"),
    (
        Neutral::NoExperts,
        "expert_shared_count expert_shared_feed_forward_length expert_group_count expert_group_used_count \
         leading_dense_block_count",
    ),
    (Neutral::Normalized, "expert_weights_norm"),
    (Neutral::NoWindow, "attention.sliding_window"),
    (Neutral::Same("attention.key_length"), "attention.key_length_swa"),
    (Neutral::Same("attention.value_length"), "attention.value_length_swa"),
    (Neutral::Same("rope.dimension_count"), "rope.dimension_count_swa"),
    (Neutral::Same("rope.freq_base"), "rope.freq_base_swa"),
    (Neutral::Width, "embedding_length_out"),
    (Neutral::AttentionScale, "attention.scale"),
    (Neutral::One, "expert_weights_scale"),
    (Neutral::Magnitude, "rope.scaling.yarn_log_multiplier"),
];

/// The meaning of a key that a family does not read.
pub(super) enum Verdict {
    /// Nothing.
    Nothing,
    /// Nobody knows.
    Unknown,
}

/// Judges a key that a family does not read, by the configuration that the others make.
///
/// # Errors
/// It changes a model's results.
pub(super) fn judge(file: &File, (key, value): (&str, &Value), config: &Config, class: &str) -> Result<Verdict, Wrong> {
    let rule = TABLE.iter().find(|(_, names)| names.split_whitespace().any(|name| name == key)).map(|(rule, _)| *rule);
    match rule {
        None => Ok(Verdict::Unknown),
        Some(_) if key.starts_with("expert") && no_experts(file) => Ok(Verdict::Nothing),
        Some(rule) if accepts(rule, file, value, config) => Ok(Verdict::Nothing),
        Some(_) => Err(changes(file, key, value, class)),
    }
}

/// Refuses models whose queries see other tokens than in their class.
///
/// # Errors
/// It says so.
pub(super) fn check_causal(file: &File, causal: bool, class: &str) -> Result<(), Wrong> {
    const KEY: &str = "attention.causal";
    match file.get(KEY) {
        Some(value) if value.flag() != Some(causal) => Err(changes(file, KEY, value, class)),
        _ => Ok(()),
    }
}

fn changes(file: &File, key: &str, value: &Value, class: &str) -> Wrong {
    let is = match value {
        Value::List(all) => format!("a list of {}", all.len()),
        other => said(other),
    };
    (format!("`{}.{key}` is {is}, which changes what a model computes, but {class} does not read it", file.name), HELP)
}

fn accepts(rule: Neutral, file: &File, value: &Value, config: &Config) -> bool {
    if let Value::List(all) = value
        && rule != Neutral::Any
    {
        return all.iter().all(|one| accepts(rule, file, one, config));
    }
    let number = value.number();
    let off = number.is_some_and(|x| x <= 0.0) || value.flag() == Some(false) || value.text() == Some("");
    match rule {
        Neutral::Any => true,
        Neutral::Off => off,
        Neutral::One => off || number == Some(1.0),
        Neutral::On => value.flag() == Some(true) || number == Some(1.0),
        Neutral::NoExperts => off || no_experts(file),
        Neutral::Normalized => value.flag() == Some(true),
        Neutral::NoWindow => off || number.zip(file.number("context_length")).is_some_and(|(n, all)| n >= all),
        Neutral::Same(key) => no_windows(file) || number == file.number(key).or_else(|| usual(key, config)),
        Neutral::Width => off || number == file.number("embedding_length"),
        Neutral::AttentionScale => {
            let usual = head_dim(config).map(|n| 1.0 / (n as f64).sqrt());
            off || number.zip(usual).is_some_and(|(x, y)| (x / y - 1.0).abs() < 1e-6)
        }
        Neutral::Magnitude => {
            let has = |field: &str| config.get(field).is_some_and(|rope| rope.get("mscale_all_dim").is_some());
            off || has("rope_scaling") || has("rope_parameters")
        }
    }
}

/// The default of a key in llama.cpp.
fn usual(key: &str, config: &Config) -> Option<f64> {
    match key {
        "rope.freq_base" => Some(1e4),
        _ => head_dim(config).map(|n| n as f64),
    }
}

/// Whether there are no experts.
fn no_experts(file: &File) -> bool {
    file.size("expert_count").unwrap_or(0) == 0
}

/// Whether no layer has a window.
fn no_windows(file: &File) -> bool {
    file.get("attention.sliding_window").is_none_or(|value| value.number().is_some_and(|n| n <= 0.0))
}

/// Whether the table knows a key.
#[cfg(test)]
pub(super) fn knows(key: &str) -> bool {
    TABLE.iter().any(|(_, names)| names.split_whitespace().any(|name| name == key))
}
