//! Fields of `config.json` that an architecture does not read.
//!
//! Each is one of three: known to change the mathematics of some architecture ([`MATHEMATICS`],
//! `ROPE`), which ends in an error unless its value is neutral; known to have no effect on the
//! function that a model computes (`METADATA`), which is ignored; anything else is reported. The
//! names come from the configuration classes of Transformers 5 and from the older ones that wrote
//! published checkpoints.

use super::error::show;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// Which values of an unread field change nothing. `null` never does.
#[derive(Clone, Copy, Debug)]
pub enum Neutral {
    /// False, zero, empty: the thing is switched off.
    Off,
    /// True: the field states the actual behaviour.
    On,
    /// One: a factor.
    One,
    /// These words, in small letters.
    Words(&'static [&'static str]),
    /// A list of nothing but this.
    All(&'static str),
    /// A list of nothing but one of these.
    AllOf(&'static [&'static str]),
    /// As this other field, which is read.
    Same(&'static str),
    /// The elements of a head: as `head_dim`, or as it follows from other fields.
    HeadDim,
    /// The scale that attention has anyway: 1/√`head_dim`.
    AttentionScale,
    /// Off, or there are no experts.
    NoExperts,
    /// One, a factor of what experts make, or there are none.
    ExpertScale,
    /// No window, or one that no sequence outgrows, or windows are switched off.
    NoWindow,
    /// Any: it says nothing about this class.
    Any,
    /// Windows are switched off, or no window is given.
    WindowsOff,
    /// Windows are not switched off, or no window is given.
    WindowsOn,
}

impl Neutral {
    /// Whether a field with this value changes nothing in a configuration.
    pub(crate) fn accepts(self, v: &Value, config: &Map<String, Value>) -> bool {
        let size = |name: &str| config.get(name).and_then(Value::as_f64);
        let head_dim = || size("head_dim").or_else(|| Some(size("hidden_size")? / size("num_attention_heads")?));
        match self {
            _ if v.is_null() => true,
            Neutral::Off => off(v),
            Neutral::Any => true,
            Neutral::On => v.as_bool() == Some(true),
            Neutral::One => v.as_f64() == Some(1.0),
            Neutral::Words(words) => v.as_str().is_some_and(|s| words.contains(&s.to_lowercase().as_str())),
            Neutral::All(word) => v.as_array().is_some_and(|list| list.iter().all(|v| text(v) == word)),
            Neutral::AllOf(words) => words.iter().any(|word| Neutral::All(word).accepts(v, config)),
            Neutral::Same(other) => config.get(other).map_or(off(v), |o| same(v, o)),
            Neutral::HeadDim => off(v) || v.as_f64().is_some() && v.as_f64() == head_dim(),
            Neutral::AttentionScale => match (v.as_f64(), head_dim()) {
                (Some(scale), Some(n)) => (scale * n.sqrt() - 1.0).abs() < 1e-6,
                _ => false,
            },
            Neutral::NoExperts => off(v) || no_experts(config),
            Neutral::ExpertScale => off(v) || v.as_f64() == Some(1.0) || no_experts(config),
            Neutral::NoWindow => {
                let switched_off = config.get("use_sliding_window") == Some(&Value::Bool(false));
                let longest = || size("max_position_embeddings").zip(v.as_f64()).is_some_and(|(n, w)| w >= n);
                off(v) || switched_off || longest()
            }
            Neutral::WindowsOff => {
                config.get("use_sliding_window").is_none_or(off) || config.get("sliding_window").is_some_and(off)
            }
            Neutral::WindowsOn => v.as_bool() == Some(true) || config.get("sliding_window").is_some_and(off),
        }
    }
}

/// False, zero, empty.
fn off(v: &Value) -> bool {
    match v {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Strings as they are, anything else as JSON.
fn text(v: &Value) -> String {
    v.as_str().map_or_else(|| v.to_string(), String::from)
}

/// Equal; numbers by value.
fn same(a: &Value, b: &Value) -> bool {
    a == b || a.as_f64().is_some() && a.as_f64() == b.as_f64()
}

/// Fields whose values a class decides by itself, as pairs of a name and the values that agree with the class:
/// `fixed! { On => use_qk_norm qk_norm; Words(&["silu"]) => hidden_act; }`.
macro_rules! fixed {
    ($($rule:expr => $($name:ident)+;)+) => {{
        #[allow(unused_imports, reason = "a list may need only some of the rules")]
        use $crate::config::known::Neutral::*;
        &[$($((stringify!($name), $rule)),+),+]
    }};
}
pub(crate) use fixed;

/// Numbers of experts by all their names.
const EXPERTS: &str =
    "num_experts num_local_experts n_routed_experts num_routed_experts moe_num_experts num_moe_experts n_experts";

/// A number of experts is given, and it is none.
fn no_experts(config: &Map<String, Value>) -> bool {
    let mut given = EXPERTS.split_whitespace().filter_map(|name| config.get(name)).peekable();
    given.peek().is_some() && given.all(off)
}

/// Fields that change a model's results in some architecture, with their neutral values.
pub const MATHEMATICS: &[(Neutral, &str)] = &[
    (Neutral::Off, EXPERTS),
    // Values cut or bent.
    (
        Neutral::Off,
        "attn_logit_softcapping final_logit_softcapping attn_logit_softcap final_logit_softcap logits_soft_cap output_logit_soft_cap gate_soft_cap \
         mlp_gate_softcap mlp_up_softcap moe_router_logit_softcapping clip_qkv swiglu_limit swiglu_limits swiglu_alpha qk_l2_clip_threshold mup_use_scaling normalize_attention dual_chunk_attention_config \
         rel_l2_clip_threshold activation_sparsity_pattern act_quant gelu_activation",
    ),
    // Which keys a query sees, and how.
    (
        Neutral::Off,
        "attention_chunk_size attn_temperature_tuning attn_scale floor_scale attention_sinks attention_sink_size attention_sink_bias \
         add_swa_attention_sink_bias add_full_attention_sink_bias learnable_sink attention_k_eq_v attention_type attention_types \
         attention_window_size window_size local_attention local_attention_window_len sliding_window_size sliding_window_attention_size \
         sliding_window_pattern sliding_windows interleaved_sliding_window prefix_dense_sliding_window_pattern global_attn_every_n_layers \
         global_local_attention_pattern global_attention_layers attn_type attn_config alibi use_alibi use_bidirectional_attention bidirectional \
         prefix_lm use_logn_attn log_scaling_alpha log_scaling_n_floor llama_4_scaling_beta sparse_attention_config use_sparse_attention use_dsa \
         use_nsa use_mla index_topk index_n_heads index_head_dim index_block_size index_local_blocks index_topk_blocks index_topk_freq \
         index_topk_pattern indexer_types indexer_n_heads indexer_head_dim indexer_budget indexer_compress_ratio compress_ratios compress_rates \
         scale_attn_by_inverse_layer_idx use_attention_gate attn_output_gate use_attn_output_gate use_output_gate mla_use_output_gate \
         output_gate_type gating local_layer_ids attn_uses_sequence_id indexer_kv_heads keep_window_size",
    ),
    // Sizes of heads and layers that differ from layer to layer, or from keys to values.
    (
        Neutral::Off,
        "num_attention_heads_per_layer num_key_value_heads_per_layer num_global_key_value_heads global_head_dim swa_head_dim \
         swa_num_attention_heads swa_num_key_value_heads swa_v_head_dim block_configs per_layer_config num_kv_shared_layers cla_share_factor \
         multi_query multi_query_attention q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim o_lora_rank o_groups intermediate_size_mlp \
         mlp_layer_types use_double_wide_mlp block_ffn_dim_multiplier block_auto_adjust_ff_dim intermediate_multiple_size ffn_config \
         head_dim_per_layer pruned_heads swa_qk_rope_head_dim qk_dim_factor v_dim_factor hidden_size_global global_config expansion_ratio \
         ffn_proj_factor",
    ),
    // Positions.
    (
        Neutral::Off,
        "no_rope_layer_interval nope_layer_interval use_mem_rope rope_interleave rope_interleaved rope_is_neox_style use_mrope mrope_section \
         rope_local_base_freq local_rope_theta global_rope_theta swa_rope_theta layer_rope_theta compress_rope_theta use_dynamic_ntk \
         use_long_context learned_pos_emb use_learned_position_embeddings sinusoidal_embeddings relative_attention relative_attention_num_buckets \
         rel_extent position_bias_num_buckets type_vocab_size",
    ),
    // Norms, biases and where they are.
    (
        Neutral::Off,
        "use_qk_norm qk_norm qk_layernorm qk_layernorms qk_ln use_qk_layernorm query_key_norm attention_bias mlp_bias qkv_bias use_qkv_bias \
         add_qkv_bias attn_bias attention_out_bias attention_output_bias o_bias use_bias use_biases bias add_bias_linear enable_bias norm_bias \
         lm_head_bias ffn_bias rms_norm_add_unit_offset norm_add_unit_offset use_post_norm use_sandwich_norm post_norm sandwich_norm \
         _remove_final_layer_norm apply_residual_connection_post_layernorm parallel_attn use_parallel_residual parallel_residual \
         parallel_attn_mlp_res num_ln_in_parallel_attn new_decoder_architecture layernorm_embedding embedding_norm use_embedding_norm normalize_embedding",
    ),
    // Scales that are switches or have no neutral number.
    (
        Neutral::Off,
        "scale_embedding scale_embeddings rescale_embeddings normalize_embeddings rescale_every scale_depth mup_enabled mlp_multipliers \
         ssm_multipliers layer_scalar use_layer_scale",
    ),
    // Experts beside the routed ones.
    (
        Neutral::Off,
        "enable_moe_block is_moe moe_layers zero_expert_num n_shared_experts num_shared_experts moe_num_shared_experts \
         shared_expert_intermediate_size shared_experts_intermediate_size shared_intermediate_size moe_shared_expert_intermediate_size",
    ),
    // Recurrent layers.
    (
        Neutral::Off,
        "mamba_d_state mamba_d_conv mamba_d_ssm mamba_d_head mamba_expand mamba_n_heads mamba_n_groups mamba_num_heads mamba_head_dim mamba_config \
         ssm_cfg ssm_state_size state_size conv_kernel conv_kernel_size conv_L_cache conv1d_width lru_width time_step_limit attn_layer_indices \
         attn_layer_offset attn_layer_period attn_layers attn_layer_idx full_attn_idxs full_attention_interval hybrid_override_pattern \
         hybrid_layer_ids layer_group_size linear_attn_config linear_conv_kernel_dim linear_num_key_heads linear_num_value_heads \
         linear_key_head_dim linear_value_head_dim linear_num_heads linear_head_dim n_mamba_heads short_conv_kernel_size kda_safe_gate \
         kda_lower_bound mamba_ngroups mamba_rms_norm time_step_rank conv_bias linear_allow_neg_eigval mixer_rms_eps",
    ),
    // Several residual streams, and embeddings per layer.
    (
        Neutral::Off,
        "hc_mult hc_count hc_lowrank altup_num_inputs laurel_rank hidden_size_per_layer_input vocab_size_per_layer_input ple_layer_ids \
         ple_embed_dim attn_res_block_size n_layers_per_attn_res_block ngram_size adapter_rank add_out_norm use_res_clamp num_recurrent_layers \
         recurrent_depth H_cycles L_cycles ngram double_latent concat_input gated_norm_rank",
    ),
    // Other inputs, and other kinds of model.
    (
        Neutral::Off,
        "is_encoder_decoder add_cross_attention cross_attention_layers num_encoder_layers text_config vision_config audio_config \
         llm_config language_config decoder_config num_codebooks",
    ),
    // Other forms of the weights.
    (Neutral::Off, "quantization compression_config"),
    (
        Neutral::One,
        "residual_multiplier embedding_multiplier logits_scaling logit_scale lm_head_multiplier attention_in_multiplier attention_out_multiplier \
         key_multiplier ssm_in_multiplier ssm_out_multiplier embedding_scale scale_emb emb_scale logits_mup_width_multiplier mup_width_scale \
         output_multiplier_scale embedding_multiplier_scale attn_output_multiplier residual_scale qk_scale_factor attention_value_scale \
         partial_rotary_factor rotary_pct rotary_percentage rope_percent rotary_emb_fraction rope_ratio rope_scaling_factor rope_alpha \
         hidden_size_multiplier mlp_alpha_factor mlp_beta_factor full_attn_alpha_factor full_attn_beta_factor linear_attn_alpha_factor \
         linear_attn_beta_factor mup_width_multiplier mup_embedding_multiplier mup_attn_multiplier query_scale",
    ),
    (
        Neutral::On,
        "scale_attn_weights is_causal causal rms_norm use_rms_norm layer_norm_elementwise_affine do_layer_norm_before pre_norm no_bias use_rope \
         rope use_rotary use_rotary_embeddings use_gated_mlp gated_mlp use_glu is_gated_act",
    ),
    (Neutral::All("1"), "no_rope_layers"),
    (Neutral::All("full_attention"), "layer_types"),
    (Neutral::All("attention"), "layers_block_type block_types"),
    (Neutral::NoWindow, "sliding_window"),
    (Neutral::WindowsOff, "use_sliding_window max_window_layers"),
    (
        Neutral::HeadDim,
        "rotary_dim query_pre_attn_scalar v_head_dim qk_head_dim kv_channels attention_head_dim attention_head_size d_head d_kv",
    ),
    (Neutral::AttentionScale, "attention_multiplier softmax_scale attention_scale"),
    (Neutral::Words(&["rope", "rotary", "rotate"]), "position_embedding_type pos_emb positional_embedding"),
    (Neutral::Words(&["rms_norm", "rmsnorm", "rms"]), "norm_type normalization_type normalization norm_layer"),
    (Neutral::Words(&["default"]), "rope_type"),
    (Neutral::ExpertScale, "routed_scaling_factor route_scale router_scaling_factor moe_routed_scaling_factor"),
    (
        Neutral::NoExperts,
        "num_experts_per_tok num_experts_per_token experts_per_token experts_per_tok top_k_experts moe_topk moe_top_k moe_k moe_intermediate_size \
         norm_topk_prob moe_renormalize n_group num_expert_group topk_group topk_method scoring_func expert_selection_fn first_k_dense_replace moe_layer_freq decoder_sparse_step \
         mlp_only_layers moe_layer_start_index moe_layer_end_index moe_layer_interval interleave_moe_layer_step expert_layer_offset \
         expert_layer_period num_dense_layers num_hash_layers use_expert_bias moe_norm_min moe_latent_size expert_ffn_hidden_size \
         prefix_dense_intermediate_size dense_intermediate_size router_hidden_size moe_apply_router_weight_on_input moe_normalize_expert_weights \
         shared_expert_combination_strategy shared_expert_sink dense_mlp_idx rms_norm_eps_moe_gate",
    ),
    // Other names of fields that all architectures here read: one that says something else is no
    // leftover.
    (Neutral::Same("vocab_size"), "unpadded_vocab_size padded_vocab_size n_vocab"),
    (Neutral::Same("num_hidden_layers"), "n_layer n_layers num_layers"),
    (
        Neutral::Same("hidden_size"),
        "n_embd n_embed d_model dim emb_dim embed_dim embedding_size embedding_dim word_embed_proj_dim dim_model_base",
    ),
    (Neutral::Same("num_attention_heads"), "n_head n_heads num_heads"),
    (Neutral::Same("num_key_value_heads"), "num_kv_heads n_kv_heads n_head_kv kv_n_heads multi_query_group_num"),
    (
        Neutral::Same("intermediate_size"),
        "n_inner ffn_dim ffn_hidden_size d_ff dff dim_ff block_ff_dim feed_forward_size",
    ),
    (
        Neutral::Same("hidden_act"),
        "hidden_activation activation_function activation mlp_hidden_act ffn_act_fn ff_activation hidden_activation_function",
    ),
    (
        Neutral::Same("rms_norm_eps"),
        "norm_eps norm_epsilon layer_norm_eps layer_norm_epsilon layernorm_epsilon rms_norm_epsilon rms_eps",
    ),
    (Neutral::Same("rope_theta"), "rotary_base rotary_emb_base rope_base rope_freq_base"),
    (Neutral::Same("tie_word_embeddings"), "tie_embedding tie_embeddings tie_lm_head share_input_output_embeddings"),
];

/// Fields of `rope_scaling` and `rope_parameters` that change the frequencies in some scaling, with
/// the values that do not.
pub(super) const ROPE: &[(Neutral, &str)] = &[
    (
        Neutral::Off,
        "low_freq_factor high_freq_factor beta_fast beta_slow beta mscale mscale_all_dim truncate short_factor long_factor short_mscale long_mscale \
         llama_4_scaling_beta full_attention sliding_attention",
    ),
    (Neutral::One, "factor attention_factor attn_factor extrapolation_factor alpha partial_rotary_factor rope_percent"),
];

/// Fields of `rope_scaling` and `rope_parameters` that change no frequency wherever they are not
/// read. Sections are for images: all three positions of a text's token are one.
const ROPE_METADATA: &str =
    "mrope_section xdrope_section mrope_interleaved original_max_position_embeddings max_position_embeddings finetuned";

/// Fields that say nothing about the function that a model computes: provenance, training, where
/// and how to run it, special tokens, defaults of sampling.
const METADATA: &str = "transformers_version for_llm_compressor torch_dtype dtype auto_map custom_pipelines tokenizer_class tokenizer processor_class name model_name _commit_hash \
     _flash_attn_2_enabled _attn_implementation _attn_implementation_autoset attn_implementation _attn_implementation_internal \
     _experts_implementation _output_attentions transformers.js_config is_llama_config unsloth_fixed unsloth_version language license base_model \
     finetuning_task task_specific_params problem_type id2label label2id num_labels classifier_dropout classifier_dropout_prob classifier_bias \
     classifier_activation predict_special_tokens summary_type summary_use_proj summary_activation summary_first_dropout summary_last_dropout summary_proj_to_labels \
     initial_context_length num_nextn_predict_layers num_mtp_layers mtp_use_dedicated_embeddings mtp_loss_scaling_factor reorder_and_upcast_attn eod_token_id initializer_range embedding_initializer_range lambda_std_dev initializer_factor initializer_cutoff_factor init_std rescale_prenorm_residual use_cache cache_implementation \
     gradient_checkpointing attention_dropout residual_in_fp32 hidden_dropout hidden_dropout_prob attention_probs_dropout_prob attn_pdrop embd_pdrop emb_pdrop \
     resid_pdrop residual_dropout resid_dropout embedding_dropout embed_dropout activation_dropout mlp_dropout dropout dropout_p layerdrop encoder_layerdrop decoder_layerdrop classif_dropout \
     router_aux_loss_coef aux_loss_coef router_jitter_noise input_jitter_noise router_z_loss_coef z_loss_coefficient moe_loss_weight \
     output_router_logits output_attentions output_hidden_states return_dict return_dict_in_generate torchscript use_bfloat16 tf_legacy_loss \
     pretraining_tp tensor_parallel_degree base_model_tp_plan chunk_size_feed_forward is_decoder tie_encoder_decoder cross_attention_hidden_size \
     decoder_start_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id pad_token bos_token eos_token prefix temperature \
     top_k top_p typical_p min_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids \
     num_return_sequences num_beams num_beam_groups diversity_penalty do_sample early_stopping max_length min_length max_new_tokens output_scores \
     forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty forced_decoder_ids suppress_tokens begin_suppress_tokens \
     generation_config num_logits_to_keep output_past seq_classif_dropout qa_dropout tie_weights_ deterministic_flash_attn \
     sparse_prediction sparse_pred_ignore_index decoder_bias reference_compile repad_logits_with_grad max_sequence_length max_seq_len max_seq_length seq_length n_positions n_ctx model_max_length \
     attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion offset_alibi skip_bias_add skip_bias_add_qkv \
     slow_but_exact embedding_fraction init_device sentence_transformers sbert_ce_default_activation_function";

/// The unread members of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// Fields that are not read and change the mathematics: `name` is value.
    pub changes: Vec<String>,
    /// Others that are not read, in the same form.
    pub others: Vec<String>,
    /// The longest sequence for which LongRoPE has its short factors, where there are longer ones.
    pub original_context: Option<usize>,
}

/// The unread fields of `config.json`: fields for which `reads` is false. `fixed` has the fields
/// that the architecture's class decides by itself, `elsewhere` the neutral values of fields that
/// other architectures read.
pub(crate) fn unread(
    config: &Map<String, Value>,
    reads: impl Fn(&str) -> bool,
    fixed: &[(&str, Neutral)],
    elsewhere: impl Fn(&str) -> Option<Neutral>,
) -> Unread {
    let rule = |name: &str| {
        let own = fixed.iter().find(|(n, _)| *n == name).map(|(_, rule)| *rule);
        own.or_else(|| of_mathematics(name)).or_else(|| elsewhere(name))
    };
    judge(config, "", reads, rule, metadata())
}

/// The unread fields of `rope_scaling` or `rope_parameters`, with that name and a point before
/// them.
pub(crate) fn unread_rope(rope: &Map<String, Value>, at: &str, reads: impl Fn(&str) -> bool) -> Unread {
    judge(rope, at, reads, of_rope, rope_metadata())
}

/// The unread fields of another object, with its name and a point before them.
pub(crate) fn unread_inside(
    map: &Map<String, Value>,
    at: &str,
    reads: impl Fn(&str) -> bool,
    fixed: &[(&str, Neutral)],
) -> Unread {
    let own = |name: &str| fixed.iter().find(|(n, _)| *n == name).map(|(_, rule)| *rule);
    judge(map, at, reads, |name| own(name).or_else(|| of_mathematics(name)), metadata())
}

/// The rules of the fields of a list; the first one counts.
fn rules(lists: &'static [(Neutral, &'static str)]) -> HashMap<&'static str, Neutral> {
    let each = lists.iter().rev().flat_map(|(rule, names)| names.split_whitespace().map(|name| (name, *rule)));
    each.collect()
}

/// The rule for a field of [`MATHEMATICS`].
fn of_mathematics(name: &str) -> Option<Neutral> {
    static RULES: LazyLock<HashMap<&'static str, Neutral>> = LazyLock::new(|| rules(MATHEMATICS));
    RULES.get(name).copied()
}

/// The rule for a field of `ROPE`.
fn of_rope(name: &str) -> Option<Neutral> {
    static RULES: LazyLock<HashMap<&'static str, Neutral>> = LazyLock::new(|| rules(ROPE));
    RULES.get(name).copied()
}

/// The names of [`METADATA`].
fn metadata() -> &'static HashSet<&'static str> {
    static NAMES: LazyLock<HashSet<&'static str>> = LazyLock::new(|| METADATA.split_whitespace().collect());
    &NAMES
}

/// The names of [`ROPE_METADATA`].
fn rope_metadata() -> &'static HashSet<&'static str> {
    static NAMES: LazyLock<HashSet<&'static str>> = LazyLock::new(|| ROPE_METADATA.split_whitespace().collect());
    &NAMES
}

fn judge(
    map: &Map<String, Value>,
    at: &str,
    reads: impl Fn(&str) -> bool,
    rule: impl Fn(&str) -> Option<Neutral>,
    metadata: &HashSet<&str>,
) -> Unread {
    let mut unread = Unread::default();
    for (name, v) in map.iter().filter(|(name, _)| !reads(name)) {
        let said = || format!("`{at}{name}` is {}", show(v));
        match rule(name) {
            Some(rule) if rule.accepts(v, map) => {}
            Some(_) => unread.changes.push(said()),
            None if v.is_null() || metadata.contains(name.as_str()) => {}
            None => unread.others.push(said()),
        }
    }
    unread
}
