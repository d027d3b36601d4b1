//! A tokenizer in use by the compiler: tokens of texts and back, as the runtime makes them.

use super::TextAssets;
use llmcc_text::{Config, Error, Tokenizer};

/// The tokenizer of a checkpoint or an artifact.
pub struct Reader {
    tokenizer: Tokenizer,
}

impl Reader {
    /// The tokenizer with the text configuration that belongs to it, both JSON as artifacts hold them.
    ///
    /// # Errors
    /// Either cannot be read.
    pub fn new(tokenizer: &[u8], config: &[u8]) -> Result<Reader, Error> {
        let config = Config::parse(&String::from_utf8_lossy(config))?;
        Ok(Reader { tokenizer: Tokenizer::new(&String::from_utf8_lossy(tokenizer), &config)? })
    }

    /// The tokenizer of a checkpoint; `None`: it has none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(assets: &TextAssets) -> Result<Option<Reader>, Error> {
        let Some(tokenizer) = &assets.tokenizer_json else { return Ok(None) };
        Reader::new(tokenizer, assets.text_config.to_string().as_bytes()).map(Some)
    }

    /// Tokens of a text; with `special` those around it, too, and an embedder's prompt.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<i32>, Error> {
        self.tokenizer.encode(text, special)
    }

    /// Text of tokens; with `special` that of special ones, too.
    ///
    /// # Errors
    /// The tokenizer fails.
    pub fn decode(&self, ids: &[i32], special: bool) -> Result<String, Error> {
        self.tokenizer.decode(ids, special)
    }

    /// A token as the vocabulary writes it; `None`: it has no such token.
    pub fn piece(&self, id: i32) -> Option<String> {
        self.tokenizer.piece(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = r#"{"version":"1.0","model":{"type":"WordLevel","vocab":{"a":0,"b":1,"?":2},"unk_token":"?"},
        "pre_tokenizer":{"type":"Whitespace"},"added_tokens":[{"id":3,"content":"<s>",
        "single_word":false,"lstrip":false,
        "rstrip":false,"normalized":false,"special":true}]}"#;

    #[test]
    fn texts_become_tokens_and_texts_again() {
        let config = r#"{"bos_token":"<s>","bos_token_id":3,"add_bos":true}"#;
        let reader = Reader::new(WORDS.as_bytes(), config.as_bytes()).unwrap();
        assert_eq!(reader.encode("b a", true), Ok(vec![3, 1, 0]));
        assert_eq!(reader.encode("b a", false), Ok(vec![1, 0]));
        assert_eq!(reader.decode(&[3, 1, 0], false), Ok("b a".into()));
        assert_eq!(reader.decode(&[3, 1, 0], true), Ok("<s> b a".into()));
        assert_eq!((reader.piece(3), reader.piece(4)), (Some("<s>".into()), None));
        assert!(Reader::new(b"{}", b"{}").is_err() && Reader::new(WORDS.as_bytes(), b"[]").is_err());
    }
}
