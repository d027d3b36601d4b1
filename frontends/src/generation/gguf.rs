//! Defaults of generations in a GGUF file: those that llama.cpp's programs take from it.

use super::found::Found;
use crate::checkpoint::gguf::{Metadata, Value};
use serde_json::{Map, json};

/// The temperature of llama.cpp where a file has settings of sampling, but no temperature.
const USUAL_TEMPERATURE: f64 = 0.8;
/// Tokens that the repetition penalty looks back at there, if the file does not say.
const USUAL_WINDOW: f64 = 64.0;

/// Settings that nothing here does, with the value that does nothing.
const NOT_USED: [(&str, f64); 2] = [("xtc_probability", 0.0), ("mirostat", 0.0)];

/// The defaults in the metadata.
pub(super) fn found(metadata: &Metadata) -> Found {
    let number = |name: &str| metadata.get(&format!("general.sampling.{name}")).and_then(Value::number);
    let finite = |name: &str| number(name).filter(|x| x.is_finite());
    let mut settings = Map::new();
    let mut put = |key: &str, value: serde_json::Value| drop(settings.insert(key.into(), value));
    let names = ["temp", "top_k", "top_p", "min_p"];
    if names.iter().any(|name| number(name).is_some()) {
        let temperature = finite("temp").unwrap_or(USUAL_TEMPERATURE).min(f64::from(f32::MAX));
        if temperature > 0.0 {
            put("temperature", json!(temperature));
        }
    }
    if let Some(k) = finite("top_k").filter(|k| *k >= 1.0) {
        put("top_k", json!(k.min(f64::from(u32::MAX)) as u64));
    }
    match finite("top_p") {
        Some(p) if p <= 0.0 => put("top_k", json!(1)),
        Some(p) if p < 1.0 => put("top_p", json!(p)),
        _ => {}
    }
    if let Some(p) = finite("min_p").filter(|p| *p > 0.0 && *p <= 1.0) {
        put("min_p", json!(p));
    }
    let window = finite("penalty_last_n").unwrap_or(USUAL_WINDOW);
    if let Some(penalty) = finite("penalty_repeat").filter(|p| *p > 0.0 && *p != 1.0 && window != 0.0) {
        put("repetition_penalty", json!(penalty));
        if window > 0.0 {
            put("repetition_window", json!(window.min(f64::from(u32::MAX)) as u64));
        }
    }
    let other = |(name, neutral): &(&str, f64)| {
        let value = number(name).filter(|x| x != neutral)?;
        Some(format!("general.sampling.{name} is {value}, which is not supported: texts are made without it"))
    };
    Found { settings, warnings: NOT_USED.iter().filter_map(other).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, f64)]) -> (serde_json::Value, usize) {
        let entry = |(name, x): &(&str, f64)| (format!("general.sampling.{name}"), Value::Float(*x));
        let found = found(&entries.iter().map(entry).collect());
        (serde_json::Value::Object(found.settings), found.warnings.len())
    }

    #[test]
    fn settings_of_sampling_are_llama_cpp_s() {
        assert_eq!(of(&[]), (json!({}), 0));
        let all = [("temp", 0.5), ("top_k", 20.0), ("top_p", 0.75), ("min_p", 0.125), ("penalty_repeat", 1.5)];
        let window = json!({ "repetition_penalty": 1.5, "repetition_window": 64 });
        let mut expected = json!({ "temperature": 0.5, "top_k": 20, "top_p": 0.75, "min_p": 0.125 });
        expected["repetition_penalty"] = window["repetition_penalty"].clone();
        expected["repetition_window"] = window["repetition_window"].clone();
        assert_eq!(of(&all), (expected, 0));
        // Greedy; settings without an effect; the usual temperature; all tokens looked back at.
        assert_eq!(of(&[("temp", 0.0), ("top_k", -1.0), ("top_p", 1.0)]), (json!({}), 0));
        assert_eq!(of(&[("top_k", 5.0)]), (json!({ "temperature": 0.8, "top_k": 5 }), 0));
        let all = of(&[("penalty_repeat", 1.5), ("penalty_last_n", -1.0)]);
        assert_eq!(all, (json!({ "repetition_penalty": 1.5 }), 0));
        assert_eq!(of(&[("mirostat", 2.0), ("xtc_probability", 0.5)]), (json!({}), 2));
    }
}
