//! The parts of a checkpoint that text generation needs, collected for the artifact.

mod byte_level;
mod classes;
mod cuts;
mod files;
mod gguf;
mod llama2c;
mod onig;
mod outside;
mod post;
mod programs;
mod protobuf;
mod reader;
mod sentencepiece;
mod sentencepiece_classes;
mod source;
mod tekken;
mod tiktoken;
mod token;
mod word_piece;
mod words;
mod world;

use crate::arch::Model;
use crate::checkpoint::Checkpoint;
use crate::embedding::{SETTINGS, texts};
use crate::error::FrontendError;
use crate::generation;
use crate::media;
use llmcc_text::check;
use outside::Named;
pub use reader::Reader;
use serde_json::{Map, Value, json};
use source::{Source, find};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokenizers::Tokenizer;

/// Text side of an artifact.
#[derive(Clone, Debug, Default)]
pub struct TextAssets {
    /// `tokenizer.json` of the `tokenizers` crate, without truncation and padding; `None`: the
    /// model works on token ids only.
    pub tokenizer_json: Option<Vec<u8>>,
    /// Object with the members
    /// - `bos_token`, `eos_token`: strings or null; `special_tokens`: object with these and
    ///   others (`unk_token`, `pad_token`...) that files name (chat templates print them);
    /// - `bos_token_id`: number or null;
    /// - `eos_token_ids`: numbers; generation stops after any of them;
    /// - `add_bos`: whether a plain prompt starts with BOS, whatever the tokenizer's own
    ///   post-processor does (chat templates write BOS themselves);
    /// - `add_eos_id`: the id that a plain prompt ends with where the tokenizer itself adds none,
    ///   else null;
    /// - `untyped`: true where pairs of texts are given without types of tokens;
    /// - `types`: types of the tokens of a text alone, where not all are 0: `{"before": [[id, type]...], "text": type,
    ///   "after": [[id, type]...]}`;
    /// - `prompt`: an embedder's prefix of texts, if it has one;
    /// - `most_tokens`: of an embedder how many tokens are left of a text, these included that the
    ///   tokenizer adds;
    /// - `chat_template`: Jinja text, a list of `{"name", "template"}`, or null;
    /// - `model_max_length`: number or null;
    /// - `clean_up_tokenization_spaces`: boolean, whether decoded texts lose spaces before punctuation,
    ///   which those of BPE do only where `clean_up_bpe` is true;
    /// - `media`: of a model that reads sounds how it does (`frontends/src/media`);
    /// - `starts`: of a model that writes about a source the tokens that its texts begin with;
    /// - `generation`: defaults of generations, by their names in `generation_config.json`, where there are any.
    pub text_config: Value,
    /// Prompts of an embedder by their names.
    pub prompts: BTreeMap<String, String>,
    /// Name of the one that texts get if none is asked for.
    pub default_prompt: Option<String>,
    /// How two rows of an embedder are compared: `cosine`, `dot`, `euclidean` or `manhattan`.
    pub similarity: Option<String>,
    /// Names of the classes of a classifier, in order; empty: it names none.
    pub classes: Vec<String>,
    /// How its scores become probabilities, by `problem_type` in `config.json`.
    pub problem_type: Option<String>,
    /// The class of PyTorch through which scores of pairs go, in lower case, if `config.json` names one.
    pub pair_activation: Option<String>,
    /// Notes for the user: settings without an effect, conversations that the chat template cannot
    /// render.
    pub warnings: Vec<String>,
}

/// Loads a checked tokenizer and tries it.
type Trial = fn(&[u8]) -> Result<Tokenizer, String>;

const SAVE: &str = "make a tokenizer.json with Transformers: `AutoTokenizer.from_pretrained(dir).save_pretrained(dir)`";
const EXPRESSION: &str = "write the expression in another way, or take the model's other tokenizer files";
/// Has spaces cleaned up where the model is a BPE, too.
const CLEAN_BPE: &str = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
const MISMATCH: &str = "use the tokenizer files of this very model";

impl TextAssets {
    /// Collects and checks the tokenizer files of a checkpoint.
    ///
    /// # Errors
    /// When they are malformed or belong to a model with another vocabulary, or `config.json` is
    /// wrong.
    pub fn load(ckpt: &Checkpoint) -> Result<TextAssets, FrontendError> {
        TextAssets::load_with(ckpt, check::trial)
    }

    /// The same with another trial of the tokenizer.
    fn load_with(ckpt: &Checkpoint, trial: Trial) -> Result<TextAssets, FrontendError> {
        let model = crate::arch::config(ckpt)?;
        let config = model.facts();
        let [settings, map, ending] = settings(ckpt)?;
        let (mut texts, mut warnings) = texts::found(ckpt, &settings, config.max_position)?;
        let (prompts, default_prompt) = (std::mem::take(&mut texts.prompts), texts.default.take());
        let about = about_rows(ckpt, texts.similarity.take())?;
        warnings.extend(ckpt.metadata().map(gguf::warnings).unwrap_or_default());
        let mut source = find(ckpt, [&settings, &map], config.vocab, &mut warnings)?;
        source.as_mut().filter(|_| texts.lower).map_or(Ok(()), in_lower_case)?;
        let tokenizer = source.as_mut().map(|s| load(s, config.vocab, trial, &mut warnings)).transpose()?;

        let roles = source.as_ref().and_then(|s| s.named.as_ref());
        let named = |name: &str| match roles {
            Some(roles) => roles.role(name).map(String::from),
            None => special_token(&settings, &map, name),
        };
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
            _ => {
                // The value of `config.json` may be no token of a text.
                let first = id(&bos).or(program.as_ref().map(|p| p.first)).or(bos_id.filter(|_| roles.is_none()));
                let add_bos = first.is_some() && begins(&settings, source.as_ref(), program.is_some());
                (add_bos, id(&eos).filter(|_| settings["add_eos_token"] == true))
            }
        };
        let specials = specials(roles, &named);
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
        let generation = (!defaults.settings.is_empty()).then(|| ("generation", defaults.settings.into()));
        let more = generation.into_iter().chain(about_sources(ckpt, &model, &ending)?);
        more.chain(flags(&settings, tokenizer.as_ref())).for_each(|(name, value)| text_config[name] = value);
        if source.is_some() {
            let wrong = |what| wrong_template(ckpt, &settings, what);
            try_template(&text_config, &mut warnings).map_err(wrong)?;
        }
        warnings.extend(contradiction(ckpt.config(), &about.classes));
        let tokenizer_json = source.map(|s| s.json);
        Ok(TextAssets { tokenizer_json, text_config, prompts, default_prompt, warnings, ..about })
    }
}

/// Members of the text configuration that say how a text about a source begins, and how sounds become one.
fn about_sources(
    ckpt: &Checkpoint,
    model: &Model,
    ending: &Value,
) -> Result<impl Iterator<Item = (&'static str, Value)> + use<>, FrontendError> {
    let starts = model.has_source().then(|| generation::starts(ckpt, ending, model.facts())).transpose()?;
    let starts = starts.map(|ids| ("starts", ids.into()));
    Ok(starts.into_iter().chain(media::described(ckpt, model, ending)?))
}

/// Members of the text configuration that are there only where they are true, or say something.
fn flags(settings: &Value, tokenizer: Option<&Tokenizer>) -> impl Iterator<Item = (&'static str, Value)> {
    let names = settings["model_input_names"].as_array();
    let untyped = names.is_some_and(|names| names.iter().all(|n| n != "token_type_ids"));
    let all = [("untyped", untyped), ("clean_up_bpe", settings[CLEAN_BPE] == true)];
    let types = tokenizer.filter(|_| !untyped).and_then(post::types_alone);
    let on = all.into_iter().filter(|(_, on)| *on).map(|(name, on)| (name, on.into()));
    on.chain(types.map(|types| ("types", types)))
}

/// The names in `id2label`, if they belong to classes 0, 1, 2...
fn classes(config: &Value) -> Vec<String> {
    let Some(labels) = config["id2label"].as_object() else { return vec![] };
    let name = |i: usize| Some(labels.get(&i.to_string())?.as_str()?.to_owned());
    (0..labels.len()).map(name).collect::<Option<_>>().unwrap_or_default()
}

/// Facts about an embedder's rows or a classifier's scores; all others are missing.
fn about_rows(ckpt: &Checkpoint, similarity: Option<String>) -> Result<TextAssets, FrontendError> {
    let config = ckpt.config();
    let problem_type = config["problem_type"].as_str().map(str::to_owned);
    Ok(TextAssets {
        similarity,
        classes: classes(config),
        problem_type,
        pair_activation: pair_activation(config, &ckpt.json(SETTINGS)?.unwrap_or_default()),
        ..TextAssets::default()
    })
}

/// The activation of sentence-transformers' `CrossEncoder`: `identity` of `torch.nn.modules.linear.Identity`, say. Each
/// version of it has written the name elsewhere, `settings` of [`SETTINGS`] being the newest place.
fn pair_activation(config: &Value, settings: &Value) -> Option<String> {
    let places = [
        &settings["activation_fn"],
        &config["sentence_transformers"]["activation_fn"],
        &config["sbert_ce_default_activation_function"],
    ];
    let name = places.into_iter().find_map(Value::as_str)?;
    Some(name.rsplit('.').next()?.to_lowercase())
}

/// Says that `label2id` numbers the classes in another way than `id2label`, which has the names.
fn contradiction(config: &Value, classes: &[String]) -> Option<String> {
    let labels = config["label2id"].as_object()?;
    let (class, other) = classes.iter().enumerate().find_map(|(i, name)| {
        let other = labels.get(name).filter(|id| id.as_u64() != Some(i as u64))?;
        Some((i, other))
    })?;
    let name = &classes[class];
    Some(format!(
        "config.json: `id2label` names class {class} {name:?}, but `label2id` numbers it {other}; `id2label` is used"
    ))
}

/// The contents of `tokenizer_config.json`, `special_tokens_map.json` and `generation_config.json`,
/// or the metadata of a GGUF file.
fn settings(ckpt: &Checkpoint) -> Result<[Value; 3], FrontendError> {
    if let Some(metadata) = ckpt.metadata() {
        return Ok([gguf::settings(metadata), Value::Null, gguf::generation(metadata)]);
    }
    let read = |name: &str| Ok::<_, FrontendError>(ckpt.json(name)?.unwrap_or(Value::Null));
    Ok([read("tokenizer_config.json")?, read("special_tokens_map.json")?, read("generation_config.json")?])
}

/// Texts of special tokens by role: all that the files of a folder name, or the usual ones.
fn specials(roles: Option<&Named>, named: &dyn Fn(&str) -> Option<String>) -> Map<String, Value> {
    match roles {
        Some(roles) => roles.roles.iter().map(|(role, token)| (role.clone(), token.text.clone().into())).collect(),
        None => ["bos_token", "eos_token", "unk_token", "pad_token"]
            .into_iter()
            .filter_map(|name| Some((name.to_string(), named(name)?.into())))
            .collect(),
    }
}

/// Whether a plain prompt begins with BOS where no post-processor says it.
fn begins(settings: &Value, source: Option<&Source>, program: bool) -> bool {
    let default = program || source.is_some_and(|s| s.begins);
    settings["add_bos_token"].as_bool().unwrap_or(default)
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

/// Whether a plain prompt begins with BOS, and the tokens at its end beyond the tokenizer's own. As
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

/// Renders typical conversations with every chat template. A template may refuse one itself, with
/// `raise_exception`.
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

/// The error for a template that does not render.
fn wrong_template(ckpt: &Checkpoint, settings: &Value, what: String) -> FrontendError {
    let help = "correct the template, or remove it and write prompts as plain text";
    FrontendError::Tokenizer { path: template_path(ckpt, settings), what, help }
}

/// Where the template is that [`chat_template`] finds.
fn template_path(ckpt: &Checkpoint, settings: &Value) -> PathBuf {
    if ckpt.metadata().is_some() {
        return ckpt.config_path().to_path_buf();
    }
    let has = |file: &str| ckpt.dir().join(file).exists();
    ckpt.dir().join(match usable_template(settings).is_null() {
        _ if has("chat_template.jinja") => "chat_template.jinja",
        true if has(PROCESSORS) => PROCESSORS,
        _ => "tokenizer_config.json",
    })
}

/// The `tokenizer.json` of a vocabulary of RWKV, which takes the longest token.
///
/// # Errors
/// A message naming the malformed part, and its place.
pub fn from_rwkv(vocabulary: &[u8]) -> Result<Value, String> {
    world::to_tokenizer_json(vocabulary)
}

/// The `tokenizer.json` that behaves like a SentencePiece `tokenizer.model`.
///
/// # Errors
/// A message naming the malformed or unsupported part.
pub fn from_sentencepiece(model: &[u8]) -> Result<Value, String> {
    sentencepiece::to_tokenizer_json(model)
}

/// Checks, tries and loads the tokenizer, and compares its ids with the model's vocabulary.
fn load(
    source: &mut Source,
    vocab: usize,
    trial: Trial,
    warnings: &mut Vec<String>,
) -> Result<Tokenizer, FrontendError> {
    let path = source.path.clone();
    let bad = |what: String, help| FrontendError::Tokenizer { path: path.clone(), what, help };
    let fix = |json: &mut Vec<u8>, random: &[&str]| -> Result<(), FrontendError> {
        let fixed =
            check::deterministic(json, random).map_err(|source| FrontendError::Json { path: path.clone(), source })?;
        *json = fixed.unwrap_or_else(|| std::mem::take(json));
        Ok(())
    };
    fix(&mut source.json, &[])?;
    onig::translate(&mut source.json).map_err(|what| bad(format!("not a usable tokenizer: {what}"), EXPRESSION))?;
    let random = check::tokenizer(&source.json).map_err(|what| bad(format!("not a usable tokenizer: {what}"), SAVE))?;
    if !random.is_empty() {
        warnings
            .push(format!("the tokenizer's model sets {}, which makes tokens random: ignored", random.join(" and ")));
    }
    fix(&mut source.json, &random)?;
    let tokenizer = trial(&source.json).map_err(|what| bad(what, SAVE))?;
    warnings.extend(llmcc_text::Lossy::of(&tokenizer).map(|lossy| lacking(lossy.missing())));
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

/// Describes the bytes that a vocabulary over bytes has no tokens for.
fn lacking(bytes: &[u8]) -> String {
    const NAMED: usize = 8;
    let named: Vec<String> = bytes.iter().take(NAMED).map(|b| format!("{b:#04x}")).collect();
    let more = if bytes.len() > NAMED { ", ..." } else { "" };
    format!(
        "the tokenizer's vocabulary lacks {} of the bytes of texts ({}{more}): texts with them are refused",
        bytes.len(),
        named.join(", ")
    )
}

/// Ids, with others that are not among them.
fn with_others(mut ids: Vec<u32>, others: impl Iterator<Item = u32>) -> Vec<u32> {
    for more in others {
        if !ids.contains(&more) {
            ids.push(more);
        }
    }
    ids
}

/// The token in the settings or, failing these, in `special_tokens_map.json`.
fn special_token(settings: &Value, map: &Value, name: &str) -> Option<String> {
    token_text(settings.get(name)).or_else(|| token_text(map.get(name)))
}

/// Fuzz target: one JSON as each of the files with settings, then the runtime's reading of it.
pub(crate) fn fuzz_settings(json: &Value) {
    let text_config = json!({
        "bos_token": special_token(json, json, "bos_token"),
        "eos_token_ids": ids(&json["eos_token_id"], 100),
        "bos_token_id": json["bos_token_id"],
        "special_tokens": json["special_tokens"],
        "chat_template": usable_template(json),
    });
    let _ = try_template(&text_config, &mut Vec::new());
    let order = [None, serde_json::from_slice(json.to_string().as_bytes()).ok()];
    let files = outside::Files { config: json, map: json, added: json, order: &order };
    for class in ["CodeLlamaTokenizer", "Qwen2Tokenizer", "MPNetTokenizer", ""].map(|name| classes::named(Some(name))) {
        if let Ok(named) = Named::read(&files, &[], class, None) {
            let added = outside::add(&named, &[], &words::Words::default(), class, 100);
            assert!(added.list.iter().flatten().all(|token| token["id"].as_u64() < Some(100)));
            let _ = named.behind(10);
        }
    }
}

/// Fuzz target: a SentencePiece model as a class has it, which the file's length chooses.
pub(crate) fn fuzz_pieces(model: &[u8]) -> Option<Value> {
    let names: Vec<&str> = sentencepiece_classes::names().collect();
    let config = json!({ "tokenizer_class": names.get(model.len() % names.len().max(1))? });
    let files = outside::Files { config: &config, map: &Value::Null, added: &Value::Null, order: &[None, None] };
    let settings = files::Settings::new(files, &Value::Null);
    source::with_named(files::pieces(model, &settings).ok()?, 1 << 20, &mut vec![]).ok().map(|(json, ..)| json)
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
