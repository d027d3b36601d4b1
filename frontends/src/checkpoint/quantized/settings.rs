//! Settings of methods, by name: a setting that nobody here knows may change what products compute, and is said.

use super::required::{is_off, short};
use serde_json::{Map, Value};

/// Settings of all methods: which matrices, who wrote them, how they are to be loaded.
const ALL: &str = "quant_method modules_to_not_convert modules_to_convert ignore ignored_layers \
    exclude_modules skip_modules producer version backend dequantize run_compressed \
    use_optimized_inference quant_library quantization_status";

/// Settings of each method that are read, or say how matrices were made or products are run.
const KNOWN: &[(&str, &str)] = &[
    (
        "bitsandbytes",
        "load_in_8bit load_in_4bit _load_in_8bit _load_in_4bit llm_int8_threshold llm_int8_skip_modules \
         llm_int8_enable_fp32_cpu_offload llm_int8_has_fp16_weight bnb_4bit_compute_dtype bnb_4bit_quant_type \
         bnb_4bit_use_double_quant bnb_4bit_quant_storage",
    ),
    (
        "gptq",
        "bits group_size sym desc_act act_group_aware damp_percent damp_auto_increment static_groups true_sequential \
         tokenizer dataset format checkpoint_format pack_dtype meta is_marlin_format dynamic lm_head model_seqlen \
         block_name_to_quantize module_name_preceding_first_block batch_size pad_token_id max_input_length \
         cache_block_outputs modules_in_block_to_quantize use_cuda_fp16 use_exllama disable_exllama exllama_config \
         model_name_or_path model_file_base_name quantizer mse nsamples",
    ),
    (
        "awq",
        "bits w_bit group_size q_group_size zero_point sym format checkpoint_format do_fuse fuse_max_seq_len \
         modules_to_fuse exllama_config pack_dtype meta lm_head desc_act dynamic",
    ),
    (
        "auto-round",
        "bits group_size sym data_type act_bits act_group_size act_sym act_dynamic act_data_type autoround_version \
         packing_format extra_config block_name_to_quantize to_quant_block_names quant_block_list layer_config iters \
         batch_size nsamples seqlen lr minmax_lr enable_quanted_input enable_minmax_tuning low_gpu_mem_usage \
         amp scale_dtype super_bits super_group_size gradient_accumulate_steps dataset static_kv_dtype \
         static_attention_dtype damp_percent desc_act true_sequential",
    ),
    ("fp8", "activation_scheme weight_block_size fmt scale_fmt expert_dtype weight_scale_fmt"),
    ("fbgemm_fp8", "activation_scale_ub"),
    (
        "compressed-tensors",
        "format config_groups kv_cache_scheme sparsity_config transform_config global_compression_ratio",
    ),
    (
        "modelopt",
        "quant_algo kv_cache_quant_algo kv_cache_scheme quantized_layers moe_quant_algo config_groups group_size \
         has_zero_point pre_quant_scale weight_block_size fmt activation_scheme scale_fmt",
    ),
    (
        "quark",
        "global_quant_config layer_quant_config layer_type_quant_config algo_config export exclude \
         kv_cache_quant_config kv_cache_post_rope softmax_quant_spec quant_mode log_severity_level min_kv_scale \
         json_export_config",
    ),
    ("quanto", "weights activations"),
    ("bitnet", "linear_class quantization_mode use_rms_norm rms_norm_eps"),
    (
        "torchao",
        "quant_type quant_type_kwargs include_input_output_embeddings include_embedding untie_embedding_weights",
    ),
    ("mxfp4", ""),
    ("hqq", "quant_config nbits group_size view_as_float axis dynamic_config"),
];

/// Names of methods that have the settings of another.
const ALIKE: [(&str, &str); 2] = [("intel/auto-round", "auto-round"), ("mxfp8", "fp8")];

/// Says which settings of a method are not known.
pub(super) fn unknown(method: &str, settings: &Map<String, Value>, notes: &mut Vec<String>) {
    let method = ALIKE.iter().find(|(name, _)| *name == method).map_or(method, |(_, of)| of);
    let own = KNOWN.iter().find(|(name, _)| *name == method).map_or("", |(_, own)| own);
    let known = |key: &str| [ALL, own].iter().any(|list| list.split_ascii_whitespace().any(|name| name == key));
    for (key, v) in settings.iter().filter(|(key, v)| !known(key) && !is_off(v)) {
        notes.push(format!(
            "`quantization_config` has `{key}` ({}), which llmcc does not know for `{method}` and does not read: \
             if it changes what products compute, results differ",
            short(v)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::METHODS;
    use super::*;
    use serde_json::json;

    #[test]
    fn every_method_has_its_settings() {
        let own = |name: &str| KNOWN.iter().any(|(of, _)| *of == name);
        assert!(METHODS.iter().all(|(name, _)| own(name) || ALIKE.iter().any(|(n, of)| n == name && own(of))));
    }

    #[test]
    fn unknown_settings_are_said() {
        let said = |method: &str, more: Value| {
            let mut notes = vec![];
            unknown(method, more.as_object().unwrap(), &mut notes);
            notes
        };
        assert_eq!(said("gptq", json!({ "bits": 4, "sym": true, "quant_method": "gptq", "meta": {"a": 1} })), [""; 0]);
        assert_eq!(said("mxfp8", json!({ "fmt": "e4m3", "clip": false })), [""; 0]);
        let notes = said("awq", json!({ "bits": 4, "input_clip": 3.5, "scale_power": "two" }));
        assert!(
            notes.len() == 2 && notes[0].contains("`input_clip` (3.5), which llmcc does not know for `awq`"),
            "{notes:?}"
        );
    }
}
