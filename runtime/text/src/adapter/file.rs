//! The files of an adapter, read without trusting them.

use super::settings::Settings;
use super::wrong::AGAIN;
use crate::{Error, Kind, Result};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The file with the settings.
const CONFIG: &str = "adapter_config.json";
/// The file with the tensors.
const TENSORS: &str = "adapter_model.safetensors";
/// PEFT's prefix of the names of the base's modules.
const PREFIX: &str = "base_model.model.";
/// Longest file of settings.
const MAX_CONFIG: u64 = 16 << 20;
/// Longest file of tensors.
const MAX_TENSORS: u64 = 16 << 30;
/// Longest header of such a file.
const MAX_HEADER: u64 = 100_000_000;

/// An adapter's additions to the base: `B·A` for each module that it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// By the base's names of modules.
    pub modules: BTreeMap<String, AdaptedModule>,
}

/// AdaptedModule of a module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdaptedModule {
    /// Rank.
    pub rank: usize,
    /// Columns of `A`.
    pub inputs: usize,
    /// Rows of `B`.
    pub outputs: usize,
    /// `[rank, inputs]`
    pub a: Vec<f32>,
    /// `[outputs, rank]`, times the scale of the module.
    pub b: Vec<f32>,
}

/// A tensor of the file.
#[derive(Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

/// A matrix of the file.
struct FloatMatrix {
    rows: usize,
    cols: usize,
    data: Vec<f32>,
}

impl Adapter {
    /// Reads the adapter in a folder that PEFT saved, or its file of tensors with that of the settings
    /// beside it.
    ///
    /// # Errors
    /// A file is missing, malformed, or of an adapter that can only be merged.
    pub fn open(path: &Path) -> Result<Adapter> {
        let dir = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
        let tensors = if path.is_dir() { path.join(TENSORS) } else { path.to_path_buf() };
        if path.is_dir() && !tensors.exists() && dir.join("adapter_model.bin").exists() {
            return Err(wrong(dir, "holds its tensors as adapter_model.bin", "save it as safetensors with PEFT"));
        }
        if !path.exists() {
            return Err(wrong(path, "does not exist", "give the folder of an adapter that PEFT saved"));
        }
        let config_path = dir.join(CONFIG);
        let config = read(&config_path, MAX_CONFIG)?;
        let config: Value =
            serde_json::from_slice(&config).map_err(|e| wrong(&config_path, format!("is not JSON: {e}"), AGAIN))?;
        let settings = Settings::parse(&config).map_err(|(what, help)| wrong(&config_path, what, help))?;
        if let Some(why) = settings.only_merged() {
            let help = "merge it into the weights: `llmcc compile --lora`";
            return Err(wrong(&config_path, why, help));
        }
        let file = read(&tensors, MAX_TENSORS)?;
        Adapter::parse(&file, &settings).map_err(|(what, help)| wrong(&tensors, what, help))
    }

    /// The modules in a file of tensors.
    ///
    /// # Errors
    /// See [`Adapter::open`].
    pub fn parse(file: &[u8], settings: &Settings) -> std::result::Result<Adapter, (String, &'static str)> {
        let mut parts: BTreeMap<String, [Option<FloatMatrix>; 2]> = BTreeMap::new();
        let (header, data) = header(file)?;
        for (full, tensor) in header {
            let (module, which) = place(&full)?;
            let part = &mut parts.entry(module).or_default()[which];
            *part = Some(matrix(&full, &tensor, data)?);
        }
        let mut modules = BTreeMap::new();
        for (module, factors) in parts {
            let [Some(a), Some(b)] = factors else {
                return Err((format!("module `{module}` has only one of its two factors"), AGAIN));
            };
            if a.rows != b.cols {
                let (a, b) = ([a.rows, a.cols], [b.rows, b.cols]);
                return Err((format!("module `{module}`: factors {b:?} and {a:?} have no product"), AGAIN));
            }
            settings.targets.check(&module)?;
            let scale = settings.scale(&module, a.rows)?;
            let b_data = b.data.iter().map(|x| x * scale).collect();
            let factors = AdaptedModule { rank: a.rows, inputs: a.cols, outputs: b.rows, a: a.data, b: b_data };
            modules.insert(module, factors);
        }
        if modules.is_empty() {
            return Err(("holds no factors".into(), AGAIN));
        }
        Ok(Adapter { modules })
    }
}

/// The module of a tensor, and which of its factors it is.
fn place(full: &str) -> std::result::Result<(String, usize), (String, &'static str)> {
    const MERGE: &str = "merge the adapter into the weights: `llmcc compile --lora`";
    let Some(name) = full.strip_prefix(PREFIX) else {
        return Err((format!("tensor `{full}` does not begin with `{PREFIX}`"), "save the adapter with PEFT"));
    };
    let stem = name.strip_suffix(".weight").unwrap_or(name);
    if let Some(module) = stem.strip_suffix(".lora_A") {
        return Ok((module.to_string(), 0));
    }
    if let Some(module) = stem.strip_suffix(".lora_B") {
        return Ok((module.to_string(), 1));
    }
    if name.contains("lora_embedding_") {
        return Err((
            format!("tensor `{full}` changes an embedding table, which adapters loaded at run time cannot"),
            MERGE,
        ));
    }
    if name.contains("lora_") {
        return Err((format!("tensor `{full}` is not a factor of LoRA"), MERGE));
    }
    Err((format!("tensor `{full}` replaces one of the base (`modules_to_save` or `bias`)"), MERGE))
}

type Header = BTreeMap<String, TensorEntry>;

/// Tensors of a safetensors file, and the bytes that their offsets count in.
fn header(file: &[u8]) -> std::result::Result<(Header, &[u8]), (String, &'static str)> {
    let short = || ("is not a safetensors file, or was cut short".to_string(), AGAIN);
    let (len, rest) = file.split_first_chunk::<8>().ok_or_else(short)?;
    let len = u64::from_le_bytes(*len);
    if len > MAX_HEADER || len > rest.len() as u64 {
        return Err(short());
    }
    let (json, data) = rest.split_at(len as usize);
    let all: BTreeMap<String, Value> =
        serde_json::from_slice(json).map_err(|e| (format!("its header is not valid: {e}"), AGAIN))?;
    let tensors = all.into_iter().filter(|(name, _)| name != "__metadata__").map(|(name, value)| {
        let tensor = TensorEntry::deserialize(value).map_err(|e| (format!("tensor `{name}`: {e}"), AGAIN))?;
        Ok((name, tensor))
    });
    Ok((tensors.collect::<std::result::Result<Header, _>>()?, data))
}

/// The numbers of a tensor, which is a matrix of floats.
fn matrix(name: &str, t: &TensorEntry, data: &[u8]) -> std::result::Result<FloatMatrix, (String, &'static str)> {
    let [rows, cols] = t.shape[..] else {
        return Err((format!("tensor `{name}` has shape {:?}, which is not a matrix", t.shape), AGAIN));
    };
    let width = match t.dtype.as_str() {
        "F32" => 4,
        "F16" | "BF16" => 2,
        other => return Err((format!("tensor `{name}` is stored as {other}"), "save it as F32, F16 or BF16")),
    };
    let [from, to] = t.data_offsets;
    let bytes = rows.checked_mul(cols).and_then(|n| n.checked_mul(width)).filter(|n| *n > 0);
    let found = data.get(from..to).filter(|found| Some(found.len()) == bytes);
    let found = found.ok_or_else(|| {
        (format!("tensor `{name}`: {:?} of {} does not fit its bytes {from}..{to}", t.shape, t.dtype), AGAIN)
    })?;
    let half = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
    let data: Vec<f32> = match t.dtype.as_str() {
        "F32" => found.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        "F16" => found.chunks_exact(2).map(|b| f16(half(b))).collect(),
        _ => found.chunks_exact(2).map(|b| f32::from_bits(u32::from(half(b)) << 16)).collect(),
    };
    match data.iter().position(|x| !x.is_finite()) {
        Some(at) => Err((
            format!("tensor `{name}` has {} in row {}, column {}", data[at], at / cols, at % cols),
            "train the adapter again: such a number makes every result NaN",
        )),
        None => Ok(FloatMatrix { rows, cols, data }),
    }
}

/// The number that an f16 is.
fn f16(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (u32::from(bits >> 15) << 31, bits >> 10 & 31, u32::from(bits & 1023));
    match exponent {
        // 2⁻²⁴ is the smallest f16.
        0 => f32::from_bits((fraction as f32 / 16_777_216.0).to_bits() | sign),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (u32::from(exponent) + 112) << 23 | fraction << 13),
    }
}

/// A regular file of up to `most` bytes.
fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| {
        let help = "give the folder of an adapter that PEFT saved, or its adapter_model.safetensors";
        wrong(path, format!("cannot be read: {e}"), help)
    };
    let meta = std::fs::metadata(path).map_err(failed)?;
    if !meta.is_file() || meta.len() > most {
        return Err(wrong(path, format!("is not a regular file of at most {most} bytes"), AGAIN));
    }
    let mut bytes = vec![];
    std::fs::File::open(path).and_then(|f| f.take(most).read_to_end(&mut bytes)).map_err(failed)?;
    Ok(bytes)
}

fn wrong(path: &Path, what: impl std::fmt::Display, help: &str) -> Error {
    let path: PathBuf = path.to_path_buf();
    Error::new(Kind::Invalid, format!("the adapter {}: {what}; {help}", path.display()))
}
