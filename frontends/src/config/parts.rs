//! Configurations of models of several parts.

use serde_json::{Map, Value};

/// Objects that the fields of the text model may be in.
pub(crate) const PARTS: [&str; 3] = ["text_config", "llm_config", "language_config"];

/// The objects that say how the text model is quantized: the whole, and its part.
pub(crate) fn whole_and_part(config: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    let part = PARTS.iter().find_map(|name| config.get(*name)?.as_object());
    config.as_object().into_iter().chain(part)
}

/// Changes the objects of [`whole_and_part`].
pub(crate) fn quantized(config: &mut Value, mut take: impl FnMut(&mut Map<String, Value>)) {
    let Some(whole) = config.as_object_mut() else { return };
    take(whole);
    if let Some(part) = PARTS.iter().find(|name| whole.get(**name).is_some_and(Value::is_object))
        && let Some(part) = whole.get_mut(*part).and_then(Value::as_object_mut)
    {
        take(part);
    }
}
