//! Regular expressions of tokenizers, which are Oniguruma's (RE of version 6.9, `ONIG_SYNTAX_ONIGURUMA`,
//! UTF-8), as expressions of the crate `fancy-regex` that cut texts at the same places.
//!
//! The expression is [parsed](parse) whole and [printed](print) again. Parts that mean the same in both
//! are printed as they stand, so most expressions of released models do not change. An expression that
//! cannot be translated exactly is an error, never an approximation.

mod class;
mod fold;
mod names;
mod node;
mod parse;
mod print;

#[cfg(test)]
mod tests;

use node::{Anchor, Node};
use serde_json::Value;

/// The expression of `fancy-regex` that cuts as `pattern` does under Oniguruma.
///
/// # Errors
/// Oniguruma refuses it, or it has a part without an exact translation.
pub(super) fn translated(pattern: &str) -> Result<String, String> {
    let parsed = parse::parse(pattern)?;
    print::print(&parsed)
}

/// Translates every expression of the normalizer, pre-tokenizer and decoder of a `tokenizer.json`. A file
/// without an expression that changes stays as it is, byte for byte.
///
/// # Errors
/// The place of an expression, and why it has no translation.
pub(super) fn translate(json: &mut Vec<u8>) -> Result<(), String> {
    /// The parts that have expressions.
    #[derive(serde::Deserialize)]
    struct Parts {
        #[serde(default)]
        normalizer: Value,
        #[serde(default)]
        pre_tokenizer: Value,
        #[serde(default)]
        decoder: Value,
    }
    // An invalid file is refused by its next reader.
    let Ok(parts) = serde_json::from_slice::<Parts>(json) else { return Ok(()) };
    let parts = [("normalizer", parts.normalizer), ("pre_tokenizer", parts.pre_tokenizer), ("decoder", parts.decoder)];
    let mut changed = vec![];
    for (name, mut part) in parts {
        if within(&mut part, name, 0)? {
            changed.push((name, part));
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    let mut file: Value = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    for (name, part) in changed {
        file[name] = part;
    }
    *json = file.to_string().into_bytes();
    Ok(())
}

/// Parts within parts; deeper ones are refused later.
const DEEPEST: usize = 64;

fn within(value: &mut Value, at: &str, depth: usize) -> Result<bool, String> {
    if depth > DEEPEST {
        return Ok(false);
    }
    let mut changed = false;
    match value {
        Value::Object(map) => {
            if let Some(Value::String(regex)) = map.get_mut("pattern").and_then(|p| p.get_mut("Regex")) {
                let new = translated(regex).map_err(|e| format!("{at}.pattern: the expression {regex:?} {e}"))?;
                changed |= new != *regex;
                *regex = new;
            }
            for (key, item) in map.iter_mut().filter(|(key, _)| *key != "pattern") {
                changed |= within(item, &format!("{at}.{key}"), depth + 1)?;
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                changed |= within(item, &format!("{at}[{i}]"), depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(changed)
}
