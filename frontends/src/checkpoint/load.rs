//! Finding and opening the files of a checkpoint.

use super::safetensors::{self, TensorInfo};
use super::{Checkpoint, Shard, file_name};
use crate::error::FrontendError;
use crate::input;
use memmap2::{Advice, Mmap};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const GGUF: &str = "GGUF checkpoints are not supported yet";
const CONVERT: &str = "convert it to safetensors (for example with Transformers' `save_pretrained`)";

pub(super) fn open(path: &Path) -> Result<Checkpoint, FrontendError> {
    let meta = std::fs::metadata(path).map_err(|source| io(path, "open", source))?;
    let dir = if meta.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let tensors = if meta.is_dir() { find_tensors(path)? } else { path.to_path_buf() };
    let by_index = tensors.extension().is_some_and(|e| e == "json");
    if by_index && !file_name(&tensors).ends_with("index.json") {
        let folder = if dir == Path::new("") { Path::new(".") } else { dir };
        return Err(FrontendError::NotACheckpoint {
            path: path.to_path_buf(),
            what: "a folder or a .safetensors file is expected".into(),
            help: format!("give the folder, `{}`", folder.display()).into(),
        });
    }
    let (shards, index) = if by_index {
        open_index(dir, &tensors)?
    } else {
        let (shard, tensors) = open_shard(&tensors)?;
        (vec![shard], tensors.into_iter().map(|(name, t)| (name, (0, t))).collect())
    };
    let config_path = dir.join("config.json");
    let config = input::read_json(&config_path)?.ok_or_else(|| FrontendError::NotACheckpoint {
        path: config_path.clone(),
        what: "the file is missing".into(),
        help: "a checkpoint needs its config.json beside the tensors; download it too".into(),
    })?;
    let mut sources = vec![config_path.clone()];
    sources.extend(by_index.then_some(tensors));
    sources.extend(shards.iter().map(|s: &Shard| s.path.clone()));
    Ok(Checkpoint { dir: dir.to_path_buf(), config_path, config, sources, shards, index })
}

fn io(path: &Path, action: &'static str, source: std::io::Error) -> FrontendError {
    FrontendError::Io { path: path.to_path_buf(), action, source }
}

/// The file with the tensors, or their index, in a folder.
fn find_tensors(dir: &Path) -> Result<PathBuf, FrontendError> {
    for name in [SINGLE, INDEX] {
        let path = dir.join(name);
        // Whatever it is: if it is no file, opening it says what it is.
        if path.symlink_metadata().is_ok() {
            return Ok(path);
        }
    }
    let entries = std::fs::read_dir(dir).map_err(|source| io(dir, "list", source))?;
    let names: BTreeSet<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    let ending = |end: &[&str]| names.iter().find(|n| end.iter().any(|e| n.ends_with(e)));
    let (what, help) = if let Some(found) = ending(&[".gguf"]) {
        (format!("holds `{found}`; {GGUF}"), CONVERT)
    } else if let Some(found) = ending(&[".bin", ".pth", ".pt", ".ckpt"]) {
        (format!("holds `{found}`, a PyTorch pickle, but no {SINGLE}"), CONVERT)
    } else if let Some(found) = ending(&[".safetensors"]) {
        (format!("holds `{found}`, but neither {SINGLE} nor {INDEX}"), "name the file itself, or add the index")
    } else {
        (format!("holds neither {SINGLE} nor {INDEX}"), "give the folder of a Hugging Face checkpoint")
    };
    Err(FrontendError::NotACheckpoint { path: dir.to_path_buf(), what, help: help.into() })
}

/// Maps one file and reads its header.
fn open_shard(path: &Path) -> Result<(Shard, BTreeMap<String, TensorInfo>), FrontendError> {
    let file = input::open(path)?;
    // SAFETY: the mapping is private and read-only; that nobody truncates the file meanwhile is the
    // documented condition of `Checkpoint`.
    let map = unsafe { Mmap::map(&file) }.map_err(|source| io(path, "map", source))?;
    if let Some(what) = foreign_format(&map) {
        return Err(FrontendError::NotACheckpoint { path: path.to_path_buf(), what, help: CONVERT.into() });
    }
    let tensors =
        safetensors::parse(&map).map_err(|source| FrontendError::Safetensors { path: path.to_path_buf(), source })?;
    // Packing walks each tensor once, front to back. Only a hint, so failure is harmless.
    let _ = map.advise(Advice::Sequential);
    Ok((Shard { path: path.to_path_buf(), map }, tensors))
}

/// Names other formats by their first bytes.
fn foreign_format(file: &[u8]) -> Option<String> {
    if file.starts_with(b"GGUF") {
        return Some(format!("this is a GGUF file; {GGUF}"));
    }
    if file.starts_with(b"PK\x03\x04") || file.starts_with(b"\x80\x02") {
        return Some("this is a PyTorch pickle, not a safetensors file".into());
    }
    if file.starts_with(b"version https://git-lfs") {
        return Some("this is a Git LFS pointer, not the file itself (run `git lfs pull`)".into());
    }
    None
}

type Shards = (Vec<Shard>, BTreeMap<String, (usize, TensorInfo)>);

/// Opens the shards named by an index and checks that the index and the shards agree.
fn open_index(dir: &Path, path: &Path) -> Result<Shards, FrontendError> {
    let bad = |what: String| FrontendError::Index { path: path.to_path_buf(), what };
    let index = input::read_json(path)?.ok_or_else(|| bad("the file vanished".into()))?;
    let map =
        index.get("weight_map").and_then(Value::as_object).ok_or_else(|| bad("`weight_map` is missing".into()))?;
    let mut wanted: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, file) in map {
        let file = file.as_str().ok_or_else(|| bad(format!("the file of tensor `{tensor}` is not a string")))?;
        // An index comes from a stranger: it may name files of its own folder only.
        if Path::new(file).file_name().is_none_or(|n| n != file) || !file.ends_with(".safetensors") {
            return Err(bad(format!(
                "tensor `{tensor}` is said to be in `{file}`, which is not a .safetensors file of this folder"
            )));
        }
        wanted.entry(file).or_default().push(tensor);
    }
    if wanted.is_empty() {
        return Err(bad("`weight_map` is empty".into()));
    }
    let (mut shards, mut index) = (vec![], BTreeMap::new());
    for (file, names) in wanted {
        let shard_path = dir.join(file);
        if shard_path.symlink_metadata().is_err() {
            return Err(bad(format!("shard `{file}` is missing")));
        }
        let (shard, tensors) = open_shard(&shard_path)?;
        if let Some(name) = names.iter().find(|n| !tensors.contains_key(**n)) {
            return Err(bad(format!("tensor `{name}` is not in `{file}`, where the index puts it")));
        }
        for (name, info) in tensors {
            if let Some((other, _)) = index.insert(name.clone(), (shards.len(), info)) {
                let other: &Shard = &shards[other];
                return Err(bad(format!("tensor `{name}` is both in `{}` and in `{file}`", file_name(&other.path))));
            }
        }
        shards.push(shard);
    }
    Ok((shards, index))
}
