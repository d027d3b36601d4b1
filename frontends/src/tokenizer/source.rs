//! The file of a folder that has its tokenizer, and the additions of the files beside it.

use super::files::{self, Bad, Made, Settings};
use super::gguf;
use super::llama2c;
use super::outside::{self, Added, Files, Named};
use super::words::{self, File};
use super::world;
use crate::checkpoint::{Checkpoint, is_rwkv};
use crate::error::FrontendError;
use llmcc_text::json::Json;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A `tokenizer.json`, and the file it comes from.
pub(super) struct Source {
    pub path: PathBuf,
    pub json: Vec<u8>,
    /// Its post-processor adds the tokens around a text, not the settings.
    pub post_processed: bool,
    /// Texts begin with BOS unless the settings say no.
    pub begins: bool,
    /// Special tokens that files name; of a GGUF file its settings say them.
    pub named: Option<Named>,
}

/// The remedy where a GGUF file's vocabulary does not suffice.
const OTHER_FILE: &str = "take the model's safetensors checkpoint";
/// The remedy for an unsupported file.
pub(super) const SAVE: &str = "make a tokenizer.json with Transformers: \
    `AutoTokenizer.from_pretrained(dir).save_pretrained(dir)`; or move the file away to compile a model that \
    takes token ids";
const CORRECT: &str = "correct it there, or download the file again";

/// Names of SentencePiece models, the most usual first.
const PIECES: [&str; 6] = [
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "spiece.model",
    "spm.model",
    "spm_char.model",
];
/// That of Mistral's files has a version behind it.
const VERSIONED: &str = "tokenizer.model.v";
/// Names of files of tiktoken.
const TIKTOKEN: &str = "tiktoken.model";
/// Mistral's.
const TEKKEN: &str = "tekken.json";

/// Other names of files with tokenizers that Transformers knows.
const OTHERS: [&str; 14] = [
    "bpe.codes",
    "byte_maps.json",
    "dict.txt",
    "emoji.json",
    "entity_vocab.json",
    "merges.txt",
    "prophetnet.tokenizer",
    "source.spm",
    "target.spm",
    "target_vocab.json",
    "vocab-src.json",
    "vocab-tgt.json",
    "vocab.bpe",
    "word_shape.json",
];
/// Endings of such names.
const ENDINGS: [&str; 3] = [".model", ".tiktoken", ".spm"];

/// `tokenizer.json`, or the conversion of another file, by `settings`; with the tokens that other
/// files name, for a model of `rows` tokens.
///
/// # Errors
/// A file is malformed or not supported.
pub(super) fn find(
    ckpt: &Checkpoint,
    settings: [&Value; 2],
    rows: usize,
    warnings: &mut Vec<String>,
) -> Result<Option<Source>, FrontendError> {
    if let Some(metadata) = ckpt.metadata() {
        let path = ckpt.config_path().to_path_buf();
        return match gguf::tokenizer_json(metadata) {
            Ok(json) => Ok(json.map(|json| Source {
                path,
                post_processed: !json["post_processor"].is_null(),
                json: json.to_string().into_bytes(),
                begins: false,
                named: None,
            })),
            Err(what) => Err(FrontendError::Tokenizer { path, what, help: OTHER_FILE }),
        };
    }
    let added = ckpt.json(outside::ADDED)?.unwrap_or(Value::Null);
    let order = [outside::CONFIG, outside::MAP].map(|name| order(ckpt, name));
    let [config, map] = settings;
    let files = Files { config, map, added: &added, order: &order };
    let settings = Settings::new(files, ckpt.config());
    let versioned = settings.files.config["fast_tokenizer_files"].as_array().and_then(|list| newest(list));
    let mut names = vec![versioned.unwrap_or("tokenizer.json")];
    names.extend(is_rwkv(ckpt.config(), world::OF_PILE).then_some(world::PILE));
    for name in names {
        if let Some(json) = ckpt.file(name)? {
            return of_json(ckpt, name, json, &settings, rows, warnings).map(Some);
        }
    }
    let Some((name, made)) = from_vocabulary(ckpt, &settings)? else {
        warnings.extend(unread(ckpt));
        return Ok(None);
    };
    match made.and_then(|made| with_named(made, rows, warnings)) {
        Ok((json, named, begins)) => Ok(Some(Source {
            path: ckpt.dir().join(name),
            post_processed: !json["post_processor"].is_null(),
            json: json.to_string().into_bytes(),
            begins,
            named: Some(named),
        })),
        Err(bad) => Err(wrong(ckpt, &name, bad)),
    }
}

/// The version of Transformers whose choice among files of several versions is made here.
const TRANSFORMERS: [u32; 2] = [5, 23];

/// The file of a list of `tokenizer.VERSION.json` that Transformers takes: in the order of their texts the last
/// before one that is newer than itself.
fn newest(list: &[Value]) -> Option<&str> {
    fn version(name: &str) -> Option<&str> {
        // The list comes from a stranger: it may name files of its own folder only.
        Path::new(name).file_name().filter(|own| *own == name)?;
        let (version, _) = name.split_once("tokenizer.")?.1.rsplit_once(".json")?;
        Some(version).filter(|v| !v.is_empty())
    }
    let names = list.iter().filter_map(Value::as_str);
    let mut found: Vec<(&str, &str)> = names.filter_map(|name| Some((version(name)?, name))).collect();
    found.sort_unstable();
    let parsed = |text: &str| text.split('.').map(|n| n.parse::<u32>().unwrap_or(u32::MAX)).collect::<Vec<_>>();
    let known =
        |(version, _): &&(&str, &str)| parsed(version).as_slice() <= &[TRANSFORMERS[0], TRANSFORMERS[1], u32::MAX][..];
    found.iter().take_while(known).last().map(|(_, name)| *name)
}

/// The same file with its keys in order.
fn order(ckpt: &Checkpoint, name: &str) -> Option<Json> {
    serde_json::from_slice(&ckpt.file(name).ok()??).ok()
}

fn wrong(ckpt: &Checkpoint, name: &str, bad: Bad) -> FrontendError {
    let (name, what, help) = match bad {
        Bad::Here(what) => (name, what, SAVE),
        Bad::Beside((name, what)) => (name, what, CORRECT),
    };
    FrontendError::Tokenizer { path: ckpt.dir().join(name), what, help }
}

/// A `tokenizer.json` as it is there, but for tokens that files beside it name.
fn of_json(
    ckpt: &Checkpoint,
    name: &str,
    json: Vec<u8>,
    settings: &Settings<'_>,
    rows: usize,
    warnings: &mut Vec<String>,
) -> Result<Source, FrontendError> {
    let path = ckpt.dir().join(name);
    let mut source = Source { path, json, post_processed: true, begins: false, named: None };
    // The fault of a malformed file is reported when it is checked.
    let Ok(file) = serde_json::from_slice::<File>(&source.json) else { return Ok(source) };
    let own =
        outside::own_tokens(&file.added_tokens.unwrap_or_default()).map_err(|what| wrong(ckpt, name, what.into()))?;
    let named = Named::read(&settings.files, &own, settings.class, None);
    let named = named.map_err(|what| wrong(ckpt, name, what.into()))?;
    let Added { list, warnings: more, .. } = outside::add(&named, &own, &file.model.vocab, settings.class, rows);
    warnings.extend(more);
    if let Some(list) = list {
        source.json = words::with_added(&source.json, &list).unwrap_or(source.json);
    }
    source.named = Some(named);
    Ok(source)
}

/// The conversion of another file, with the tokens that files beside it name and with the tokens
/// around texts; and whether texts begin with BOS.
pub(super) fn with_named(made: Made, rows: usize, warnings: &mut Vec<String>) -> Result<(Value, Named, bool), Bad> {
    let Made { mut json, named, class, around, begins } = made;
    let own = outside::own_tokens(json["added_tokens"].as_array().map_or(&[][..], |list| list))?;
    let vocab = words::of(&json["model"]["vocab"])?;
    let added = outside::add(&named, &own, &vocab, class, rows);
    warnings.extend(added.warnings);
    if let Some(list) = added.list {
        json["added_tokens"] = list.into();
    }
    if let Some(around) = around {
        let id = |text: &str| added.ids.get(text).copied().or_else(|| vocab.id(text));
        json["post_processor"] = around.json(&named, &id)?;
    }
    Ok((json, named, begins))
}

/// The conversion of a vocabulary of another kind, by the name of its file.
type Found = Option<(String, Result<Made, Bad>)>;

fn from_vocabulary(ckpt: &Checkpoint, settings: &Settings<'_>) -> Result<Found, FrontendError> {
    let pieces = PIECES.iter().map(|name| (*name).to_string()).chain(versioned(ckpt));
    for name in pieces {
        if let Some(model) = ckpt.file(&name)? {
            let made = files::tiktoken(&model, settings).unwrap_or_else(|| files::pieces(&model, settings));
            return Ok(Some((name, made)));
        }
    }
    if let Some(file) = ckpt.file(TIKTOKEN)? {
        let none = || Err(Bad::Here("this is not a file of tiktoken".into()));
        return Ok(Some((TIKTOKEN.into(), files::tiktoken(&file, settings).unwrap_or_else(none))));
    }
    if let Some(file) = ckpt.file(TEKKEN)? {
        return Ok(Some((TEKKEN.into(), files::tekken(&file, settings))));
    }
    if let Some(vocab) = ckpt.file("vocab.json")? {
        let made = match ckpt.file("merges.txt")? {
            Some(merges) => files::byte_level(&vocab, &merges, settings),
            None => Err(Bad::Here("this vocabulary has no merges.txt beside it".into())),
        };
        return Ok(Some(("vocab.json".into(), made)));
    }
    if let Some(found) = of_programs(ckpt, settings)? {
        return Ok(Some(found));
    }
    Ok(ckpt.file("vocab.txt")?.map(|vocab| ("vocab.txt".into(), files::word_piece(&vocab, settings))))
}

/// Vocabularies in the files of RWKV and llama2.c.
fn of_programs(ckpt: &Checkpoint, settings: &Settings<'_>) -> Result<Found, FrontendError> {
    if is_rwkv(ckpt.config(), world::OF_BYTES) {
        let name = ckpt.config_path().file_name().map(|n| n.to_string_lossy().into_owned());
        return Ok(Some((name.unwrap_or_default(), settings.made(world::of_bytes()))));
    }
    if let Some(vocab) = ckpt.file(world::FILE)? {
        let made = world::to_tokenizer_json(&vocab).map_err(Bad::Here).and_then(|json| {
            let mut made = settings.made(json)?;
            // RWKV's own tokenizer has no tokens of these names; its settings name them for others.
            let vocab = made.json["model"]["vocab"].clone();
            made.named.only_of(&|text| vocab.get(text).is_some());
            Ok(made)
        });
        return Ok(Some((world::FILE.into(), made)));
    }
    // Beside a file of llama2.c, which is its own configuration.
    if let (Some(vocab), true) =
        (ckpt.config()["vocab_size"].as_u64(), ckpt.config_path().extension().is_some_and(|e| e == "bin"))
    {
        for name in [format!("tok{vocab}.bin"), "tokenizer.bin".to_string()] {
            if let Some(file) = ckpt.file(&name)? {
                let json = llama2c::to_tokenizer_json(&file, vocab as usize).map_err(Bad::Here);
                return Ok(Some((name, json.and_then(|json| settings.made(json)))));
            }
        }
    }
    Ok(None)
}

/// Names of files of a folder, in order.
fn names(ckpt: &Checkpoint) -> Vec<String> {
    let entries = std::fs::read_dir(ckpt.dir()).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// SentencePiece models of Mistral, the newest first.
fn versioned(ckpt: &Checkpoint) -> Vec<String> {
    let version = |name: &str| name.strip_prefix(VERSIONED)?.parse::<u32>().ok();
    let mut found: Vec<(u32, String)> = names(ckpt).into_iter().filter_map(|n| Some((version(&n)?, n))).collect();
    found.sort();
    found.into_iter().rev().map(|(_, name)| name).collect()
}

/// Says of files that look like tokenizers that they are not read.
fn unread(ckpt: &Checkpoint) -> Option<String> {
    let looks = |name: &String| {
        OTHERS.contains(&name.as_str())
            || ENDINGS.iter().any(|ending| name.ends_with(ending))
            || (name.contains("tokenizer") || name.contains("vocab"))
                && !["tokenizer_config.json", "tokenizer.bin"].contains(&name.as_str())
                && [".json", ".txt", ".bpe"].iter().any(|ending| name.ends_with(ending))
    };
    let found: Vec<String> = names(ckpt).into_iter().filter(looks).collect();
    let file = if found.len() == 1 { "is a file of a tokenizer that is" } else { "are files of tokenizers that are" };
    (!found.is_empty()).then(|| {
        format!(
            "{} {file} not read: the model takes token ids, not text; for text make a tokenizer.json with Transformers: `AutoTokenizer.from_pretrained(dir).save_pretrained(dir)`",
            found.join(", ")
        )
    })
}
