//! What text generation needs from a checkpoint, collected for the artifact.

mod byte_level;
mod cuts;
mod files;
mod gguf;
mod llama2c;
mod programs;
mod protobuf;
mod sentencepiece;
mod tiktoken;
mod word_piece;
mod world;

use crate::checkpoint::{Checkpoint, is_rwkv};
use crate::embedding::texts;
use crate::error::FrontendError;
use crate::generation;
use llmcc_text::check;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokenizers::Tokenizer;

/// Text side of an artifact.
#[derive(Clone, Debug)]
pub struct TextAssets {
    /// `tokenizer.json` of the `tokenizers` crate, without truncation and padding; `None`: the
    /// model works on token ids only.
    pub tokenizer_json: Option<Vec<u8>>,
    /// Object with the members
    /// - `bos_token`, `eos_token`: strings or null; `special_tokens`: object with these and
    ///   `unk_token`, `pad_token` where present (chat templates print them);
    /// - `bos_token_id`: number or null;
    /// - `eos_token_ids`: numbers; generation stops after any of them;
    /// - `add_bos`: whether a plain prompt starts with BOS, whatever the tokenizer's own
    ///   post-processor does (chat templates write BOS themselves);
    /// - `add_eos_id`: the id that a plain prompt ends with where the tokenizer itself adds none,
    ///   else null;
    /// - `untyped`: true where pairs of texts are given without types of tokens;
    /// - `prompt`: of an embedder what is put before a text, where there is something;
    /// - `most_tokens`: of an embedder how many tokens are left of a text, these included that the
    ///   tokenizer adds;
    /// - `chat_template`: Jinja text, a list of `{"name", "template"}`, or null;
    /// - `model_max_length`: number or null;
    /// - `clean_up_tokenization_spaces`: boolean;
    /// - `generation`: defaults of generations, by their names in `generation_config.json`, where there are any.
    pub text_config: Value,
    /// Prompts of an embedder by their names.
    pub prompts: BTreeMap<String, String>,
    /// Name of the one that texts get if none is asked for.
    pub default_prompt: Option<String>,
    /// Names of the classes of a classifier, in order; empty: it names none.
    pub classes: Vec<String>,
    /// What the user should know: settings that do not count, conversations that the chat template
    /// cannot render.
    pub warnings: Vec<String>,
}

const SAVE: &str = "make a tokenizer.json with Transformers: `AutoTokenizer.from_pretrained(dir).save_pretrained(dir)`";
const OTHER_FILE: &str = "take the model's safetensors checkpoint";
const MISMATCH: &str = "use the tokenizer files of this very model";

impl TextAssets {
    /// Collects and checks the tokenizer files of a checkpoint.
    ///
    /// # Errors
    /// When they are malformed or belong to a model with another vocabulary, or `config.json` is
    /// wrong.
    pub fn load(ckpt: &Checkpoint) -> Result<TextAssets, FrontendError> {
        let model = crate::arch::config(ckpt)?;
        let config = model.facts();
        let [settings, map, ending] = settings(ckpt)?;
        let mut source = find(ckpt, [&settings, &map])?;
        let (mut texts, mut warnings) = texts::found(ckpt, &settings, config.max_position)?;
        let (prompts, default_prompt) = (std::mem::take(&mut texts.prompts), texts.default.take());
        source.as_mut().filter(|_| texts.lower).map_or(Ok(()), in_lower_case)?;
        let tokenizer = source.as_mut().map(|s| load(s, config.vocab, &mut warnings)).transpose()?;

        let named = |name: &str| special_token(&settings, &map, name);
        let id = |text: &Option<String>| tokenizer.as_ref()?.token_to_id(text.as_deref()?);
        let (bos, eos) = (named("bos_token"), named("eos_token"));
        let program = programs::ends(ckpt, &settings, tokenizer.as_ref());
        let bos_id = id(&bos).or(config.bos).or(program.as_ref().map(|p| p.first));
        let of_program = program.iter().flat_map(|p| p.last.iter().copied());
        let others = config.eos.iter().copied().chain(id(&eos)).chain(of_program);
        let eos_ids = with_others(ids(&ending["eos_token_id"], config.vocab), others);
        let defaults = generation::found(ckpt, config.vocab, &eos_ids)?;
        warnings.extend(defaults.warnings);
        let (add_bos, add_eos) = match (&source, &tokenizer) {
            (Some(source), Some(tokenizer)) if source.post_processed => {
                post_processor_wins(&settings, tokenizer, (bos_id, id(&eos)), &mut warnings)
            }
            _ => (
                bos_id.is_some() && (settings["add_bos_token"] == true || program.is_some()),
                id(&eos).filter(|_| settings["add_eos_token"] == true),
            ),
        };
        let specials: Map<_, _> = ["bos_token", "eos_token", "unk_token", "pad_token"]
            .into_iter()
            .filter_map(|name| Some((name.to_string(), named(name)?.into())))
            .collect();
        let mut text_config = json!({
            "bos_token": bos,
            "eos_token": eos,
            "special_tokens": specials,
            "bos_token_id": bos_id,
            "eos_token_ids": eos_ids,
            "add_bos": add_bos,
            "add_eos_id": add_eos,
            "chat_template": chat_template(ckpt, &settings)?,
            "model_max_length": settings["model_max_length"].as_u64().filter(|n| *n < 1 << 31),
            "clean_up_tokenization_spaces": settings["clean_up_tokenization_spaces"].as_bool().unwrap_or(false),
        });
        texts.write(&mut text_config);
        if !defaults.settings.is_empty() {
            text_config["generation"] = defaults.settings.into();
        }
        if settings["model_input_names"].as_array().is_some_and(|names| names.iter().all(|n| n != "token_type_ids")) {
            text_config["untyped"] = true.into();
        }
        if source.is_some() {
            try_template(&text_config, &mut warnings).map_err(|what| FrontendError::Tokenizer {
                path: match ckpt.metadata() {
                    Some(_) => ckpt.config_path().to_path_buf(),
                    None => ckpt.dir().join(template_file(ckpt, &settings)),
                },
                what,
                help: "correct the template, or remove it and write prompts as plain text",
            })?;
        }
        let classes = classes(ckpt.config());
        let tokenizer_json = source.map(|s| s.json);
        Ok(TextAssets { tokenizer_json, text_config, prompts, default_prompt, classes, warnings })
    }
}

/// The names in `id2label`, if they are those of classes 0, 1, 2...
fn classes(config: &Value) -> Vec<String> {
    let Some(labels) = config["id2label"].as_object() else { return vec![] };
    let name = |i: usize| Some(labels.get(&i.to_string())?.as_str()?.to_owned());
    (0..labels.len()).map(name).collect::<Option<_>>().unwrap_or_default()
}

/// What `tokenizer_config.json`, `special_tokens_map.json` and `generation_config.json` say, or the
/// metadata of a GGUF file.
fn settings(ckpt: &Checkpoint) -> Result<[Value; 3], FrontendError> {
    if let Some(metadata) = ckpt.metadata() {
        return Ok([gguf::settings(metadata), Value::Null, gguf::ends(metadata)]);
    }
    let read = |name: &str| Ok::<_, FrontendError>(ckpt.json(name)?.unwrap_or(Value::Null));
    Ok([read("tokenizer_config.json")?, read("special_tokens_map.json")?, read("generation_config.json")?])
}

/// Has all text in lower case.
fn in_lower_case(source: &mut Source) -> Result<(), FrontendError> {
    let bad = |e| FrontendError::Json { path: source.path.clone(), source: e };
    let mut json: Value = serde_json::from_slice(&source.json).map_err(bad)?;
    if json.is_object() {
        texts::lowered(&mut json);
        source.json = json.to_string().into_bytes();
    }
    Ok(())
}

/// Whether a plain prompt begins with BOS, and what it ends with beyond what the tokenizer adds. As
/// in Transformers 5, the post-processor of `tokenizer.json` decides, and `add_bos_token` and
/// `add_eos_token` do not count.
fn post_processor_wins(
    settings: &Value,
    tokenizer: &Tokenizer,
    (bos, eos): (Option<u32>, Option<u32>),
    warnings: &mut Vec<String>,
) -> (bool, Option<u32>) {
    let ids = tokenizer.encode("a", true).map(|e| e.get_ids().to_vec()).unwrap_or_default();
    let writes_bos = bos.is_some() && ids.first().copied() == bos;
    let writes_eos = eos.is_some() && ids.len() > 1 && ids.last().copied() == eos;
    for (name, writes) in [("add_bos_token", writes_bos), ("add_eos_token", writes_eos)] {
        if let Some(flag) = settings[name].as_bool().filter(|flag| *flag != writes) {
            warnings.push(format!(
                "tokenizer_config.json says \"{name}\": {flag}, but the post-processor of tokenizer.json {}; the latter counts, as in Transformers 5",
                if writes { "adds one" } else { "adds none" }
            ));
        }
    }
    (writes_bos, None)
}

/// Renders what users write with every chat template. What a template refuses itself, with
/// `raise_exception`, is its right.
///
/// # Errors
/// It does not parse, or fails for a plain message.
fn try_template(text_config: &Value, warnings: &mut Vec<String>) -> Result<(), String> {
    let config = llmcc_text::Config::parse(&text_config.to_string()).map_err(|e| e.to_string())?;
    if !config.has_template() {
        return Ok(());
    }
    let trials = llmcc_text::Template::new(&config, llmcc_text::local_time).map_err(|e| e.to_string())?.trials();
    for trial in trials.iter().filter(|t| t.outcome.is_err() && !t.refused()) {
        let name = if config.templates.len() > 1 { format!(" {:?}", trial.template) } else { String::new() };
        // A template for tools may well need some.
        if trial.is_plain() && trial.template == "default" {
            return Err(format!("the chat template{name} cannot render {trial}"));
        }
        warnings.push(format!("the chat template{name} cannot render {trial}"));
    }
    Ok(())
}

/// Where the template is that [`chat_template`] finds.
fn template_file(ckpt: &Checkpoint, settings: &Value) -> &'static str {
    let has = |file: &str| ckpt.dir().join(file).exists();
    if has("chat_template.jinja") {
        return "chat_template.jinja";
    }
    if usable_template(settings).is_null() && has(PROCESSORS) { PROCESSORS } else { "tokenizer_config.json" }
}

/// The `tokenizer.json` of a vocabulary of RWKV: tokens, of which the longest is taken.
///
/// # Errors
/// Says what is malformed, and where.
pub fn from_rwkv(vocabulary: &[u8]) -> Result<Value, String> {
    world::to_tokenizer_json(vocabulary)
}

/// The `tokenizer.json` that behaves like a SentencePiece `tokenizer.model`.
///
/// # Errors
/// Says what is malformed or unsupported.
pub fn from_sentencepiece(model: &[u8]) -> Result<Value, String> {
    sentencepiece::to_tokenizer_json(model)
}

/// A `tokenizer.json`, and the file it comes from.
struct Source {
    path: PathBuf,
    json: Vec<u8>,
    /// Its post-processor says what is added to a text, not the settings.
    post_processed: bool,
}

impl Source {
    /// Made of another file.
    fn made(path: PathBuf, json: &Value) -> Source {
        Source { path, json: json.to_string().into_bytes(), post_processed: !json["post_processor"].is_null() }
    }
}

/// `tokenizer.json`, or `tokenizer.model` or the vocabulary of a GGUF file converted, by the first two
/// of [`settings`].
fn find(ckpt: &Checkpoint, settings: [&Value; 2]) -> Result<Option<Source>, FrontendError> {
    if let Some(metadata) = ckpt.metadata() {
        let path = ckpt.config_path().to_path_buf();
        return match gguf::tokenizer_json(metadata) {
            Ok(json) => Ok(json.map(|json| Source::made(path, &json))),
            Err(what) => Err(FrontendError::Tokenizer { path, what, help: OTHER_FILE }),
        };
    }
    let path = |name: &str| ckpt.dir().join(name);
    if let Some(json) = ckpt.file("tokenizer.json")? {
        return Ok(Some(Source { path: path("tokenizer.json"), json, post_processed: true }));
    }
    if is_rwkv(ckpt.config(), world::OF_PILE)
        && let Some(json) = ckpt.file(world::PILE)?
    {
        return Ok(Some(Source { path: path(world::PILE), json, post_processed: true }));
    }
    let Some((name, made)) = from_vocabulary(ckpt, settings)? else { return Ok(None) };
    let path = path(&name);
    match made {
        Ok(json) => Ok(Some(Source::made(path, &json))),
        Err(what) => Err(FrontendError::Tokenizer { path, what, help: SAVE }),
    }
}

/// The `tokenizer.json` that a vocabulary of another kind makes, by the name of its file.
#[expect(clippy::type_complexity, reason = "a file, and what became of it")]
fn from_vocabulary(
    ckpt: &Checkpoint,
    [config, map]: [&Value; 2],
) -> Result<Option<(String, Result<Value, String>)>, FrontendError> {
    let added = ckpt.json("added_tokens.json")?.unwrap_or(Value::Null);
    let settings = files::Settings { config, map, added: &added };
    if let Some(model) = ckpt.file("tokenizer.model")? {
        let made = files::tiktoken(&model, &settings).unwrap_or_else(|| from_sentencepiece(&model));
        return Ok(Some(("tokenizer.model".into(), made)));
    }
    if let Some(vocab) = ckpt.file("vocab.json")? {
        let made = match ckpt.file("merges.txt")? {
            Some(merges) => files::byte_level(&vocab, &merges, &settings),
            None => Err("this vocabulary has no merges.txt beside it".into()),
        };
        return Ok(Some(("vocab.json".into(), made)));
    }
    if is_rwkv(ckpt.config(), world::OF_BYTES) {
        let name = ckpt.config_path().file_name().map(|n| n.to_string_lossy().into_owned());
        return Ok(Some((name.unwrap_or_default(), Ok(world::of_bytes()))));
    }
    if let Some(vocab) = ckpt.file(world::FILE)? {
        return Ok(Some((world::FILE.into(), world::to_tokenizer_json(&vocab))));
    }
    // Beside a file of llama2.c, which is its own configuration.
    if let (Some(vocab), true) =
        (ckpt.config()["vocab_size"].as_u64(), ckpt.config_path().extension().is_some_and(|e| e == "bin"))
    {
        for name in [format!("tok{vocab}.bin"), "tokenizer.bin".to_string()] {
            if let Some(file) = ckpt.file(&name)? {
                return Ok(Some((name, llama2c::to_tokenizer_json(&file, vocab as usize))));
            }
        }
    }
    Ok(ckpt.file("vocab.txt")?.map(|vocab| ("vocab.txt".into(), files::word_piece(&vocab, &settings))))
}

/// Checks, tries and loads the tokenizer, and compares its ids with the model's vocabulary.
fn load(source: &mut Source, vocab: usize, warnings: &mut Vec<String>) -> Result<Tokenizer, FrontendError> {
    let path = source.path.clone();
    let bad = |what: String, help| FrontendError::Tokenizer { path: path.clone(), what, help };
    let fix = |json: &mut Vec<u8>, random: &[&str]| -> Result<(), FrontendError> {
        let fixed =
            check::deterministic(json, random).map_err(|source| FrontendError::Json { path: path.clone(), source })?;
        *json = fixed.unwrap_or_else(|| std::mem::take(json));
        Ok(())
    };
    fix(&mut source.json, &[])?;
    let random = check::tokenizer(&source.json).map_err(|what| bad(format!("not a usable tokenizer: {what}"), SAVE))?;
    if !random.is_empty() {
        warnings
            .push(format!("the tokenizer's model sets {}, which makes tokens random: ignored", random.join(" and ")));
    }
    fix(&mut source.json, &random)?;
    let tokenizer = check::trial(&source.json).map_err(|what| bad(what, SAVE))?;
    let largest = tokenizer.get_vocab(true).into_iter().max_by_key(|(_, id)| *id);
    let (token, id) = largest.ok_or_else(|| bad("the vocabulary is empty".into(), SAVE))?;
    if id as usize >= vocab {
        let what = format!("tokenizer mismatch: token {token:?} has id {id}, but the model has {vocab} tokens");
        return Err(bad(what, MISMATCH));
    }
    // The post-processor has ids of its own, whatever the vocabulary says.
    let added = tokenizer.encode("", true).map_err(|e| bad(format!("it cannot tokenize an empty text: {e}"), SAVE))?;
    if let Some(id) = added.get_ids().iter().find(|id| **id as usize >= vocab) {
        return Err(bad(
            format!("tokenizer mismatch: its post_processor adds token {id}, but the model has {vocab} tokens"),
            MISMATCH,
        ));
    }
    Ok(tokenizer)
}

/// Ids, and those of others that are not among them.
fn with_others(mut ids: Vec<u32>, others: impl Iterator<Item = u32>) -> Vec<u32> {
    for more in others {
        if !ids.contains(&more) {
            ids.push(more);
        }
    }
    ids
}

/// What the settings and, failing these, `special_tokens_map.json` say.
fn special_token(settings: &Value, map: &Value, name: &str) -> Option<String> {
    token_text(settings.get(name)).or_else(|| token_text(map.get(name)))
}

/// Fuzz target: one JSON as each of the files with settings, then what the runtime reads of it.
pub(crate) fn fuzz_settings(json: &Value) {
    let text_config = json!({
        "bos_token": special_token(json, json, "bos_token"),
        "eos_token_ids": ids(&json["eos_token_id"], 100),
        "bos_token_id": json["bos_token_id"],
        "special_tokens": json["special_tokens"],
        "chat_template": usable_template(json),
    });
    let _ = try_template(&text_config, &mut Vec::new());
}

/// Fuzz target: the vocabulary of a GGUF file.
pub(crate) fn fuzz_gguf(metadata: &crate::checkpoint::gguf::Metadata) {
    fuzz_settings(&gguf::settings(metadata));
    if let Ok(Some(json)) = gguf::tokenizer_json(metadata) {
        llmcc_text::fuzz::tokenizer(json.to_string().as_bytes());
    }
}

/// A special token: a string, or an object with `content`.
fn token_text(v: Option<&Value>) -> Option<String> {
    let v = v?;
    v.as_str().or_else(|| v.get("content")?.as_str()).map(String::from)
}

/// One id or a list; ids the model does not have are dropped, it can never produce them.
fn ids(v: &Value, vocab: usize) -> Vec<u32> {
    let one = |v: &Value| v.as_u64().filter(|n| *n < vocab as u64).map(|n| n as u32);
    match v.as_array() {
        Some(list) => list.iter().filter_map(one).collect(),
        None => one(v).into_iter().collect(),
    }
}

/// Where models that see images have their templates, of before they were files of their own.
const PROCESSORS: &str = "chat_template.json";

/// `chat_template.jinja`, or `chat_template` of `tokenizer_config.json` as it is there, or of the file
/// beside it.
fn chat_template(ckpt: &Checkpoint, settings: &Value) -> Result<Value, FrontendError> {
    if let Some(bytes) = ckpt.file("chat_template.jinja")? {
        let utf8 = |_| FrontendError::Tokenizer {
            path: ckpt.dir().join("chat_template.jinja"),
            what: "not UTF-8".into(),
            help: "download it again",
        };
        return String::from_utf8(bytes).map(Value::String).map_err(utf8);
    }
    match usable_template(settings) {
        Value::Null => Ok(ckpt.json(PROCESSORS)?.map_or(Value::Null, |file| usable_template(&file))),
        template => Ok(template),
    }
}

/// The `chat_template` of settings: a text, or several with names.
fn usable_template(settings: &Value) -> Value {
    let template = &settings["chat_template"];
    let named = |t: &Value| t["name"].is_string() && t["template"].is_string();
    let usable = template.is_string() || template.as_array().is_some_and(|list| list.iter().all(named));
    if usable { template.clone() } else { Value::Null }
}

#[cfg(test)]
mod tests;
