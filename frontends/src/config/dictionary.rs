//! The dictionary of configuration fields: their names, the values that they may have, and the values that
//! mean nothing to an architecture that does not read them.
//!
//! Tables of fields are written with [`fields!`]:
//!
//! ```ignore
//! const OWN: &[Field] = fields! { use_qk_norm, n_routed_experts | num_experts, layer_types: Accepts::ListOf(KINDS) };
//! ```
//!
//! `a | b` is a field `a` that some files call `b`. `a: Accepts::…` is a field that has other values than the
//! dictionary says. A name that is missing here does not compile. A field that one architecture alone has may
//! stand in its file instead: `Field::new("name", Accepts::Number)`.

use super::common::{self, TOKENS, WIDTH};
use super::fields::{Accepts, Field};
use super::known::Neutral;

/// Declares fields by the values they may have and the values that mean nothing.
macro_rules! dictionary {
    ($($accepts:expr, $neutral:expr => $($name:ident)+;)+) => {
        const FIELDS: &[Field] = &[$($(Field::new(stringify!($name), $accepts).unless($neutral)),+),+];
    };
}

dictionary! {
    // Switches.
    Accepts::Flag, Neutral::Off =>
        _remove_final_layer_norm add_bias_linear alibi altup_correct_scale
        apply_residual_connection_post_layernorm attention_bias attention_k_eq_v attention_out_bias bias
        block_auto_adjust_ff_dim classifier_bias conv_bias do_layer_norm_before emb_layer_norm_before
        enable_bias enable_moe_block index_kpool_always_select_tail is_decoder is_gated_act is_moe kda_safe_gate
        latent_moe_use_norm layer_norm_elementwise_affine layer_sharing linear_allow_neg_eigval lm_head_bias
        mamba_conv_bias mamba_proj_bias mamba_rms_norm mla_use_output_gate mlp_bias multi_query mup_enabled
        new_decoder_architecture norm_after norm_bias norm_topk_prob parallel_attn projectors_bias qk_layernorm
        qk_post_norm qkv_bias rope_interleave router_bias safe_gate scale_attn_by_inverse_layer_idx
        scale_embedding share_embedding tie_word_embeddings token_dropout trigram_input truncate
        use_attention_gate use_bias use_bidirectional_attention use_conv_bias use_double_wide_mlp use_dsa
        use_expert_bias use_full_rank_gate use_mem_rope use_parallel_residual use_post_norm use_qk_norm
        use_qkv_bias use_sandwich_norm use_shared_attention_adapter use_short_conv use_sliding_window
        use_sparse_attention use_task_id;
    Accepts::Flag, Neutral::Any =>
        decoder_bias gelu_activation mamba_norm_before_gate scale_decoder_outputs share_att_key;
    Accepts::Flag, Neutral::On =>
        is_causal scale_attn_weights;
    // Counts, which may be 0.
    Accepts::Count, Neutral::Off =>
        additional_vocab_size altup_active_idx attn_layer_offset conv_kernel_size encoder_sparse_step
        expert_layer_offset first_k_dense_replace hc_sinkhorn_iters interleave_moe_layer_step local_size
        max_window_layers moe_layer_start_index moe_num_shared_experts num_dense_layers num_hash_layers
        num_kv_shared_layers num_random_blocks num_sparse_encoder_layers sparse_index_dim sparse_init_block
        sparse_local_block sparse_num_index_heads zero_expert_num;
    Accepts::Count, Neutral::Any =>
        index_skip_topk_offset mask_token_id pad_token_id seed;
    // Factors, bases, limits.
    Accepts::Number, Neutral::Off =>
        activation_situ_beta activation_situ_linear_beta alibi_bias_max alpha attention_factor
        attention_in_multiplier attention_multiplier attention_out_multiplier attention_value_scale
        attn_logit_softcapping attn_scale beta_fast beta_slow block_ffn_dim_multiplier clip_qkv
        compress_rope_theta dim_model_base embedding_multiplier eps expand expand_k expand_v factor
        ffn_proj_factor final_logit_softcapping full_attn_alpha_factor full_attn_beta_factor gate_lower_bound
        gate_soft_cap global_rope_theta hc_eps hc_magnitude head_size_divisor high_freq_factor kda_lower_bound
        key_multiplier layer_norm_eps layer_norm_epsilon linear_attn_alpha_factor linear_attn_beta_factor
        linear_lower_bound llama_4_scaling_beta lm_head_multiplier local_rope_theta logit_scale logits_scaling
        logits_soft_cap long_mscale low_freq_factor mixed_b mixer_rms_eps mlp_alpha_factor mlp_beta_factor
        moe_norm_min moe_normalize_expert_weights moe_routed_scaling_factor moe_router_logit_softcapping
        moe_router_scaling_factor mscale mscale_all_dim norm_eps norm_epsilon output_logit_soft_cap
        output_multiplier post_norm_eps qk_dim_factor qk_scale_factor residual_gate_temperature
        residual_multiplier rms_norm_eps rope_local_base_freq rope_theta rotary_scaling_factor route_scale
        routed_scaling_factor router_scaling_factor scale_depth scale_emb short_mscale softmax_scale
        ssm_in_multiplier ssm_out_multiplier swa_rope_theta swiglu_alpha swiglu_limit v_dim_factor;
    Accepts::Number, Neutral::Any =>
        position_buckets router_jitter_noise time_step_min z_loss_weight;
    Accepts::Number, Neutral::HeadDim =>
        query_pre_attn_scalar;
    Accepts::Number, Neutral::One =>
        partial_rotary_factor;
    // Lists of numbers.
    Accepts::Numbers, Neutral::Off =>
        activation_sparsity_pattern attn_layer_indices compress_ratios full_attn_idxs full_attn_layers
        hybrid_layer_pattern kda_layers kv_source_layers layer_rope_theta long_factor mlp_multipliers
        mlp_only_layers moe_layers no_rope_layers num_attention_heads_per_layer ple_layer_ids short_factor
        sparse_attention_freq ssm_multipliers;
    // Widths of matrices.
    WIDTH, Neutral::Off =>
        a_low_rank_dim adapter_rank attention_hidden_size block_size d_ff d_model decay_low_rank_dim
        dense_intermediate_size dim emb_dim embedding_dim embedding_size ffn_hidden_size
        ffn_round_up_to_multiple_of gate_low_rank_dim gated_norm_rank hc_lowrank hidden_dim hidden_size
        hidden_size_per_layer_input input_embedding_size intermediate_size intermediate_size_mlp
        intra_bottleneck_size kv_lora_rank laurel_rank lru_width mamba_d_ssm mamba_d_state moe_hidden_size
        moe_intermediate_size moe_latent_size moe_shared_expert_intermediate_size o_lora_rank ple_embed_dim
        prefix_dense_intermediate_size q_lora_rank qk_head_dim qk_nope_head_dim qk_rope_head_dim
        routed_expert_hidden_size router_hidden_size share_expert_dim shared_expert_intermediate_size
        shared_experts_intermediate_size shared_intermediate_size ssm_state_size state_size swa_kv_lora_rank
        swa_q_lora_rank time_decay_extra_dim time_mix_extra_dim v_head_dim v_low_rank_dim word_embed_proj_dim;
    WIDTH, Neutral::Any =>
        block_multiple_of make_ngram_vocab_size_divisible_by;
    // Numbers of tokens.
    TOKENS, Neutral::Off =>
        attention_chunk_size chunk_size compress_rate_csa compress_rate_hca floor_scale local_attention
        max_position_embeddings original_max_position_embeddings sliding_window sliding_window_size window_size;
    TOKENS, Neutral::Any =>
        context_length max_length max_seq_len max_trained_positions model_max_length n_positions
        relative_attention_max_distance seq_length;
    Accepts::Size(1 << 10), Neutral::Off =>
        intermediate_multiple_size;
    // Heads, their elements, and groups.
    Accepts::Size(1 << 14), Neutral::Off =>
        attention_head_dim cca_time0 cca_time1 d_kv global_head_dim head_dim head_size index_head_dim index_n_heads
        kv_channels kv_n_heads
        layer_group_size linear_head_dim linear_key_head_dim linear_num_heads linear_num_key_heads
        linear_num_value_heads linear_value_head_dim mamba_head_dim mamba_ngroups mamba_num_heads n_groups
        n_heads n_mamba_heads num_attention_groups num_attention_heads num_global_key_value_heads num_heads
        num_key_value_heads num_sliding_attention_heads relative_attention_num_buckets rotary_dim swa_head_dim
        swa_num_attention_heads swa_num_key_value_heads swa_qk_nope_head_dim swa_qk_rope_head_dim swa_v_head_dim
        type_vocab_size;
    Accepts::Size(1 << 14), Neutral::Any =>
        task_type_vocab_size;
    Accepts::Size(1 << 16), Neutral::Any =>
        split_ngram_parts;
    // Vocabularies and tables.
    Accepts::Size(1 << 24), Neutral::Off =>
        expert_capacity index_block_size index_kpool index_topk index_topk_blocks indexer_budget
        indexer_compress_ratio sparse_block_size sparse_topk_blocks vocab_size vocab_size_per_layer_input;
    Accepts::Size(1 << 28), Neutral::Off =>
        keep_window_size;
    Accepts::Size(1 << 28), Neutral::Any =>
        ngram_vocab_size_base;
    Accepts::Size(16), Neutral::Off =>
        ngram_size;
    // Layers, experts, and intervals of layers.
    Accepts::Size(4096), Neutral::Off =>
        attn_layer_period attn_res_block_size decoder_sparse_step expert_layer_period full_attention_interval
        global_attn_every_n_layers index_topk_freq
        moe_layer_freq moe_layer_interval moe_num_experts moe_top_k moe_topk n_group
        n_layers n_routed_experts n_shared_experts no_rope_layer_interval num_experts num_experts_per_tok
        num_hidden_groups num_hidden_layers num_layers num_local_experts num_shared_experts o_groups
        prefix_dense_sliding_window_pattern sliding_window_pattern topk_group;
    // Two stacks, one of which attends to the other's rows.
    Accepts::Size(4096), Neutral::Off =>
        encoder_layers;
    Accepts::Size(4096), Neutral::Any =>
        decoder_layers num_decoder_layers;
    Accepts::Size(1 << 14), Neutral::Any =>
        decoder_attention_heads encoder_attention_heads;
    WIDTH, Neutral::Any =>
        decoder_ffn_dim encoder_ffn_dim;
    // Taps and expansions.
    Accepts::Size(64), Neutral::Off =>
        altup_num_inputs conv1d_width conv_L_cache conv_kernel conv_size expansion_ratio hc_count hc_mult
        hidden_ratio inner_group_num linear_conv_kernel_dim mamba_d_conv mamba_expand num_feedforward_networks
        num_ln_in_parallel_attn num_mem_blocks short_conv_kernel_size;
    Accepts::Size(64), Neutral::Any =>
        heads_per_ngram ple_conv_kernel_size;
    // Fields whose readers judge the value themselves.
    Accepts::Any, Neutral::Off =>
        attention_layers attention_types attention_window attention_windows attn_temperature_tuning block_types
        cross_attention_layers gating hybrid_layer_ids index_topk_pattern indexer_types
        layers_block_type mamba_dt_rank mamba_headdim
        mlp_layer_types moe_layer_end_index moe_layers_enum mtp_layer_types mtp_mlp_layer_types
        partial_rotary_factors quantization_config rope_scaling_layers sparse_disable_index_value swiglu_limits
        swiglu_limits_shared time_step_limit time_step_rank;
    // Kinds of layers.
    Accepts::ListOf(common::LAYER_TYPES), Neutral::Off =>
        layer_types;
    // Objects, whose fields are declared where they are read.
    Accepts::Object, Neutral::Off =>
        attention_other_setting attn_config compress_rates dual_chunk_attention_config ffn_act_fn ffn_config
        linear_attn_config per_layer_config rope_parameters rope_scaling sparse_attention_config;
    Accepts::Object, Neutral::Any =>
        auto_map;
    // Activations.
    Accepts::OneOf(common::ACTIVATIONS), Neutral::Off =>
        activation activation_function classifier_activation dense_act_fn hidden_act hidden_activation
        hidden_mamba_act mamba_hidden_act;
    // Words. An architecture lists those it supports.
    Accepts::Text, Neutral::Off =>
        afn attention_type expert_selection_fn feed_forward_proj feed_forward_type hybrid_override_pattern
        mlp_hidden_act normalization_type output_gate_type position_embedding_type qk_norm_type rope_type
        shared_expert_combination_strategy sparse_score_type topk_method type weight_mode;
    Accepts::Text, Neutral::Any =>
        _name_or_path conv_act norm_rel_ebd;
    Accepts::Text, Neutral::Words(&["cls", "mean"]) =>
        classifier_pooling;
    // Token ids.
    Accepts::Tokens, Neutral::Any =>
        bos_token_id eos_token_id;
}

/// A table of fields of the dictionary; see the module's documentation.
macro_rules! fields {
    ($($name:ident $(| $also:ident)* $(: $accepts:expr)?),* $(,)?) => {
        &[$($crate::config::dictionary::field(stringify!($name))
            $(.accepting($accepts))?
            .or(&[$(stringify!($also)),*])),*]
    };
}
pub(crate) use fields;

/// The values of a field that mean nothing, by any name that the dictionary has.
pub(crate) fn neutral(name: &str) -> Option<Neutral> {
    FIELDS.iter().find(|f| f.name == name).map(|f| f.neutral)
}

/// The field with a name.
///
/// # Panics
/// When compiling, if the dictionary does not have it.
pub(crate) const fn field(name: &str) -> Field {
    let mut i = 0;
    while i < FIELDS.len() {
        if same(FIELDS[i].name.as_bytes(), name.as_bytes()) {
            return FIELDS[i];
        }
        i += 1;
    }
    panic!("the field is not in the dictionary: add it to frontends/src/config/dictionary.rs")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::FIELDS;
    use std::collections::BTreeSet;

    #[test]
    fn a_name_stands_once() {
        let names: BTreeSet<&str> = FIELDS.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), FIELDS.len());
    }
}
