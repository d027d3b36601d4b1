//! Writing small checkpoints, for tests and demonstrations.

use crate::arch::Model;
use crate::checkpoint::{Wanted, WantedRole};
use crate::error::FrontendError;
use serde_json::{Map, Value, json};
use std::io::Write;
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

/// Random bf16 tensors: those that a model with this `config.json` asks for.
///
/// # Panics
/// When there is no such model.
pub fn random_tensors(config: &Value, seed: u64) -> Vec<Tensor> {
    let model = Model::parse(config).unwrap_or_else(|e| panic!("{e}"));
    let (_, wanted) = model.imagined().unwrap_or_else(|e| panic!("{e}"));
    let mut state = seed;
    wanted.into_iter().map(|w| random_tensor(w, &mut state)).collect()
}

/// bf16 noise; gains around 1; numbers of columns, where those are wanted.
fn random_tensor(w: Wanted, seed: &mut u64) -> Tensor {
    if w.role == WantedRole::Numbers {
        let (all, columns) = (w.shape.iter().product::<usize>(), w.shape[1].max(1));
        let data = (0..all).flat_map(|i| ((i % columns) as i64).to_le_bytes()).collect();
        return Tensor { name: w.name, dtype: "I64", shape: w.shape, data };
    }
    let scale = if w.shape.len() == 1 { 0.1 } else { (3.0 / w.shape[1] as f32).sqrt() };
    let mut value = || half::bf16::from_f32(noise(seed, scale) + if w.role == WantedRole::Gain { 1.0 } else { 0.0 });
    let data = (0..w.shape.iter().product()).flat_map(|_| value().to_le_bytes()).collect();
    Tensor { name: w.name, dtype: "BF16", shape: w.shape, data }
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

/// Writes `config.json` and a `model.safetensors` with the names and shapes of the tensors that a model with it asks
/// for, in bf16: a sparse file, whose numbers are zeros and take no room.
///
/// # Errors
/// There is no such model; a file cannot be written.
pub fn write_sparse(dir: &Path, config: &Value) -> Result<(), FrontendError> {
    let io = |source| FrontendError::Io { path: dir.to_path_buf(), action: "write to", source };
    let wrong = |source| FrontendError::Config { path: dir.join("config.json"), source };
    let (_, wanted) = Model::parse(config).map_err(wrong)?.imagined()?;
    let (mut header, mut at) = (Map::new(), 0);
    for w in wanted {
        let (dtype, size) = if w.role == WantedRole::Numbers { ("I64", 8) } else { ("BF16", 2) };
        let end = at + size * w.shape.iter().product::<usize>();
        header.insert(w.name, json!({ "dtype": dtype, "shape": w.shape, "data_offsets": [at, end] }));
        at = end;
    }
    let start = with_header(&Value::Object(header).to_string(), 0);
    std::fs::create_dir_all(dir).map_err(io)?;
    std::fs::write(dir.join("config.json"), config.to_string()).map_err(io)?;
    let file = std::fs::File::create(dir.join("model.safetensors")).map_err(io)?;
    (&file).write_all(&start).map_err(io)?;
    file.set_len((start.len() + at) as u64).map_err(io)
}
