//! Finding and opening the files of a checkpoint.

use super::gguf::{self, model};
use super::quantized::{self, Tensors};
use super::safetensors::{self, TensorInfo};
use super::shard::Shard;
use super::stored::Entry;
use super::{Checkpoint, file_name};
use crate::embedding;
use crate::error::FrontendError;
use crate::input;
use memmap2::{Advice, Mmap};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const CONVERT: &str = "convert it to safetensors (for example with Transformers' `save_pretrained`)";

pub(super) fn open(path: &Path) -> Result<Checkpoint, FrontendError> {
    let meta = std::fs::metadata(path).map_err(|source| io(path, "open", source))?;
    let dir = if meta.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let tensors = if meta.is_dir() { find_tensors(path)? } else { path.to_path_buf() };
    if is_gguf(&tensors) {
        return open_gguf(&tensors);
    }
    let by_index = tensors.extension().is_some_and(|e| e == "json");
    if by_index && !file_name(&tensors).ends_with("index.json") {
        let folder = if dir == Path::new("") { Path::new(".") } else { dir };
        return Err(FrontendError::NotACheckpoint {
            path: path.to_path_buf(),
            what: "a folder or a .safetensors file is expected".into(),
            help: format!("give the folder, `{}`", folder.display()).into(),
        });
    }
    let (mut shards, mut index) = if by_index {
        open_index(dir, &tensors)?
    } else {
        let (shard, tensors) = open_shard(&tensors)?;
        (vec![shard], tensors.into_iter().map(|(name, t)| (name, Entry::plain(0, t))).collect())
    };
    if meta.is_dir() {
        open_modules(dir, &mut shards, &mut index)?;
    }
    let config_path = dir.join("config.json");
    let mut config = input::read_json(&config_path)?.ok_or_else(|| FrontendError::NotACheckpoint {
        path: config_path.clone(),
        what: "the file is missing".into(),
        help: "a checkpoint needs its config.json beside the tensors; download it too".into(),
    })?;
    let mut notes = vec![];
    let mut of_method = Tensors { index: &mut index, shards: &shards, notes: &mut notes };
    quantized::replace(&mut config, &mut of_method).map_err(|(what, help)| FrontendError::NotACheckpoint {
        path: path.to_path_buf(),
        what,
        help: help.into(),
    })?;
    let mut sources = vec![config_path.clone()];
    sources.extend(by_index.then_some(tensors));
    sources.extend(shards.iter().map(|s: &Shard| s.path.clone()));
    Ok(Checkpoint { dir: dir.to_path_buf(), config_path, config, sources, shards, index, metadata: None, notes })
}

/// Adds the tensors of what sentence-transformers' list of modules has beside the model: their names
/// begin with the folder of their module.
fn open_modules(dir: &Path, shards: &mut Vec<Shard>, index: &mut BTreeMap<String, Entry>) -> Result<(), FrontendError> {
    let Some(list) = input::read_json(&dir.join(embedding::LIST))? else { return Ok(()) };
    for folder in embedding::folders(&list) {
        let path = dir.join(folder).join(SINGLE);
        if path.symlink_metadata().is_ok() {
            let (shard, tensors) = open_shard(&path)?;
            let named = |(name, t)| (format!("{folder}/{name}"), Entry::plain(shards.len(), t));
            index.extend(tensors.into_iter().map(named));
            shards.push(shard);
        }
    }
    Ok(())
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
    let ggufs: Vec<&String> = names.iter().filter(|n| n.ends_with(".gguf")).collect();
    // Of a model in several parts the first.
    let parts = |n: &String| n.contains("-of-") && !n.contains("-00001-of-");
    let models: Vec<&String> = ggufs.iter().copied().filter(|n| !parts(n)).collect();
    if let [only] = models[..] {
        return Ok(dir.join(only));
    }
    let (what, help) = if let [first, .., last] = ggufs[..] {
        (format!("holds {} GGUF files, `{first}` to `{last}`", ggufs.len()), "name the one that is meant")
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
    let map = map(path)?;
    if let Some(what) = foreign_format(&map) {
        return Err(FrontendError::NotACheckpoint { path: path.to_path_buf(), what, help: CONVERT.into() });
    }
    let tensors =
        safetensors::parse(&map).map_err(|source| FrontendError::Safetensors { path: path.to_path_buf(), source })?;
    Ok((Shard { path: path.to_path_buf(), map }, tensors))
}

/// Whether a file says in its first bytes, or its name, that it is a GGUF file.
fn is_gguf(path: &Path) -> bool {
    let mut first = [0; 4];
    let read = input::open(path).and_then(|mut f| f.read_exact(&mut first).map_err(|source| io(path, "read", source)));
    path.extension().is_some_and(|e| e == "gguf") || read.is_ok() && first == *b"GGUF"
}

/// Maps one file, whose tensors are read front to back.
fn map(path: &Path) -> Result<Mmap, FrontendError> {
    let file = input::open(path)?;
    // SAFETY: the mapping is private and read-only; that nobody truncates the file meanwhile is the
    // documented condition of `Checkpoint`.
    let map = unsafe { Mmap::map(&file) }.map_err(|source| io(path, "map", source))?;
    // Packing walks each tensor once. Only a hint, so failure is harmless.
    let _ = map.advise(Advice::Sequential);
    Ok(map)
}

/// Opens a GGUF file, and those that it is split into.
fn open_gguf(path: &Path) -> Result<Checkpoint, FrontendError> {
    let dir = path.parent().unwrap_or(Path::new(""));
    let wrong = |(what, help): (String, &'static str)| FrontendError::NotACheckpoint {
        path: path.to_path_buf(),
        what,
        help: help.into(),
    };
    let (mut shards, mut tensors) = (vec![], BTreeMap::new());
    let (first, header) = open_part(path)?;
    let mut metadata = header.metadata.clone();
    let parts = model::parts(&header, &file_name(path)).map_err(wrong)?;
    let mut read = Some((first, header));
    for name in &parts {
        let (shard, header) = match read.take() {
            Some(first) => first,
            None => open_part(&dir.join(name))?,
        };
        for (tensor, info) in header.tensors {
            if tensors.insert(tensor.clone(), (shards.len(), info)).is_some() {
                let again = "download the model again, all parts of one revision";
                return Err(wrong((format!("tensor `{tensor}` is in several of its parts"), again)));
            }
        }
        metadata.extend(header.metadata.into_iter().filter(|(key, _)| key.starts_with("tokenizer.")));
        shards.push(shard);
    }
    let bytes = |shard: usize, info: &TensorInfo| -> Vec<u8> {
        let file = shards.get(shard).and_then(|s: &Shard| s.map.get(info.bytes.clone()));
        file.unwrap_or_default().to_vec()
    };
    let model = model::describe(&metadata, tensors, &bytes).map_err(wrong)?;
    Ok(Checkpoint {
        dir: dir.to_path_buf(),
        config_path: path.to_path_buf(),
        config: model.config,
        sources: shards.iter().map(|s| s.path.clone()).collect(),
        index: model.tensors,
        shards,
        metadata: Some(metadata),
        notes: vec![],
    })
}

/// Maps a GGUF file and reads its header.
fn open_part(path: &Path) -> Result<(Shard, gguf::Header), FrontendError> {
    let map = map(path)?;
    let header = gguf::parse(&map).map_err(|source| FrontendError::Gguf { path: path.to_path_buf(), source })?;
    Ok((Shard { path: path.to_path_buf(), map }, header))
}

/// Names other formats by their first bytes.
fn foreign_format(file: &[u8]) -> Option<String> {
    if file.starts_with(b"PK\x03\x04") || file.starts_with(b"\x80\x02") {
        return Some("this is a PyTorch pickle, not a safetensors file".into());
    }
    if file.starts_with(b"version https://git-lfs") {
        return Some("this is a Git LFS pointer, not the file itself (run `git lfs pull`)".into());
    }
    None
}

type Shards = (Vec<Shard>, BTreeMap<String, Entry>);

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
            if let Some(other) = index.insert(name.clone(), Entry::plain(shards.len(), info)) {
                let other: &Shard = &shards[other.shard];
                return Err(bad(format!("tensor `{name}` is both in `{}` and in `{file}`", file_name(&other.path))));
            }
        }
        shards.push(shard);
    }
    Ok((shards, index))
}
