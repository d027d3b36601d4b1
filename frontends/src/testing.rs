//! Folders and fixtures for this crate's tests.

use crate::arch::{Arch, by_model_type};
use llmcc_ir::eval::{Batch, State, eval_entry};
use llmcc_ir::graph::Module;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh folder, removed when dropped.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("llmcc-frontends-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Folder {
        std::fs::write(self.0.join(name), bytes).unwrap();
        self
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A golden checkpoint, with its weights.
pub(crate) fn golden(name: &str) -> PathBuf {
    llmcc_test_support::fixture(name)
}

/// A folder of the data shared between projects; says so when it is absent.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name);
    if !path.exists() {
        println!("skipped: {} is not here", path.display());
        return None;
    }
    Some(path)
}

/// A small valid configuration of an architecture: its first fixture's with other sizes, and with
/// optional features switched off.
pub(crate) fn config(model_type: &str) -> Value {
    config_of(by_model_type(model_type).unwrap())
}

/// The same of an architecture, which may have its `model_type` in common with a part of it that stands alone.
pub(crate) fn config_of(arch: &Arch) -> Value {
    let model_type = arch.model_type;
    let Some(first) = arch.goldens.first() else { return crate::arch::dummy_config() };
    let text = std::fs::read(golden(first).join("config.json")).unwrap();
    let whole: Value = serde_json::from_slice(&text).unwrap();
    // For a multimodal model its text model's, whatever its name.
    let text = match whole.get("text_config") {
        Some(part) => with(part.clone(), json!({ "model_type": model_type, "architectures": whole["architectures"] })),
        // Fields beside the other parts'.
        None if whole["model_type"].as_str().is_some_and(|of| by_model_type(of).is_none()) => {
            with(whole, json!({ "model_type": model_type }))
        }
        None => whole,
    };
    // Not off: without, it would be another one.
    let kept =
        [("gpt_oss", "rope_scaling"), ("mistral4", "rope_parameters"), ("cohere_compass_text", "rope_parameters")];
    let off = OFF.iter().filter(|name| !kept.contains(&(model_type, name)));
    // Fields that only repeat a field that is read.
    let same =
        ["layer_norm_eps", "dim_head", "attention_head_size"].into_iter().filter(|name| arch.field(name).is_none());
    let config = with(
        by_first_names(arch, text),
        off.copied().chain(same).map(|name| (name.to_string(), json!("absent"))).collect(),
    );
    let sizes = sizes();
    // Whether there is a window decides about other fields too.
    // With latent attention heads are as wide as their parts together.
    let of_parts = ["head_dim", "num_key_value_heads", "partial_rotary_factor"];
    let parts = |name: &str| of_parts.contains(&name) && arch.field("qk_rope_head_dim").is_some();
    let declared = |name: &str| arch.field(name).is_some_and(|f| f.name == name);
    // These say so in `rope_parameters` only, and have other bases where nothing is said there.
    let own: &[&str] = match model_type {
        "olmo3" | "mellum" | "laguna" => &["rope_theta"],
        "mimo_v2_flash" => &["rope_theta", "partial_rotary_factor"],
        // These follow from others.
        "bamba" | "jamba" => &["layers_block_type"],
        "jetmoe" => &["num_attention_heads"],
        // Each of four layers is described.
        "nemotron-nas" => &["num_hidden_layers"],
        _ => &[],
    };
    let counts = |name: &str| (declared(name) || name == "sliding_window") && !parts(name) && !own.contains(&name);
    let read = sizes.as_object().unwrap().iter().filter(|(name, _)| counts(name));
    let config = with(config, read.map(|(name, v)| (name.clone(), v.clone())).collect());
    if model_type != "mimo_v2_flash" {
        return config;
    }
    // Where nothing is said, it turns a part that small heads do not have.
    let half = json!({ "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5 });
    with(config, json!({ "rope_parameters": { "full_attention": half, "sliding_attention": half } }))
}

/// Fields that samples leave out.
const OFF: &[&str] = &[
    "rope_scaling",
    "rope_parameters",
    "global_rope_theta",
    "local_rope_theta",
    "original_max_position_embeddings",
    "layer_types",
    "attention_layers",
    "vision_config",
    "audio_config",
    "use_sliding_window",
    "max_window_layers",
    "no_rope_layers",
    "kv_source_layers",
    "indexer_types",
    "d_head",
    "activation_sparsity_pattern",
    "num_attention_heads_per_layer",
    // These follow from others.
    "attention_head_dim",
    "attention_hidden_size",
    "hybrid_layer_ids",
    "mamba_d_head",
    "mamba_headdim",
];

/// Sizes of samples.
fn sizes() -> Value {
    json!({
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
        "vocab_size": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": null,
        "tie_word_embeddings": false, "hidden_act": "silu", "no_rope_layer_interval": 2, "num_heads": 8,
        "partial_rotary_factor": 0.5, "num_kv_shared_layers": 0, "n_routed_experts": 12, "rotary_dim": 2,
        "share_embedding": false, "num_hidden_groups": 1, "attention_types": [[["global", "local"], 1]],
        "hybrid_override_pattern": "ME", "layers_block_type": ["mamba", "hybrid"],
    })
}

/// With each field under the first of its names.
fn by_first_names(arch: &Arch, mut config: Value) -> Value {
    for field in arch.fields.iter().copied().flatten() {
        for name in field.also {
            if let Some(v) = config.as_object_mut().and_then(|members| members.remove(*name)) {
                config[field.name] = v;
            }
        }
    }
    config
}

/// `config` with members replaced; `null` stays, the string "absent" removes.
pub(crate) fn with(mut config: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        let members = config.as_object_mut().unwrap();
        match value.as_str() {
            Some("absent") => members.remove(key),
            _ => members.insert(key.clone(), value.clone()),
        };
    }
    config
}

/// Whether a field concerns layers that [`config`] lacks (named so, sharing caches, with embeddings
/// of their own, with convolutions, of an older form), or is given there already.
pub(crate) fn idle(arch: &Arch, field: &str) -> bool {
    let fields: &[&str] = match arch.model_type {
        "mellum" | "lfm3" | "laguna" | "muse_glimmer_text" | "flint" | "zaya" => &["sliding_window"],
        "gemma4_text" => &["use_double_wide_mlp", "vocab_size_per_layer_input"],
        "gemma4_unified_text" => &["use_double_wide_mlp"],
        // A window that is given counts.
        "modernbert" | "modernbert-decoder" => &["local_attention"],
        "step3p5" => &["sliding_window", "num_sliding_attention_heads", "attention_other_setting", "moe_layers_enum"],
        "cohere2_moe" => &["layer_norm_eps", "sliding_window_pattern"],
        "minimax_m3_vl_text" => &[
            "rotary_dim",
            "moe_layer_freq",
            "layer_types",
            "index_topk_blocks",
            "index_block_size",
            "sparse_attention_config",
        ],
        "glm5_next_text" => &["index_topk", "index_kpool", "index_kpool_always_select_tail"],
        // The third layer would be the first without an indexer.
        "mistral_large4_text" => &["index_topk_freq"],
        "granitemoe_swa" => &["rope_theta"],
        "zamba" => &["attn_layer_period", "attn_layer_offset"],
        "qwen4_exp_text" => &["full_attention_interval", "indexer_budget", "indexer_compress_ratio"],
        "jina_bert" => &["hidden_act"],
        "phimoe" => &["original_max_position_embeddings"],
        // Beside an object for each kind of layers.
        "mimo_v2_flash" => &["rope_local_base_freq"],
        "cohere_compass_text" => &["sliding_window"],
        "gla" => &["hidden_ratio", "conv_size"],
        // Layers with a window are the third and the fourth.
        "dots3_note_text" => &[
            "swa_num_attention_heads",
            "swa_num_key_value_heads",
            "swa_q_lora_rank",
            "swa_kv_lora_rank",
            "swa_head_dim",
            "swa_qk_nope_head_dim",
            "swa_v_head_dim",
            "swa_qk_rope_head_dim",
            "sliding_window",
            "moe_layer_freq",
        ],
        "retnet" => &["hidden_ratio"],
        "esm" => &["pad_token_id"],
        "deepseek_ocr2_text" => &["first_k_dense_replace", "moe_layer_freq"],
        "molmo2_text" => &["rope_scaling_layers"],
        "falcon" => &["multi_query"],
        "nomic_bert" => &["rotary_scaling_factor", "max_trained_positions"],
        _ => &[],
    };
    fields.contains(&field)
}

/// A number that the field with this name does not have in [`config`].
pub(crate) fn other_count(field: &str) -> usize {
    match field {
        "num_kv_shared_layers" => 2,
        "pad_token_id" => 5,
        "altup_active_idx" => 1,
        "qk_rope_head_dim" => 2,
        _ => 0,
    }
}

/// Logits and hidden states that an entry of a module leaves; no hidden states where it leaves none.
pub(crate) struct Left {
    pub output: Vec<f64>,
    pub hidden: Vec<f64>,
}

impl Left {
    /// Evaluates a batch of new sequences by entry `name`.
    pub(crate) fn of(module: &Module, name: &str, weights: &dyn Fn(usize) -> Vec<f32>, batch: &Batch) -> Left {
        let mut states: Vec<State> = module.states.iter().map(|s| State::new(*s)).collect();
        let entry = module.entries.iter().find(|e| e.name == name).unwrap();
        let results = eval_entry(module, entry, weights, &mut states, batch).unwrap();
        let mut results = results.into_iter();
        Left { output: results.next().unwrap(), hidden: results.next().unwrap_or_default() }
    }
}
