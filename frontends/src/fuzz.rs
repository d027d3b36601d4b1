//! Entry points of the fuzz targets: arbitrary bytes in, no panic out.

use crate::arch::Model;
use crate::checkpoint::{fuzz_adapter, fuzz_llama2c, fuzz_rwkv_cpp, gguf as reader, pytorch as unpickler, safetensors};
use crate::{json, tokenizer};

/// A safetensors file. Ranges that pass lie in the file and do not overlap.
pub fn safetensors(bytes: &[u8]) {
    let Ok(tensors) = safetensors::parse(bytes) else { return };
    let sizes: usize = tensors.values().map(|t| bytes[t.bytes.clone()].len()).sum();
    assert!(sizes <= bytes.len(), "tensors overlap");
}

/// A GGUF file: its header, its model, and its vocabulary. Tensors that pass lie in the file and do
/// not overlap.
pub fn gguf(bytes: &[u8]) {
    let Ok(header) = reader::parse(bytes) else { return };
    let sizes: usize = header.tensors.values().map(|t| bytes[t.bytes.clone()].len()).sum();
    assert!(sizes <= bytes.len(), "tensors overlap");
    tokenizer::fuzz_gguf(&header.metadata);
    if let Some(config) = reader::config(&header, bytes, crate::opening::declares) {
        let _ = Model::parse(&config);
    }
}

/// A file of llama2.c or bitllama2.c, and its model. Tensors that pass lie in the file.
pub fn llama2c(bytes: &[u8]) {
    if let Some(config) = fuzz_llama2c(bytes) {
        let _ = Model::parse(&config);
    }
}

/// A file of rwkv.cpp, and its model. Tensors that pass lie in the file.
pub fn rwkv_cpp(bytes: &[u8]) {
    if let Some(config) = fuzz_rwkv_cpp(bytes) {
        let _ = Model::parse(&config);
    }
}

/// A file of PyTorch. Tensors that pass lie in the file.
pub fn pytorch(bytes: &[u8]) {
    let Ok(contents) = unpickler::parse(bytes) else { return };
    assert!(contents.tensors.values().all(|t| bytes.get(t.info.bytes.clone()).is_some()), "a tensor leaves the file");
}

/// An `adapter_config.json`.
pub fn adapter(bytes: &[u8]) {
    if let Ok(json) = json::parse(bytes) {
        fuzz_adapter(&json);
    }
}

/// A `config.json`. An accepted configuration makes a graph, if it is not too large to be built
/// here, and its constants are finite.
pub fn config(bytes: &[u8]) {
    let Ok(json) = json::parse(bytes) else { return };
    let Ok(model) = Model::parse(&json) else { return };
    if model.facts().layers <= 64 {
        let (module, _) = model.imagined().unwrap_or_else(|e| panic!("{e}"));
        let constants = module.weights.iter().filter_map(|w| w.data.as_ref());
        assert!(constants.flatten().all(|x| x.is_finite()), "{json}");
    }
}

/// A SentencePiece `tokenizer.model`, converted and, if it passes the check, tried.
pub fn sentencepiece(bytes: &[u8]) {
    if let Ok(json) = tokenizer::from_sentencepiece(bytes) {
        llmcc_text::fuzz::tokenizer(json.to_string().as_bytes());
    }
    if let Some(json) = tokenizer::fuzz_pieces(bytes) {
        llmcc_text::fuzz::tokenizer(json.to_string().as_bytes());
    }
}

/// A vocabulary of RWKV, converted and, if it passes the check, tried.
pub fn rwkv_vocabulary(bytes: &[u8]) {
    if let Ok(json) = tokenizer::from_rwkv(bytes) {
        llmcc_text::fuzz::tokenizer(json.to_string().as_bytes());
    }
}

/// A `tokenizer_config.json`, `special_tokens_map.json` or `generation_config.json`.
pub fn text_settings(bytes: &[u8]) {
    if let Ok(json) = serde_json::from_slice(bytes) {
        tokenizer::fuzz_settings(&json);
    }
}
