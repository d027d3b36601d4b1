//! Models of several parts, as those that see images: the text model in them is compiled, the other
//! parts are left out and named in the report.
//!
//! `config.json` has the fields of the text model in `text_config`; its tensors have a prefix,
//! which has changed with the versions of Transformers.

use super::yields::Top;
use crate::checkpoint::Checkpoint;
use crate::config::show;
use serde_json::{Map, Value};

/// Fields that are said for the whole, and hold for the text model unless it says something itself.
const WHOLE: [&str; 5] =
    ["_name_or_path", "quantization_config", "tie_word_embeddings", "bos_token_id", "eos_token_id"];

/// The fields of the text model, if `config.json` has it as a part; `known` says whether a
/// `model_type` is supported.
pub(super) fn text_model(config: &Map<String, Value>, known: impl Fn(&str) -> bool) -> Option<Map<String, Value>> {
    let model_type = |map: &Map<String, Value>| map.get("model_type").and_then(Value::as_str).is_some_and(&known);
    let inside = config.get("text_config")?.as_object()?;
    if model_type(config) || !model_type(inside) {
        return None;
    }
    let whole = WHOLE.iter().filter_map(|name| Some(((*name).to_string(), config.get(*name)?.clone())));
    Some(
        whole
            .chain(
                inside.iter().filter(|(name, _)| *name != "architectures").map(|(name, v)| (name.clone(), v.clone())),
            )
            .collect(),
    )
}

/// The other parts that `config.json` describes: `name` is value.
pub(super) fn left_out(config: &Map<String, Value>) -> impl Iterator<Item = String> {
    let parts = config.iter().filter(|(name, v)| name.ends_with("_config") && *name != "text_config" && v.is_object());
    parts.filter(|(name, _)| !WHOLE.contains(&name.as_str())).map(|(name, v)| format!("`{name}` is {}", show(v)))
}

/// What the checkpoint of a model of several parts calls a tensor of the text model; `tensor`
/// itself if it has none.
pub(super) fn located(ckpt: &Checkpoint, tensor: String) -> String {
    let inside = tensor.strip_prefix("model.").map(|rest| format!("model.language_model.{rest}"));
    let names = inside.into_iter().chain([format!("language_model.{tensor}")]);
    names.into_iter().find(|name| ckpt.info(name).is_some()).unwrap_or(tensor)
}

/// What a class of several parts has on top of the text model; `None` where that is not known.
pub(super) fn top(class: Option<&str>) -> Option<Top> {
    const TEXT: [&str; 5] = ["ConditionalGeneration", "CausalLM", "ImageTextToText", "Vision2Seq", "PreTraining"];
    match class.and_then(|class| class.rsplit_once("For")) {
        None => Some(Top::Own),
        Some((_, "SequenceClassification")) => Some(Top::Classes),
        Some((_, end)) => TEXT.contains(&end).then_some(Top::Own),
    }
}

/// Whether a tensor is one of the text model.
pub(super) fn of_text(tensor: &str) -> bool {
    ["model.language_model.", "language_model.", "lm_head.", "model.layers.", "score."]
        .iter()
        .any(|prefix| tensor.starts_with(prefix))
}
