//! Entry points of the fuzz targets: arbitrary bytes in, no panic out.

use crate::checkpoint::safetensors;
use crate::config::Config;
use crate::{json, rope, tokenizer};

/// A safetensors file. Ranges that pass lie in the file and do not overlap.
pub fn safetensors(bytes: &[u8]) {
    let Ok(tensors) = safetensors::parse(bytes) else { return };
    let sizes: usize = tensors.values().map(|t| bytes[t.bytes.clone()].len()).sum();
    assert!(sizes <= bytes.len(), "tensors overlap");
}

/// A `config.json`. Frequencies of those that pass are finite.
pub fn config(bytes: &[u8]) {
    let Ok(json) = json::parse(bytes) else { return };
    let Ok(config) = Config::parse(&json) else { return };
    assert_eq!(config.windows.len(), config.layers);
    let rope = rope::frequencies(&config.rope);
    assert!(rope.scale.is_finite() && rope.inv_freq.iter().all(|f| f.is_finite()), "{:?}", config.rope);
}

/// A SentencePiece `tokenizer.model`, converted and, if it passes the check, tried.
pub fn sentencepiece(bytes: &[u8]) {
    if let Ok(json) = tokenizer::from_sentencepiece(bytes) {
        llmcc_text::fuzz::tokenizer(json.to_string().as_bytes());
    }
}

/// A `tokenizer_config.json`, `special_tokens_map.json` or `generation_config.json`.
pub fn text_settings(bytes: &[u8]) {
    if let Ok(json) = serde_json::from_slice(bytes) {
        tokenizer::fuzz_settings(&json);
    }
}
