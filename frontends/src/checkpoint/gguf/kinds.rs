//! Kinds of the values of an architecture's keys. A value of another kind is refused by the key's
//! name: a reader of a number would ignore it, and use the default.

use super::file::{File, Wrong};
use super::{AGAIN, Value};

/// Keys that are texts, or lists of them.
const TEXTS: &[&str] = &["rope.scaling.type", "tensor_data_layout", "classifier.output_labels", "hidden_activation"];

/// How keys of sizes end: whole numbers, of all layers or of each.
const SIZES: &[&str] = &[
    "_count",
    "_count_kv",
    "_length",
    "_lora_rank",
    "predict_layers",
    "kv_layers",
    "rope.dimension_count_swa",
    "vocab_size",
];

/// Checks the values of the keys of an architecture that are read.
pub(super) fn check<'a>(file: &File, keys: impl Iterator<Item = &'a str>) -> Result<(), Wrong> {
    for key in keys {
        let Some(value) = file.get(key) else { continue };
        if let Some(wanted) = wrong(key, value) {
            return Err((format!("`{}.{key}` is {}, not {wanted}", file.name, said(value)), AGAIN));
        }
    }
    Ok(())
}

/// The expected kind, if a value has another.
fn wrong(key: &str, value: &Value) -> Option<&'static str> {
    let is_size = SIZES.iter().any(|end| key.ends_with(end));
    match value {
        Value::Text(_) => (!TEXTS.contains(&key)).then_some("a number"),
        Value::Float(x) if !x.is_finite() => Some("a finite number"),
        Value::Float(_) | Value::Signed(_) | Value::Bool(_) if is_size => Some("a whole number from 0 on"),
        Value::List(all) if is_size && (all.is_empty() || all.iter().any(|v| v.unsigned().is_none())) => {
            Some("a list of a whole number for each layer")
        }
        _ => None,
    }
}

/// A value in words.
pub(super) fn said(value: &Value) -> String {
    match value {
        Value::Float(x) => x.to_string(),
        Value::List(all) if all.is_empty() => "an empty list".into(),
        Value::List(_) => "a list of other things".into(),
        Value::Text(text) => format!("the text {:?}", text.chars().take(40).collect::<String>()),
        other => other.to_json().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_other_kinds_are_named() {
        let list = |all: &[Value]| Value::List(all.to_vec());
        for (key, value, wanted) in [
            ("expert_count", Value::Text("8".into()), Some("a number")),
            ("rope.scaling.factor", Value::Text("8".into()), Some("a number")),
            ("rope.dimension_count", Value::Float(f64::NAN), Some("a finite number")),
            ("rope.dimension_count", Value::Float(8.0), Some("a whole number from 0 on")),
            ("expert_used_count", Value::Signed(-1), Some("a whole number from 0 on")),
            ("attention.key_length", list(&[]), Some("a list of a whole number for each layer")),
            ("attention.head_count_kv", list(&[Value::Float(1.0)]), Some("a list of a whole number for each layer")),
            ("attention.head_count_kv", list(&[Value::Unsigned(0), Value::Unsigned(2)]), None),
            ("rope.scaling.type", Value::Text("yarn".into()), None),
            ("rope.scaling.yarn_log_multiplier", Value::Float(-0.1), None),
        ] {
            assert_eq!(wrong(key, &value), wanted, "{key}");
        }
    }
}
