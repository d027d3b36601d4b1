//! Models in the files of the programs that trained them (llama2.c's, and Meta's and Mistral's beside
//! `params.json`): no settings say which tokens begin and end a text, since these programs know.

use crate::checkpoint::Checkpoint;
use serde_json::Value;
use tokenizers::Tokenizer;

/// The token that these programs write before any text, and those that they stop at.
const TOKENS: &[(&str, &[&str])] = &[("<s>", &["</s>"]), ("<|begin_of_text|>", &["<|end_of_text|>", "<|eot_id|>"])];

/// Ids of the token that a text begins with, and of those that end it.
pub(super) struct Ends {
    pub first: u32,
    pub last: Vec<u32>,
}

/// The tokens that a checkpoint's own program adds; `None` where settings give them, and for other
/// checkpoints.
pub(super) fn ends(ckpt: &Checkpoint, settings: &Value, tokenizer: Option<&Tokenizer>) -> Option<Ends> {
    let path = ckpt.config_path();
    let is_one = path.ends_with("params.json") || path.extension().is_some_and(|e| e == "bin");
    let tokenizer = tokenizer.filter(|_| is_one && settings.is_null())?;
    TOKENS.iter().find_map(|(first, last)| {
        let first = tokenizer.token_to_id(first)?;
        Some(Ends { first, last: last.iter().filter_map(|token| tokenizer.token_to_id(token)).collect() })
    })
}
