//! The files of a repository that compiling needs.

use crate::gguf;
use crate::listing::Remote;
use crate::names::some;
use crate::reference::Part;
use glob::Pattern;
use std::collections::BTreeSet;

/// A file that is left out, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Its weights are fetched in another format, or another precision.
    Again,
    /// Compiling does not read it.
    Unread,
    /// The user's patterns leave it out.
    Pattern,
}

impl Why {
    /// In words, behind a list of files.
    pub const fn said(self) -> &'static str {
        match self {
            Why::Again => "weights in another format",
            Why::Unread => "not needed to compile",
            Why::Pattern => "left out by the patterns",
        }
    }
}

/// The user's choice beside a [`Part`].
#[derive(Clone, Debug)]
pub struct Wishes {
    /// Only files with names like these, in place of the files that compiling needs.
    pub include: Vec<Pattern>,
    /// None of the files with names like these.
    pub exclude: Vec<Pattern>,
    /// Weights too; `false`: configuration and tokenizer alone.
    pub weights: bool,
}

impl Default for Wishes {
    fn default() -> Wishes {
        Wishes { include: vec![], exclude: vec![], weights: true }
    }
}

/// Files of a listing, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    pub names: BTreeSet<String>,
    /// The index whose shards belong to them.
    pub index: Option<String>,
    /// The file that stands for all of them; `None`: their folder does.
    pub main: Option<String>,
}

/// Single files of weights in a folder, and indices of several, in the order in which the compiler looks for them.
const WEIGHTS: [&str; 4] =
    ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"];
/// Endings of files with weights, in formats that are compiled and in others.
const OF_WEIGHTS: [&str; 20] = [
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".gguf",
    ".h5",
    ".msgpack",
    ".onnx",
    ".onnx_data",
    ".ot",
    ".tflite",
    ".mlmodel",
    ".npz",
    ".pdparams",
    ".params",
    ".nemo",
    ".llamafile",
    ".index.json",
    ".ggml",
];
/// Files in JSON that say nothing of a model.
const RECORDS: [&str; 6] = [
    "trainer_state.json",
    "all_results.json",
    "eval_results.json",
    "train_results.json",
    "predict_results.json",
    "dataset_info.json",
];
/// Endings of files with vocabularies.
const VOCABULARIES: [&str; 5] = [".model", ".tiktoken", ".spm", ".codes", ".bpe"];
/// Words in the names of vocabularies in plain text.
const WORDS: [&str; 4] = ["vocab", "merges", "dict", "token"];
/// The folder with Meta's own files, where others are for Transformers.
const ORIGINAL: &str = "original/";

/// Chooses among files by what is asked for.
///
/// # Errors
/// No file, or several that are models of their own: the fault and the remedy.
pub(crate) fn choose(files: &[Remote], part: &Part, wishes: &Wishes) -> Result<Choice, String> {
    let all: Vec<&str> = files.iter().map(|f| f.name.as_str()).collect();
    let mut choice = match (part, wishes.include.is_empty()) {
        (Part::Model, false) => Choice::default(),
        (Part::Model, true) => model(&all, wishes.weights)?,
        (Part::Format(format), _) => of_gguf(gguf::of_format(&all, format)?),
        (Part::File(file), _) => single(&all, file)?,
    };
    let like = |patterns: &[Pattern], name: &str| patterns.iter().any(|p| p.matches(name));
    choice.names.extend(all.iter().filter(|n| like(&wishes.include, n)).map(|n| (*n).to_owned()));
    choice.names.retain(|n| !like(&wishes.exclude, n));
    choice.index.take_if(|index| like(&wishes.exclude, index));
    if choice.main.as_ref().is_some_and(|main| !choice.names.contains(main)) {
        choice.main = None;
    }
    match choice.names.is_empty() {
        true => Err("no file has a name that the patterns ask for (`llmcc pull --dry-run` lists all)".into()),
        false => Ok(choice),
    }
}

/// Why a file is left out of a choice.
pub(crate) fn why(name: &str, wishes: &Wishes) -> Why {
    if !wishes.include.is_empty() || wishes.exclude.iter().any(|p| p.matches(name)) {
        return Why::Pattern;
    }
    if is_weights(name) { Why::Again } else { Why::Unread }
}

fn is_weights(name: &str) -> bool {
    let name = name.to_lowercase();
    OF_WEIGHTS.iter().any(|ending| name.ends_with(ending))
}

/// Files of GGUF, with the first of them standing for all.
fn of_gguf(files: Vec<&str>) -> Choice {
    let names: BTreeSet<String> = files.into_iter().map(str::to_owned).collect();
    Choice { main: names.first().cloned(), names, index: None }
}

/// A single file, with the small ones beside it that it needs.
fn single(all: &[&str], file: &str) -> Result<Choice, String> {
    if !all.contains(&file) {
        let name = file.rsplit('/').next().unwrap_or(file).to_lowercase();
        let like: Vec<&str> = all.iter().copied().filter(|n| n.to_lowercase().ends_with(&name)).take(3).collect();
        let hint = if like.is_empty() { String::new() } else { format!("; it has {}", like.join(", ")) };
        return Err(format!("it has no file `{file}`{hint}"));
    }
    if file.ends_with(".gguf") {
        return Ok(of_gguf(gguf::parts(all, file)?));
    }
    let folder = file.rfind('/').map_or("", |at| &file[..=at]);
    let mut names: BTreeSet<String> = beside(all, folder);
    names.insert(file.to_owned());
    Ok(Choice { names, index: file.ends_with(".index.json").then(|| file.to_owned()), main: Some(file.to_owned()) })
}

/// Everything that compiling reads of a repository.
fn model(all: &[&str], weights: bool) -> Result<Choice, String> {
    let mut names = beside(all, "");
    names.extend(modules(all, weights));
    if !weights {
        return match names.contains("config.json") || names.contains("params.json") {
            true => Ok(Choice { names, ..Choice::default() }),
            false => Err("it has no config.json, and without weights nothing else says what the model is".into()),
        };
    }
    let there = |name: &&&str| all.contains(*name);
    if let Some(first) = WEIGHTS.iter().find(there) {
        names.insert((*first).to_owned());
        let index = first.ends_with(".index.json").then(|| (*first).to_owned());
        return Ok(Choice { names, index, main: None });
    }
    let adapter = ["adapter_model.safetensors", "adapter_model.bin"];
    if let Some(first) = adapter.iter().find(there).filter(|_| all.contains(&"adapter_config.json")) {
        names.insert((*first).to_owned());
        return Ok(Choice { names, ..Choice::default() });
    }
    if let Some(cut) = consolidated(all, "") {
        names.extend(cut);
        return Ok(Choice { names, ..Choice::default() });
    }
    if let Some(cut) = consolidated(all, ORIGINAL) {
        let mut names = beside(all, ORIGINAL);
        names.extend(cut);
        let main = names.iter().find(|n| n.contains("consolidated.")).cloned();
        return Ok(Choice { names, main, index: None });
    }
    if all.iter().any(|n| n.ends_with(".gguf")) {
        return gguf::only(all).map(of_gguf);
    }
    other(all, names)
}

/// Weights by names that other programs give them: one file at the top.
fn other(all: &[&str], mut names: BTreeSet<String>) -> Result<Choice, String> {
    let endings = [".safetensors", ".bin", ".pth", ".pt"];
    let of_trainers = ["training_args.bin", "optimizer.", "scheduler.", "scaler.pt", "rng_state", "tokenizer.bin"];
    let found = |ending: &&str| -> Vec<&str> {
        let fits =
            |n: &&&str| !n.contains('/') && n.ends_with(*ending) && !of_trainers.iter().any(|t| n.starts_with(t));
        all.iter().filter(fits).copied().collect()
    };
    match endings.iter().map(found).find(|files| !files.is_empty()).unwrap_or_default()[..] {
        [] => Err(format!(
            "it has no weights that can be compiled (safetensors, PyTorch's files or GGUF), but {}",
            some(all)
        )),
        [file] => {
            names.insert(file.to_owned());
            Ok(Choice { names, main: Some(file.to_owned()), index: None })
        }
        ref several => {
            Err(format!("it has several files of weights: give one behind the model's name, of {}", some(several)))
        }
    }
}

/// Meta's and Mistral's own files of weights in a folder.
fn consolidated(all: &[&str], folder: &str) -> Option<Vec<String>> {
    let whole = format!("{folder}consolidated.safetensors");
    let piece = |n: &&&str| {
        let digits = n.strip_prefix(folder)?.strip_prefix("consolidated.")?.strip_suffix(".pth")?;
        Some(digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    let pieces: Vec<String> = all.iter().filter(|n| piece(n) == Some(true)).map(|n| (*n).to_owned()).collect();
    match pieces.is_empty() {
        false => Some(pieces),
        true => all.contains(&whole.as_str()).then(|| vec![whole]),
    }
}

/// Small files of a folder: configuration, tokenizer, templates.
fn beside(all: &[&str], folder: &str) -> BTreeSet<String> {
    let needed = |name: &str| {
        let plain = name.to_lowercase();
        let json = plain.ends_with(".json") && !plain.ends_with(".index.json") && !RECORDS.contains(&&*plain);
        let words = plain.ends_with(".txt") && WORDS.iter().any(|w| plain.contains(w));
        let versioned = plain.starts_with("tokenizer.model.v");
        json || words
            || versioned
            || plain.ends_with(".jinja")
            || plain == "tokenizer.bin"
            || VOCABULARIES.iter().any(|ending| plain.ends_with(ending))
    };
    let own = |n: &&&str| n.strip_prefix(folder).is_some_and(|rest| !rest.contains('/') && needed(rest));
    all.iter().filter(own).map(|n| (*n).to_owned()).collect()
}

/// Files of sentence-transformers' modules: folders such as `1_Pooling`.
fn modules(all: &[&str], weights: bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if !all.contains(&"modules.json") {
        return names;
    }
    for name in all {
        let Some((folder, "config.json")) = name.split_once('/') else { continue };
        if folder.split_once('_').is_none_or(|(digits, _)| digits.parse::<u32>().is_err()) {
            continue;
        }
        names.insert((*name).to_owned());
        let own = |weights: &&str| all.contains(&format!("{folder}/{weights}").as_str());
        let found = ["model.safetensors", "pytorch_model.bin"].into_iter().find(own).filter(|_| weights);
        names.extend(found.map(|file| format!("{folder}/{file}")));
    }
    names
}
