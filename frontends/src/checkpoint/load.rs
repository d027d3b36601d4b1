//! Finding and opening the files of a checkpoint.

use super::consolidated::{self, Described};
use super::gguf::{self, Declares, model, parts};
use super::quantized::{self, Tensors, Wrong};
use super::safetensors::{self, TensorInfo};
use super::shard::Shard;
use super::stored::Entry;
use super::views::View;
use super::{Checkpoint, file_name, llama2c, pytorch, rwkv_cpp};
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
const PYTORCH: &str = "pytorch_model.bin";
pub(super) const CONFIG: &str = "config.json";
/// The first of Meta's and Mistral's own files.
const CONSOLIDATED: [&str; 2] = ["consolidated.00.pth", "consolidated.safetensors"];
/// Files that hold tensors, in the order in which Transformers prefers them.
const FILES: &[&str] = &[
    SINGLE,
    INDEX,
    PYTORCH,
    "pytorch_model.bin.index.json",
    CONSOLIDATED[0],
    CONSOLIDATED[1],
    "original/consolidated.00.pth",
];
/// Endings of the names of PyTorch's files.
pub(super) const PICKLES: [&str; 4] = [".bin", ".pth", ".pt", ".ckpt"];
/// Trainers' files beside a model, some in PyTorch's format too.
const OF_TRAINERS: &[&str] = &["training_args.bin", "optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt"];
const CONVERT: &str = "convert it to safetensors (for example with Transformers' `save_pretrained`)";

type Views = BTreeMap<String, View>;

/// Files that were opened, and the tensors of each.
#[derive(Default)]
pub(super) struct Opened {
    /// How many were open before.
    pub first: usize,
    pub shards: Vec<Shard>,
    pub tensors: Vec<Views>,
    pub notes: Vec<String>,
}

pub(super) fn open(path: &Path, declares: Declares) -> Result<Checkpoint, FrontendError> {
    let meta = std::fs::metadata(path).map_err(|source| io(path, "open", source))?;
    let tensors = if meta.is_dir() { find_tensors(path)? } else { path.to_path_buf() };
    let dir = tensors.parent().unwrap_or(Path::new(""));
    if is_gguf(&tensors) {
        return open_gguf(&tensors, declares);
    }
    let by_index = tensors.extension().is_some_and(|e| e == "json");
    if by_index && !file_name(&tensors).ends_with("index.json") {
        let folder = if dir == Path::new("") { Path::new(".") } else { dir };
        return Err(FrontendError::NotACheckpoint {
            path: path.to_path_buf(),
            what: "it is neither a folder nor a file of tensors".into(),
            help: format!("give the folder, `{}`", folder.display()).into(),
        });
    }
    let mut opened = Opened::default();
    if by_index {
        open_index(dir, &tensors, &mut opened)?;
    } else if let Some(checkpoint) = open_whole(dir, &tensors)? {
        return Ok(checkpoint);
    } else {
        slices(dir, &tensors)?.iter().try_for_each(|file| open_shard(file, &mut opened))?;
    }
    let Some(mut config) = read_config(dir)? else {
        return without_config(dir, &tensors, opened);
    };
    let Opened { mut shards, tensors: views, mut notes, .. } = opened;
    let mut index: BTreeMap<String, Entry> =
        views.into_iter().flatten().map(|(name, view)| (name, view.entry())).collect();
    if meta.is_dir() {
        open_modules(dir, &mut shards, &mut index)?;
    }
    let mut of_method = Tensors { index: &mut index, shards: &shards, notes: &mut notes };
    quantized::replace(&mut config, &mut of_method).map_err(wrong(path))?;
    let config_path = dir.join(CONFIG);
    let mut sources = vec![config_path.clone()];
    sources.extend(by_index.then(|| tensors.clone()));
    sources.extend(shards.iter().map(|s: &Shard| s.path.clone()));
    Ok(assembled(dir, config_path, Described { config, index, notes }, sources, shards))
}

/// The configuration in a folder, with ModelOpt's settings in the file beside it; `None` where there is none.
pub(super) fn read_config(dir: &Path) -> Result<Option<Value>, FrontendError> {
    let Some(mut config) = input::read_json(&dir.join(CONFIG))? else { return Ok(None) };
    if let Some(said) = input::read_json(&dir.join(quantized::MODELOPT))? {
        quantized::declare(&mut config, &said);
    }
    Ok(Some(config))
}

/// A checkpoint of these files, which have no other metadata.
pub(super) fn assembled(
    dir: &Path,
    config_path: PathBuf,
    Described { config, index, notes }: Described,
    sources: Vec<PathBuf>,
    shards: Vec<Shard>,
) -> Checkpoint {
    let dir = dir.to_path_buf();
    Checkpoint { dir, config_path, config, sources, shards, index, metadata: None, modules: None, draft: None, notes }
}

/// An error with the file's path.
pub(super) fn wrong(path: &Path) -> impl Fn(Wrong) -> FrontendError {
    let path = path.to_path_buf();
    move |(what, help)| FrontendError::NotACheckpoint { path: path.clone(), what, help: help.into() }
}

/// A model whose sizes stand in `params.json`.
fn without_config(dir: &Path, tensors: &Path, opened: Opened) -> Result<Checkpoint, FrontendError> {
    let config_path = dir.join(consolidated::PARAMS);
    let Some(params) = input::read_json(&config_path)? else {
        return Err(FrontendError::NotACheckpoint {
            path: dir.join(CONFIG),
            what: "the file is missing".into(),
            help: match CONSOLIDATED.iter().any(|name| tensors.ends_with(name)) {
                true => "Llama's own files need params.json beside them; download it, too".into(),
                false => "a checkpoint needs config.json beside the tensors; download it, too".into(),
            },
        });
    };
    let Opened { shards, tensors, mut notes, .. } = opened;
    let model = consolidated::describe(&params, tensors, BTreeMap::new()).map_err(wrong(&config_path))?;
    notes.extend(model.notes);
    let sources = std::iter::once(config_path.clone()).chain(shards.iter().map(|s| s.path.clone())).collect();
    Ok(assembled(dir, config_path, Described { notes, ..model }, sources, shards))
}

/// A file that says all of a model: one of rwkv.cpp, or of llama2.c; `None` if it is none.
fn open_whole(dir: &Path, path: &Path) -> Result<Option<Checkpoint>, FrontendError> {
    let shard = map(path)?;
    let described = rwkv_cpp::describe(&shard.map, 0).or_else(|| of_llama2c(path, &shard.map));
    let described = described.transpose().map_err(wrong(path))?;
    let own = || path.to_path_buf();
    Ok(described.map(|model| assembled(dir, own(), model, vec![own()], vec![shard])))
}

/// The model of a file of llama2.c, which only its name tells from others.
fn of_llama2c(path: &Path, file: &[u8]) -> Option<Result<Described, Wrong>> {
    if path.extension().is_none_or(|e| e != "bin") || pytorch::is_pytorch(file) {
        return None;
    }
    llama2c::describe(file, 0)
}

/// All files that a model was cut into, given one.
fn slices(dir: &Path, file: &Path) -> Result<Vec<PathBuf>, FrontendError> {
    let number = |name: &str| {
        let digits = name.strip_prefix("consolidated.")?.strip_suffix(".pth")?;
        (digits.len() == 2).then(|| digits.parse::<usize>().ok()).flatten()
    };
    if number(&file_name(file)).is_none() {
        return Ok(vec![file.to_path_buf()]);
    }
    let folder = if dir == Path::new("") { Path::new(".") } else { dir };
    let entries = std::fs::read_dir(folder).map_err(|source| io(folder, "list", source))?;
    let numbers: BTreeSet<usize> = entries.flatten().filter_map(|e| number(&e.file_name().to_string_lossy())).collect();
    if let Some(gap) = (0..numbers.len()).find(|i| !numbers.contains(i)) {
        let what = format!("`consolidated.{gap:02}.pth` is missing among {} files", numbers.len() + 1);
        return Err(wrong(folder)((what, "download all files of the model")));
    }
    Ok(numbers.into_iter().map(|i| dir.join(format!("consolidated.{i:02}.pth"))).collect())
}

/// Adds the tensors of modules in sentence-transformers' list beside the model: their names begin
/// with the folder of their module.
pub(super) fn open_modules(
    dir: &Path,
    shards: &mut Vec<Shard>,
    index: &mut BTreeMap<String, Entry>,
) -> Result<(), FrontendError> {
    let Some(list) = input::read_json(&dir.join(embedding::LIST))? else { return Ok(()) };
    for folder in embedding::folders(&list) {
        let beside = |name: &&str| dir.join(folder).join(name).symlink_metadata().is_ok();
        let Some(name) = [SINGLE, OF_MODULE].into_iter().find(beside) else { continue };
        let mut opened = Opened { first: shards.len(), ..Opened::default() };
        open_shard(&dir.join(folder).join(name), &mut opened)?;
        let named = |(name, view): (String, View)| (format!("{folder}/{name}"), view.entry());
        index.extend(opened.tensors.into_iter().flatten().map(named));
        shards.append(&mut opened.shards);
    }
    Ok(())
}

/// Tensors of a module, as older versions write them.
const OF_MODULE: &str = "pytorch_model.bin";

pub(super) fn io(path: &Path, action: &'static str, source: std::io::Error) -> FrontendError {
    FrontendError::Io { path: path.to_path_buf(), action, source }
}

/// The file with the tensors, or their index, in a folder.
pub(super) fn find_tensors(dir: &Path) -> Result<PathBuf, FrontendError> {
    for name in FILES {
        let path = dir.join(name);
        // Any kind of path: if it is no file, opening it names its kind.
        if path.symlink_metadata().is_ok() {
            return Ok(path);
        }
    }
    let entries = std::fs::read_dir(dir).map_err(|source| io(dir, "list", source))?;
    let names: BTreeSet<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    let ending = |end: &[&str]| names.iter().find(|n| end.iter().any(|e| n.ends_with(e)));
    // Not the image part, nor the importance matrix, which lie beside models.
    let beside = |n: &str| ["mmproj", "imatrix"].iter().any(|word| n.to_lowercase().contains(word));
    let gguf = |n: &&String| n.ends_with(".gguf");
    let models = || names.iter().filter(gguf).filter(|n| !beside(n));
    let ggufs: Vec<&String> =
        if models().next().is_some() { models().collect() } else { names.iter().filter(gguf).collect() };
    // The first part of a model in several parts.
    let later = |n: &String| n.contains("-of-") && !n.contains("-00001-of-");
    let models: Vec<&String> = ggufs.iter().copied().filter(|n| !later(n)).collect();
    if let [only] = models[..] {
        return Ok(dir.join(only));
    }
    let pickled = |n: &&String| PICKLES.iter().any(|e| n.ends_with(e));
    let of_trainer = |n: &&String| OF_TRAINERS.contains(&n.as_str()) || n.starts_with("rng_state");
    // Vocabularies of llama2.c.
    let of_tokens = |n: &&String| {
        let number = n.strip_prefix("tok").and_then(|n| n.strip_suffix(".bin"));
        *n == "tokenizer.bin" || number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let pickles: Vec<&String> = names.iter().filter(pickled).filter(|n| !of_trainer(n) && !of_tokens(n)).collect();
    if let ([], [only]) = (&ggufs[..], &pickles[..]) {
        return Ok(dir.join(only));
    }
    let (what, help) = if let ([], [first, ..]) = (&models[..], &ggufs[..]) {
        (format!("holds `{first}`, but not the first part of that model"), "download all parts of the model")
    } else if let [_, _, ..] = models[..] {
        (format!("holds {} GGUF files: {}", models.len(), listed(&models)), "give the right one")
    } else if let [_, _, ..] = pickles[..] {
        (format!("holds {} files that may be the model: {}", pickles.len(), listed(&pickles)), "give the right one")
    } else if let Some(found) = ending(&[".safetensors"]) {
        (format!("holds `{found}`, but neither {SINGLE} nor {INDEX}"), "give the file itself, or add the index")
    } else {
        let help = match names.contains(CONFIG) {
            true => "download the tensors, too, or compile the model without them (--weights absent)",
            false => "give the folder of a Hugging Face checkpoint",
        };
        (format!("holds neither {SINGLE} nor {INDEX}"), help)
    };
    Err(FrontendError::NotACheckpoint { path: dir.to_path_buf(), what, help: help.into() })
}

/// Names of files, the first ones where there are very many.
fn listed(names: &[&String]) -> String {
    const MOST: usize = 50;
    let quoted: Vec<String> = names.iter().take(MOST).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > MOST { ", ..." } else { "" };
    format!("{}{more}", quoted.join(", "))
}

/// Maps one file, of safetensors or PyTorch's, and reads where its tensors are.
pub(super) fn open_shard(path: &Path, opened: &mut Opened) -> Result<(), FrontendError> {
    let shard = map(path)?;
    let map = &shard.map;
    let number = opened.first + opened.shards.len();
    if pytorch::is_pytorch(map) {
        let contents =
            pytorch::parse(map).map_err(|source| FrontendError::Pytorch { path: path.to_path_buf(), source })?;
        let view =
            |(name, t): (String, pytorch::Found)| (name, View { shard: number, info: t.info, strides: t.strides });
        opened.tensors.push(contents.tensors.into_iter().map(view).collect());
        opened.shards.push(shard);
        opened.notes.extend(contents.notes.into_iter().map(|note| format!("{}: {note}", file_name(path))));
        return Ok(());
    }
    let tensors = parsed(path, map)?;
    let view = |(name, info)| (name, View { shard: number, info, strides: None });
    opened.tensors.push(tensors.into_iter().map(view).collect());
    opened.shards.push(shard);
    Ok(())
}

/// Reads the header of a file of safetensors.
fn parsed(path: &Path, map: &[u8]) -> Result<BTreeMap<String, TensorInfo>, FrontendError> {
    if let Some(what) = before_gguf(map) {
        return Err(wrong(path)((what, "take the model as safetensors, or as GGUF")));
    }
    if pytorch::is_pytorch(map) {
        return Err(wrong(path)(("this is a PyTorch pickle, not a safetensors file".into(), CONVERT)));
    }
    safetensors::parse(map).map_err(|source| FrontendError::Safetensors { path: path.to_path_buf(), source })
}

/// Whether a file says in its first bytes, or its name, that it is a GGUF file.
pub(super) fn is_gguf(path: &Path) -> bool {
    let mut first = [0; 4];
    let read = input::open(path).and_then(|mut f| f.read_exact(&mut first).map_err(|source| io(path, "read", source)));
    path.extension().is_some_and(|e| e == "gguf") || read.is_ok() && first == *b"GGUF"
}

/// Opens and maps one file, whose tensors are read front to back.
fn map(path: &Path) -> Result<Shard, FrontendError> {
    let file = input::open(path)?;
    // SAFETY: the mapping is private and read-only; that nobody truncates the file meanwhile is the
    // documented condition of `Checkpoint`.
    let map = unsafe { Mmap::map(&file) }.map_err(|source| io(path, "map", source))?;
    // Packing walks each tensor once. Only a hint, so failure is harmless.
    let _ = map.advise(Advice::Sequential);
    input::tensors_themselves(path, &map)?;
    Ok(Shard { path: path.to_path_buf(), map, file: Some(file), blank: false })
}

/// Opens a GGUF file, and those that it is split into.
fn open_gguf(path: &Path, declares: Declares) -> Result<Checkpoint, FrontendError> {
    let dir = path.parent().unwrap_or(Path::new(""));
    let wrong = |(what, help): (String, &'static str)| FrontendError::NotACheckpoint {
        path: path.to_path_buf(),
        what,
        help: help.into(),
    };
    let (mut shards, mut tensors) = (vec![], BTreeMap::new());
    let (first, header) = open_part(path)?;
    let mut metadata = header.metadata.clone();
    let names = parts::names(&header, &file_name(path)).map_err(wrong)?;
    let mut read = Some((first, header));
    for (at, name) in names.iter().enumerate() {
        let part = dir.join(name);
        let of_part = |(what, help): (String, &'static str)| FrontendError::NotACheckpoint {
            path: part.clone(),
            what,
            help: help.into(),
        };
        let (shard, header) = match read.take() {
            Some(first) => first,
            None if part.symlink_metadata().is_err() => {
                let what = format!("it is missing: part {} of {} of a model", at + 1, names.len());
                return Err(of_part((what, "download it, from the same revision as the others")));
            }
            None => open_part(&part)?,
        };
        parts::check(&header, at, names.len()).map_err(of_part)?;
        if at > 0 {
            parts::agrees(&metadata, &header.metadata).map_err(of_part)?;
        }
        for (tensor, info) in header.tensors {
            if tensors.insert(tensor.clone(), (shards.len(), info)).is_some() {
                let again = "download the model again, all parts of one revision";
                return Err(wrong((format!("tensor `{tensor}` is in several of its parts"), again)));
            }
        }
        metadata.extend(header.metadata.into_iter().filter(|(key, _)| key.starts_with("tokenizer.")));
        shards.push(shard);
    }
    parts::check_tensors(&metadata, names.len(), tensors.len()).map_err(wrong)?;
    let bytes = |shard: usize, info: &TensorInfo| -> Vec<u8> {
        let file = shards.get(shard).and_then(|s: &Shard| s.map.get(info.bytes.clone()));
        file.unwrap_or_default().to_vec()
    };
    let model = model::describe(&metadata, tensors, &bytes, declares).map_err(wrong)?;
    let sources = shards.iter().map(|s| s.path.clone()).collect();
    let model = Described { config: model.config, index: model.tensors, notes: model.notes };
    Ok(Checkpoint { metadata: Some(metadata), ..assembled(dir, path.to_path_buf(), model, sources, shards) })
}

/// Maps a GGUF file and reads its header.
fn open_part(path: &Path) -> Result<(Shard, gguf::Header), FrontendError> {
    let shard = map(path)?;
    let header = gguf::parse(&shard.map).map_err(|source| FrontendError::Gguf { path: path.to_path_buf(), source })?;
    Ok((shard, header))
}

/// Names the formats that GGUF has replaced, by their magic numbers, which are stored as integers.
fn before_gguf(file: &[u8]) -> Option<String> {
    let number = |at: usize| file.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let version = number(4).unwrap_or(0);
    Some(match file.get(..4)? {
        b"lmgg" => {
            "this is a file of GGML of 2023 or before (`ggml`, without a version), which is not supported".into()
        }
        b"fmgg" | b"ggmf" => {
            format!("this is a file of GGML of 2023 (`ggmf`, version {version}), which is not supported")
        }
        b"tjgg" => format!("this is a file of GGML of 2023 (`ggjt`, version {version}), which is not supported"),
        b"algg" => "this is an adapter of llama.cpp of 2023 (`ggla`), which is not supported".into(),
        _ => return None,
    })
}

/// Opens the shards named by an index and checks that the index and the shards agree.
pub(super) fn open_index(dir: &Path, path: &Path, opened: &mut Opened) -> Result<(), FrontendError> {
    let bad = |what: String| FrontendError::Index { path: path.to_path_buf(), what };
    let index = input::read_json(path)?.ok_or_else(|| bad("the file vanished".into()))?;
    let map =
        index.get("weight_map").and_then(Value::as_object).ok_or_else(|| bad("`weight_map` is missing".into()))?;
    let ending = if file_name(path).contains(".bin.") { ".bin" } else { ".safetensors" };
    let mut wanted: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, file) in map {
        let file = file.as_str().ok_or_else(|| bad(format!("the file of tensor `{tensor}` is not a string")))?;
        // An index comes from a stranger: it may name files of its own folder only.
        if Path::new(file).file_name().is_none_or(|n| n != file) || !file.ends_with(ending) {
            return Err(bad(format!(
                "the index puts tensor `{tensor}` into `{file}`, which is not a {ending} file of this folder"
            )));
        }
        wanted.entry(file).or_default().push(tensor);
    }
    if wanted.is_empty() {
        return Err(bad("`weight_map` is empty".into()));
    }
    let mut owners: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    let mut superseded = 0;
    for (file, names) in wanted {
        let shard_path = dir.join(file);
        if shard_path.symlink_metadata().is_err() {
            return Err(bad(format!("shard `{file}` is missing")));
        }
        open_shard(&shard_path, opened)?;
        let Some((tensors, before)) = opened.tensors.split_last_mut() else { continue };
        if let Some(name) = names.iter().find(|n| !tensors.contains_key(**n)) {
            return Err(bad(format!("tensor `{name}` is not in `{file}`, where the index puts it")));
        }
        let place = before.len();
        for name in tensors.keys().cloned().collect::<Vec<_>>() {
            let Some((other_place, other)) = owners.get(&name).copied() else {
                owners.insert(name, (place, file));
                continue;
            };
            // A file may supersede tensors of others: the index says which of them counts.
            let counts = map.get(&name).and_then(Value::as_str);
            if counts == Some(file) {
                if let Some(views) = before.get_mut(other_place) {
                    views.remove(&name);
                }
                owners.insert(name, (place, file));
            } else if counts == Some(other) {
                tensors.remove(&name);
            } else {
                let what = format!("tensor `{name}` is both in `{other}` and in `{file}`, and the index does not tell");
                return Err(bad(format!("{what} which of them counts")));
            }
            superseded += 1;
        }
    }
    opened.notes.extend((superseded > 0).then(|| several(path, superseded)));
    Ok(())
}

/// Says that some tensors are in several files.
fn several(index: &Path, count: usize) -> String {
    let name = file_name(index);
    format!("{name}: {count} tensors are in several files; the files named by the index count")
}

impl Checkpoint {
    /// Where a file of the checkpoint is.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        let own = self.modules.as_ref().filter(|_| embedding::of_modules(name));
        own.unwrap_or(&self.dir).join(name)
    }
}
