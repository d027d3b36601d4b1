//! WordPiece (BERT, arXiv 1810.04805) as a JSON for the `tokenizers` crate.

use super::byte_level::{added_token, around};
use serde_json::{Map, Value, json};

/// The settings of a text's normalization and cutting.
pub(super) struct WordPiece<'a> {
    /// Tokens in order; those within words begin with `##`.
    pub tokens: Vec<String>,
    /// The unknown token; tokens before and after a text; others that are cut out of texts.
    pub unknown: &'a str,
    pub first: &'a str,
    pub last: &'a str,
    pub others: Vec<&'a str>,
    /// Letters are made small, and (unless said otherwise) lose their accents.
    pub lowercase: bool,
    pub strip_accents: Option<bool>,
    /// Chinese characters are words.
    pub chinese: bool,
    /// The last token is twice between two texts.
    pub twice: bool,
}

impl WordPiece<'_> {
    /// The `tokenizer.json`.
    ///
    /// # Errors
    /// A token appears twice, or one that is needed does not appear.
    pub fn json(self) -> Result<Value, String> {
        let vocab: Map<String, Value> = self.tokens.iter().enumerate().map(|(id, t)| (t.clone(), json!(id))).collect();
        if vocab.len() != self.tokens.len() {
            return Err("a token appears twice".into());
        }
        let id = |token: &str| {
            vocab.get(token).and_then(Value::as_u64).ok_or_else(|| format!("there is no token {token:?}"))
        };
        let ends = [self.first, self.last].map(|t| id(t).map(|id| (t.to_string(), id)));
        let [Ok(first), Ok(last)] = ends else {
            return Err(format!("there are no tokens {:?} and {:?}", self.first, self.last));
        };
        let unknown = id(self.unknown)?;
        let mut added: Vec<(u64, &str)> = vec![(first.1, self.first), (last.1, self.last), (unknown, self.unknown)];
        added.extend(self.others.iter().filter_map(|t| Some((id(t).ok()?, *t))));
        added.sort_unstable();
        added.dedup();
        Ok(json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added.iter().map(|(id, t)| added_token(*id, t, true)).collect::<Vec<_>>(),
            "normalizer": {
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": self.chinese,
                "strip_accents": self.strip_accents, "lowercase": self.lowercase,
            },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "post_processor": around([first, last], self.twice, 1),
            "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
            "model": {
                "type": "WordPiece", "unk_token": self.unknown, "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": vocab,
            },
        }))
    }
}
