//! Models of several parts, as those that see images: the text model in them is compiled, the other
//! parts are left out and named in the report.
//!
//! `config.json` has the fields of the text model in an object of their own, or, in older models,
//! beside the other parts' fields; its tensors have a prefix, which has changed with the versions
//! of Transformers.

use crate::arch::blocks::outputs::Top;
use crate::arch::reading::other_modalities::{is_other, within_text};
use crate::arch::reading::unsupported;
use crate::checkpoint::Checkpoint;
use crate::config::parts::PARTS;
use crate::config::show;
use serde_json::{Map, Value};

/// Fields that are said for the whole, and hold for the text model unless it says something itself.
const WHOLE: [&str; 5] =
    ["_name_or_path", "quantization_config", "tie_word_embeddings", "bos_token_id", "eos_token_id"];

/// A field that holds for the text model whatever it says itself, even where the whole says nothing: of classifiers
/// that see images too.
const POOLING: &str = "classifier_pooling";

/// The object that contains those objects in a model that also speaks, beside the parts that make
/// sound; prefix of its tensors.
const THINKER: [&str; 2] = ["thinker_config", "thinker."];

/// Beginnings of the names of fields of other parts, where the text model's are beside them.
const OTHERS: [&str; 4] = ["vision_", "image_", "video_", "audio_"];

/// Prefixes that `model.` of the text model is behind or instead of.
const BEFORE: [&str; 4] = ["language_model.", "llm.", THINKER[1], "text_model."];
const INSTEAD: [&str; 6] = [
    "model.language_model.",
    "model.text_model.",
    "language_model.",
    "text_model.",
    // A model around one of several parts, and layers as Transformers 5 saves them for Qianfan-OCR.
    "model.language_model.model.",
    "language_model.model.encoder.",
];

/// The fields of the text model, if `config.json` has it as a part; `known` says whether a
/// `model_type` is supported.
pub(crate) fn text_model(config: &Map<String, Value>, known: impl Fn(&str) -> bool) -> Option<Map<String, Value>> {
    let whole = model_type(config);
    if whole.is_some_and(|whole| known(whole) || unsupported::reason(whole).is_some()) {
        return None;
    }
    // The type of the whole decides, if its text model has a name of its own: Kimi K3's text model
    // says that it is a `kimi_linear`.
    let own = whole.map(|whole| format!("{whole}_text")).filter(|text| known(text));
    let Some(inside) = part(config).filter(|part| own.is_some() || model_type(part).is_some_and(&known)) else {
        return own.map(|text| flat(config, text));
    };
    let said = |of: &Map<String, Value>| -> Vec<(String, Value)> {
        WHOLE.iter().filter_map(|name| Some(((*name).to_string(), of.get(*name)?.clone()))).collect()
    };
    let said = said(config).into_iter().chain(thinker(config).map(said).unwrap_or_default());
    let whose = |name: &str| name != "architectures" && name != POOLING;
    let fields = inside.iter().filter(|(name, _)| whose(name)).map(|(name, v)| (name.clone(), v.clone()));
    let own = own.map(|text| ("model_type".to_string(), text.into()));
    let pooling = config.get(POOLING).map(|v| (POOLING.to_string(), v.clone()));
    Some(said.chain(fields).chain(own).chain(pooling).collect())
}

/// The `model_type` of a model, or of a part of one.
fn model_type(fields: &Map<String, Value>) -> Option<&str> {
    fields.get("model_type")?.as_str()
}

/// The part of a model that speaks which reads and writes text.
fn thinker(config: &Map<String, Value>) -> Option<&Map<String, Value>> {
    config.get(THINKER[0])?.as_object()
}

/// The object of the text model.
fn part(config: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let config = thinker(config).unwrap_or(config);
    PARTS.iter().find_map(|name| config.get(*name)?.as_object())
}

/// A configuration that says of its text model whether the head is the table, for one whose parts say nothing
/// of it, or not the same. Then the file says it, as in Transformers: which of the parts its classes ask
/// differs from class to class, but a head in the file that is not the table is the head whatever they say.
/// `known` as for [`text_model`].
pub(crate) fn settled(
    ckpt: &Checkpoint,
    config: &Map<String, Value>,
    known: impl Fn(&str) -> bool,
) -> Option<Map<String, Value>> {
    const TIED: &str = "tie_word_embeddings";
    text_model(config, known)?;
    let levels = [Some(config), thinker(config), part(config)];
    part(config)?;
    let said = || levels.iter().copied().flatten().map(|level| level.get(TIED).and_then(Value::as_bool));
    let tied = said().any(|tied| tied == Some(true));
    if said().all(|tied| tied == Some(true)) || !tied && said().any(|tied| tied.is_some()) {
        return None;
    }
    let has_head = ckpt.names().any(|name| of_text(name) && name.ends_with("lm_head.weight"));
    if !has_head && !tied {
        return None;
    }
    let mut settled = config.clone();
    let outer = match thinker(config) {
        Some(_) => settled.get_mut(THINKER[0])?.as_object_mut()?,
        None => &mut settled,
    };
    let part = PARTS.iter().find(|name| outer.get(**name).is_some_and(Value::is_object))?;
    outer.get_mut(*part)?.as_object_mut()?.insert(TIED.into(), (!has_head).into());
    Some(settled)
}

/// The fields of a text model of this type, from the whole's fields.
fn flat(config: &Map<String, Value>, text: String) -> Map<String, Value> {
    let other = |name: &str, v: &Value| {
        let of_part = !name.ends_with("_config") || v.is_object();
        name == "architectures" || of_part && OTHERS.iter().any(|start| name.starts_with(start))
    };
    let own = config.iter().filter(|(name, v)| !other(name, v)).map(|(name, v)| (name.clone(), v.clone()));
    own.chain([("model_type".to_string(), text.into())]).collect()
}

/// The other parts that `config.json` describes: `name` is value.
pub(crate) fn left_out(config: &Map<String, Value>) -> impl Iterator<Item = String> {
    let text = |name: &str| PARTS.contains(&name) || WHOLE.contains(&name) || name == THINKER[0];
    let some = |v: &Value| v.as_object().is_some_and(|fields| !fields.is_empty());
    let all = config.iter().chain(thinker(config).into_iter().flatten());
    let parts = all.filter(move |(name, v)| name.ends_with("_config") && !text(name) && some(v));
    parts.map(|(name, v)| format!("`{name}` is {}", show(v)))
}

/// The name of a text model's tensor in the checkpoint of a model of several parts; `tensor` itself
/// if it has none.
pub(crate) fn located(ckpt: &Checkpoint, tensor: String) -> String {
    let rest = tensor.strip_prefix("model.");
    let instead = INSTEAD.iter().filter_map(|prefix| Some(format!("{prefix}{}", rest?)));
    let before = BEFORE.iter().map(|prefix| format!("{prefix}{tensor}"));
    // As Transformers 5 saves Kimi K2.5.
    let blocks = tensor.strip_prefix("model.layers.").map(|rest| format!("language_model.model.blocks.{rest}"));
    // As Cosmos 3 is published.
    let bare = rest.map(String::from);
    let mut names = instead.chain(before).chain(blocks).chain(bare);
    names.find(|name| ckpt.info(name).is_some()).unwrap_or(tensor)
}

/// The head of a class of several parts above the text model; `None` where that is not known.
pub(crate) fn top(class: Option<&str>) -> Option<Top> {
    const TEXT: [&str; 5] = ["ConditionalGeneration", "CausalLM", "ImageTextToText", "Vision2Seq", "PreTraining"];
    match class.and_then(|class| class.rsplit_once("For")) {
        None => Some(Top::Own),
        Some((_, "SequenceClassification")) => Some(Top::Classes),
        Some((_, "MaskedLM")) => Some(Top::MaskedToken),
        Some((_, end)) => TEXT.contains(&end).then_some(Top::Own),
    }
}

/// Whether a tensor is one of another part, which is known.
pub(crate) fn of_other_part(tensor: &str) -> bool {
    within_text(tensor) || !of_text(tensor) && is_other(tensor)
}

/// Whether a tensor is one of the text model.
pub(crate) fn of_text(tensor: &str) -> bool {
    // (The last two as Mistral AI names them, and Ai2.)
    const OWN: [&str; 7] =
        ["lm_head.", "model.layers.", "model.embed_tokens.", "model.norm.", "score.", "layers.", "model.transformer."];
    // This prefix also covers other parts.
    let (tensor, parts) = match tensor.strip_prefix(THINKER[1]) {
        Some(rest) => (rest, &[][..]),
        None => (tensor, &BEFORE[..]),
    };
    !within_text(tensor) && [parts, &INSTEAD[..], &OWN[..]].concat().iter().any(|prefix| tensor.starts_with(prefix))
}
