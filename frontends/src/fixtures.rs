//! Writing small checkpoints, for tests and demonstrations.

use crate::error::FrontendError;
use serde_json::{Map, Value, json};
use std::path::Path;

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Name.
    pub name: String,
    /// Element type by its safetensors name.
    pub dtype: &'static str,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Little-endian elements.
    pub data: Vec<u8>,
}

/// The bytes of a safetensors file with these tensors in order.
pub fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = Map::new();
    let mut at = 0;
    for t in tensors {
        let end = at + t.data.len();
        header.insert(t.name.clone(), json!({ "dtype": t.dtype, "shape": t.shape, "data_offsets": [at, end] }));
        at = end;
    }
    let mut out = with_header(&Value::Object(header).to_string(), 0);
    tensors.iter().for_each(|t| out.extend_from_slice(&t.data));
    out
}

/// A file with the given header text, well-formed or not, and `data` zero bytes behind it.
pub fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header.as_bytes());
    out.resize(out.len() + data, 0);
    out
}

/// Deterministic noise (splitmix64), uniform in `-scale..scale`.
fn noise(seed: &mut u64, scale: f32) -> f32 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    ((z >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * scale
}

/// Random bf16 tensors that a `config.json` of a supported architecture asks for. Written out independently of the code that checks them.
///
/// # Panics
/// When the configuration lacks a size.
pub fn random_tensors(config: &Value, seed: u64) -> Vec<Tensor> {
    let size = |name: &str| config[name].as_u64().unwrap_or_else(|| panic!("config needs `{name}`")) as usize;
    let (hidden, ffn, vocab, heads) = (size("hidden_size"), size("intermediate_size"), size("vocab_size"), size("num_attention_heads"));
    let kv_heads = config["num_key_value_heads"].as_u64().unwrap_or(heads as u64) as usize;
    let head_dim = config["head_dim"].as_u64().map_or(hidden / heads, |n| n as usize);
    let flag = |name: &str| config[name].as_bool().unwrap_or(false);
    let (qwen2, qwen3) = (config["model_type"] == "qwen2", config["model_type"] == "qwen3");
    let (q, kv) = (heads * head_dim, kv_heads * head_dim);
    let mut shapes = vec![("model.embed_tokens.weight".to_string(), vec![vocab, hidden])];
    for i in 0..size("num_hidden_layers") {
        let mut add = |part: &str, shape: &[usize]| shapes.push((format!("model.layers.{i}.{part}"), shape.to_vec()));
        add("input_layernorm.weight", &[hidden]);
        add("post_attention_layernorm.weight", &[hidden]);
        for (part, shape) in [("q_proj", [q, hidden]), ("k_proj", [kv, hidden]), ("v_proj", [kv, hidden]), ("o_proj", [hidden, q])] {
            add(&format!("self_attn.{part}.weight"), &shape);
            if flag("attention_bias") || qwen2 && part != "o_proj" {
                add(&format!("self_attn.{part}.bias"), &shape[..1]);
            }
        }
        if qwen3 {
            add("self_attn.q_norm.weight", &[head_dim]);
            add("self_attn.k_norm.weight", &[head_dim]);
        }
        for (part, shape) in [("gate_proj", [ffn, hidden]), ("up_proj", [ffn, hidden]), ("down_proj", [hidden, ffn])] {
            add(&format!("mlp.{part}.weight"), &shape);
            if flag("mlp_bias") {
                add(&format!("mlp.{part}.bias"), &shape[..1]);
            }
        }
    }
    shapes.push(("model.norm.weight".to_string(), vec![hidden]));
    if !flag("tie_word_embeddings") {
        shapes.push(("lm_head.weight".to_string(), vec![vocab, hidden]));
    }
    let mut state = seed;
    shapes.into_iter().map(|(name, shape)| random_tensor(name, shape, &mut state)).collect()
}

/// bf16 noise; gains around 1.
fn random_tensor(name: String, shape: Vec<usize>, seed: &mut u64) -> Tensor {
    let gain = name.ends_with("norm.weight");
    let scale = if shape.len() == 1 { 0.1 } else { (3.0 / shape[1] as f32).sqrt() };
    let mut value = || half::bf16::from_f32(noise(seed, scale) + if gain { 1.0 } else { 0.0 });
    let data = (0..shape.iter().product()).flat_map(|_| value().to_le_bytes()).collect();
    Tensor { name, dtype: "BF16", shape, data }
}

/// Writes `config.json` and `model.safetensors` into `dir`, which is made if absent.
///
/// # Errors
/// When a file cannot be written.
pub fn write_checkpoint(dir: &Path, config: &Value, tensors: &[Tensor]) -> Result<(), FrontendError> {
    let io = |source| FrontendError::Io { path: dir.to_path_buf(), action: "write to", source };
    std::fs::create_dir_all(dir).map_err(io)?;
    std::fs::write(dir.join("config.json"), config.to_string()).map_err(io)?;
    std::fs::write(dir.join("model.safetensors"), safetensors(tensors)).map_err(io)
}
