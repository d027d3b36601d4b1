//! The memory that reports and manifests say, of ten models as large as they are published, beside the same by
//! hand: weights by the sizes of matrices, caches by what each kind of state keeps.
//!
//! No weights are needed: a sparse file has the names and shapes of the tensors.

use llmcc_cli::manifest::Manifest;
use llmcc_cli::options::CompileOptions;
use llmcc_codegen::link::WeightsPlace;
use llmcc_frontends::fixtures::write_sparse;
use llmcc_ir::quant::Format;
use llmcc_tests::{Artifact, options};
use serde_json::{Value, json};

/// Tokens that a sequence keeps of a window: the window, a step of 512 tokens, and four pages of 16, of which two are
/// kept to go back to, and two are begun.
fn windowed(window: usize) -> usize {
    window + 512 + 4 * 16
}

/// The manifest of a model.
fn manifest(config: &Value, weights: Option<&str>) -> Manifest {
    let folder = tempfile::tempdir().expect("a folder");
    write_sparse(folder.path(), config).unwrap_or_else(|e| panic!("{e}"));
    let artifact = Artifact::compile(&CompileOptions {
        weights: weights.map(|name| Format::parse(name).expect("a format")),
        place: WeightsPlace::Absent,
        act: None,
        kv: None,
        ..options(folder.path())
    });
    Manifest::of(&artifact.path).expect("a manifest")
}

/// Weights and cache are within 1 % of those by hand, and the rest is less than 1 %.
fn check(config: Value, weights: Option<&str>, by_hand: [usize; 2]) -> Manifest {
    let manifest = manifest(&config, weights);
    let m = &manifest.memory;
    let name = &config["model_type"];
    for (what, said, own) in [("weights", m.weights, by_hand[0]), ("cache", m.sequence, by_hand[1])] {
        assert!(said.abs_diff(own) * 100 <= own, "{name}: {what} {said}, by hand {own}");
    }
    let own = by_hand[0] + by_hand[1];
    assert_eq!(m.total, m.weights + m.sequence + m.step, "{name}");
    assert!(m.total.abs_diff(own) * 100 <= own, "{name}: {}, by hand {own}, steps {}", m.total, m.step);
    manifest
}

/// Meta-Llama-3.1-8B: every layer keeps everything.
#[test]
fn llama_31_8b() {
    let config = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128_256, "hidden_size": 4096,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14_336,
        "max_position_embeddings": 131_072, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "rope_scaling": { "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192 },
    });
    // Queries and output, keys and values, three matrices of the MLP; table and head. Two bytes each.
    let layer = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14_336 * 4096;
    let weights = 2 * (32 * layer + 2 * 128_256 * 4096);
    // 8 heads of 128 in f16, keys and values.
    let cache = 32 * 131_072 * 2 * 8 * 128 * 2;
    check(config, None, [weights, cache]);
}

/// Mistral-7B-v0.1: every layer has a window.
#[test]
fn mistral_7b() {
    let config = json!({
        "model_type": "mistral", "architectures": ["MistralForCausalLM"], "vocab_size": 32_000, "hidden_size": 4096,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14_336,
        "max_position_embeddings": 32_768, "rope_theta": 10_000.0, "rms_norm_eps": 1e-5, "sliding_window": 4096,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    });
    let layer = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14_336 * 4096;
    let weights = 2 * (32 * layer + 2 * 32_000 * 4096);
    let cache = 32 * windowed(4096) * 2 * 8 * 128 * 2;
    check(config, None, [weights, cache]);
}

/// gemma-2-9b: every other layer has a window, the head is the table.
#[test]
fn gemma_2_9b() {
    let config = json!({
        "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "vocab_size": 256_000, "hidden_size": 3584,
        "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
        "intermediate_size": 14_336, "max_position_embeddings": 8192, "rope_theta": 10_000.0, "rms_norm_eps": 1e-6,
        "sliding_window": 4096, "query_pre_attn_scalar": 224, "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0, "hidden_activation": "gelu_pytorch_tanh", "torch_dtype": "bfloat16",
    });
    let layer = 2 * 4096 * 3584 + 2 * 2048 * 3584 + 3 * 14_336 * 3584;
    let weights = 2 * (42 * layer + 256_000 * 3584);
    let cache = 21 * (8192 + windowed(4096)) * 2 * 8 * 256 * 2;
    check(config, None, [weights, cache]);
}

/// gemma-3-27b: one layer of six keeps everything, the other ones 1024 tokens.
#[test]
fn gemma_3_27b() {
    let config = json!({
        "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "vocab_size": 262_208,
        "hidden_size": 5376, "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16,
        "head_dim": 128, "intermediate_size": 21_504, "max_position_embeddings": 131_072, "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0, "rms_norm_eps": 1e-6, "sliding_window": 1024, "sliding_window_pattern": 6,
        "query_pre_attn_scalar": 168, "hidden_activation": "gelu_pytorch_tanh", "torch_dtype": "bfloat16",
        "rope_scaling": { "factor": 8.0, "rope_type": "linear" },
    });
    let layer = 2 * 4096 * 5376 + 2 * 2048 * 5376 + 3 * 21_504 * 5376;
    let weights = 2 * (62 * layer + 262_208 * 5376);
    let cache = (10 * 131_072 + 52 * windowed(1024)) * 2 * 16 * 128 * 2;
    check(config, None, [weights, cache]);
}

/// gemma-4-31B with 4-bit weights: ten layers with heads of 512 keep everything, whose values are their keys.
#[test]
fn gemma_4_31b() {
    let kinds: Vec<&str> = (1..=60).map(|i| if i % 6 == 0 { "full_attention" } else { "sliding_attention" }).collect();
    let config = json!({
        "model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"], "vocab_size": 262_144,
        "hidden_size": 5376, "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16,
        "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 4, "attention_k_eq_v": true,
        "intermediate_size": 21_504, "max_position_embeddings": 262_144, "rms_norm_eps": 1e-6,
        "sliding_window": 1024, "layer_types": kinds, "hidden_activation": "gelu_pytorch_tanh",
        "final_logit_softcapping": 30.0, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
        "enable_moe_block": false, "use_double_wide_mlp": false, "torch_dtype": "bfloat16",
        "rope_parameters": {
            "full_attention": { "rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25 },
            "sliding_attention": { "rope_type": "default", "rope_theta": 10_000.0 },
        },
    });
    let mlp = 3 * 21_504 * 5376;
    let of_window = 2 * 32 * 256 * 5376 + 2 * 16 * 256 * 5376 + mlp;
    // Without a matrix of values.
    let of_all = 2 * 32 * 512 * 5376 + 4 * 512 * 5376 + mlp;
    // 4.5 bits: 4 of a code, and 16 of a scale for 32 of them.
    let weights = (50 * of_window + 10 * of_all + 262_144 * 5376) * 9 / 16;
    let cache = 10 * 262_144 * 2 * 4 * 512 * 2 + 50 * windowed(1024) * 2 * 16 * 256 * 2;
    check(config, Some("w4g32"), [weights, cache]);
}

/// gpt-oss-20b in bf16: windows of 128 in every other layer, 32 experts.
#[test]
fn gpt_oss_20b() {
    let config = json!({
        "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "vocab_size": 201_088, "hidden_size": 2880,
        "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
        "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
        "max_position_embeddings": 131_072, "rope_theta": 150_000.0, "rms_norm_eps": 1e-5, "attention_bias": true,
        "swiglu_limit": 7.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "rope_scaling": { "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "original_max_position_embeddings": 4096, "truncate": false },
    });
    let layer = 2 * 4096 * 2880 + 2 * 512 * 2880 + 32 * 3 * 2880 * 2880 + 32 * 2880;
    let weights = 2 * (24 * layer + 2 * 201_088 * 2880);
    let cache = 12 * (131_072 + windowed(128)) * 2 * 8 * 64 * 2;
    check(config, None, [weights, cache]);
}

/// Mamba-Codestral-7B: states of fixed size, the sequence's own and two snapshots.
#[test]
fn mamba_codestral_7b() {
    let config = json!({
        "model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "vocab_size": 32_768, "hidden_size": 4096,
        "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64, "state_size": 128, "n_groups": 8, "expand": 2,
        "conv_kernel": 4, "chunk_size": 256, "layer_norm_epsilon": 1e-5, "hidden_act": "silu", "use_bias": false,
        "use_conv_bias": true, "norm_before_gate": true, "rms_norm": true, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16",
    });
    let (inner, of_groups) = (2 * 4096, 8 * 128);
    // Gate, values, two rows of groups, a step for each head; and back.
    let layer = (2 * inner + 2 * of_groups + 128) * 4096 + inner * 4096;
    let weights = 2 * (64 * layer + 2 * 32_768 * 4096);
    // f32: a matrix of each head, and what three tokens left to the convolution.
    let state = 4 * (128 * 64 * 128 + 3 * (inner + 2 * of_groups));
    check(config, None, [weights, 64 * 3 * state]);
}

/// DeepSeek-V2-Lite: a token is a latent of 512 and a rotated key of 64 in each layer.
#[test]
fn deepseek_v2_lite() {
    let config = json!({
        "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "vocab_size": 102_400,
        "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
        "intermediate_size": 10_944, "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1, "kv_lora_rank": 512,
        "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "norm_topk_prob": false, "routed_scaling_factor": 1.0, "topk_method": "greedy", "n_group": 1, "topk_group": 1,
        "scoring_func": "softmax", "max_position_embeddings": 163_840, "rope_theta": 10_000.0, "rms_norm_eps": 1e-6,
        "attention_bias": false, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "rope_scaling": { "type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
            "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096 },
    });
    let attention = 16 * 192 * 2048 + 576 * 2048 + 16 * 256 * 512 + 16 * 128 * 2048;
    let experts = 64 * 3 * 1408 * 2048 + 3 * 2 * 1408 * 2048 + 64 * 2048;
    let weights = 2 * (27 * attention + 3 * 10_944 * 2048 + 26 * experts + 2 * 102_400 * 2048);
    let cache = 27 * 163_840 * (512 + 64) * 2;
    check(config, None, [weights, cache]);
}

/// Qwen3-30B-A3B: 128 experts.
#[test]
fn qwen3_30b_a3b() {
    let config = json!({
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 151_936,
        "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
        "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
        "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "max_position_embeddings": 40_960, "rope_theta": 1_000_000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    });
    let layer = 2 * 4096 * 2048 + 2 * 512 * 2048 + 128 * 3 * 768 * 2048 + 128 * 2048;
    let weights = 2 * (48 * layer + 2 * 151_936 * 2048);
    let cache = 48 * 40_960 * 2 * 4 * 128 * 2;
    check(config, None, [weights, cache]);
}

/// Llama-4-Scout: three layers of four keep a chunk of 8192 tokens, the others ten million.
#[test]
fn llama_4_scout() {
    let config = json!({
        "model_type": "llama4_text", "architectures": ["Llama4ForCausalLM"], "vocab_size": 202_048,
        "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8,
        "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16_384, "num_local_experts": 16,
        "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "attention_chunk_size": 8192, "use_qk_norm": true,
        "max_position_embeddings": 10_485_760, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "attention_bias": false, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "rope_scaling": { "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
            "original_max_position_embeddings": 8192 },
    });
    let layer = 2 * 5120 * 5120 + 2 * 1024 * 5120 + 17 * 3 * 8192 * 5120 + 16 * 5120;
    let weights = 2 * (48 * layer + 2 * 202_048 * 5120);
    let cache = (12 * 10_485_760 + 36 * windowed(8192)) * 2 * 8 * 128 * 2;
    let manifest = check(config, None, [weights, cache]);
    // Queries grow in steps of 8192 tokens: a number for each step, not for each position.
    let tables = manifest.weights.tensors.iter().filter(|t| t.name.starts_with("$attention.tuning"));
    let bytes: Vec<usize> = tables.map(|t| t.bytes).collect();
    assert!(!bytes.is_empty() && bytes.iter().all(|n| *n >= 4 * 1281 && *n < 1 << 14), "{bytes:?}");
}
