//! Checkpoints of a `config.json` alone: tensors of which names, shapes and types are known, and no number.
//!
//! An architecture says which tensors it reads. Where `quantization_config` says that a method has quantized
//! matrices, the tensors that the method has in their place are made ([`forms`]), and read as those of any
//! checkpoint. Their bytes are zeros that take no memory; scales of whole matrices are 1.

mod forms;
mod modules;
mod rules;
mod tensors;

use super::consolidated::{Described, PARAMS};
use super::load::{self, CONFIG, PICKLES};
use super::opened::Checkpoint;
use super::quantized::{self, Tensors, Wrong};
use super::safetensors::{StoredType, stored_type};
use super::shard::Shard;
use super::stored::Entry;
use super::wanted::Wanted;
use crate::config::parts;
use crate::error::FrontendError;
use memmap2::{Mmap, MmapMut, MmapOptions};
use rules::Rules;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use tensors::Blanks;

/// Pages of zeros, as many as one asks for.
const ZEROS: &str = "/dev/zero";
/// Most tensors: ten times the number in the largest models.
const MOST: usize = 10_000_000;

/// The `config.json` of a folder that holds no tensors; `None` where there are some, or no such file.
pub(crate) fn config(path: &Path) -> Result<Option<Value>, FrontendError> {
    let holds = |name: &str| [".safetensors", ".gguf"].iter().chain(&PICKLES).any(|end| name.ends_with(end));
    if !path.is_dir() || path.join(PARAMS).exists() {
        return Ok(None);
    }
    let io = |source| FrontendError::Io { path: path.to_path_buf(), action: "list", source };
    let mut names = std::fs::read_dir(path).map_err(io)?.flatten().map(|e| e.file_name());
    if names.any(|name| holds(&name.to_string_lossy())) {
        return Ok(None);
    }
    load::read_config(path)
}

/// The configuration of the same model with matrices of floats.
pub(crate) fn unquantized(config: &Value) -> Value {
    let mut plain = config.clone();
    parts::quantized(&mut plain, |of| drop(of.remove(quantized::SETTINGS)));
    plain
}

/// Whether a method has quantized the experts one by one.
pub(crate) fn by_expert(config: &Value) -> bool {
    quantized::settings_of(config).is_some_and(|said| said.get("quant_method").and_then(Value::as_str) != Some("mxfp4"))
}

/// The checkpoint in folder `dir` that has these tensors.
///
/// # Errors
/// Its quantization is one whose tensors do not follow from the settings, or does not fit the matrices.
pub(crate) fn checkpoint(dir: &Path, mut config: Value, wanted: Vec<Wanted>) -> Result<Checkpoint, FrontendError> {
    let config_path = dir.join(CONFIG);
    let (mut index, shards, note) = tensors(dir, &config, wanted).map_err(load::wrong(&config_path))?;
    let mut notes = vec![note];
    quantized::replace(&mut config, &mut Tensors { index: &mut index, shards: &shards, notes: &mut notes })
        .map_err(load::wrong(&config_path))?;
    let sources = vec![config_path.clone()];
    Ok(load::assembled(dir, config_path, Described { config, index, notes }, sources, shards))
}

type Made = (BTreeMap<String, Entry>, Vec<Shard>, String);

/// All tensors, as files would have them, and a note about them.
fn tensors(dir: &Path, config: &Value, wanted: Vec<Wanted>) -> Result<Made, Wrong> {
    let rules = Rules::of(config)?;
    let float = float_type(config);
    let mut all = Blanks::default();
    let count = wanted.len();
    for tensor in wanted {
        let form = rules.form(&tensor);
        form.add(&mut all, tensor, float)?;
        if all.index.len() > MOST {
            return Err((format!("the model has more than {MOST} tensors"), "check the sizes in config.json"));
        }
    }
    let note = format!(
        "there is config.json alone: {count} tensors of the architecture are assumed, {} unless they are quantized, \
         under the architecture's names",
        float.name
    );
    let Blanks { index, bytes, known } = all;
    let path = dir.join(CONFIG);
    let no_memory = |e: std::io::Error| (format!("cannot map {bytes} bytes of zeros: {e}"), "give the tensors' files");
    let zeros = zeros(bytes.max(1)).map_err(no_memory)?;
    let known = constants(&known).map_err(no_memory)?;
    let shard = |map, blank| Shard { path: path.clone(), map, file: None, blank };
    let shards = vec![shard(zeros, true), shard(known, false)];
    Ok((index, shards, note))
}

/// The type of floats that a configuration gives; bf16 where it gives none.
fn float_type(config: &Value) -> &'static StoredType {
    let mut objects = std::iter::once(config).chain(parts::PARTS.iter().filter_map(|part| config.get(*part)));
    let said = objects.find_map(|of| ["dtype", "torch_dtype"].iter().find_map(|name| of.get(*name)?.as_str()));
    let name = match said.map(|t| t.trim_start_matches("torch.")) {
        Some("float32" | "float") => "F32",
        Some("float16" | "half") => "F16",
        _ => "BF16",
    };
    stored_type(name).unwrap_or(&quantized::COMPUTED)
}

/// A mapping of zeros.
fn zeros(bytes: usize) -> std::io::Result<Mmap> {
    let file = File::open(ZEROS)?;
    // SAFETY: the mapping is private, and nobody can change the device's contents.
    unsafe { MmapOptions::new().len(bytes).map(&file) }
}

/// A mapping of these bytes.
fn constants(bytes: &[u8]) -> std::io::Result<Mmap> {
    let mut map = MmapMut::map_anon(bytes.len().max(1))?;
    map.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    map.make_read_only()
}
