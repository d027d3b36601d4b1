//! Text and tokens.

use crate::Token;
use crate::capi::*;
use crate::error::Result;
use crate::model::Model;
use std::fmt::Write;

/// A message of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `system`, `user`, `assistant` or another that the template knows.
    pub role: &'a str,
    /// Its text.
    pub content: &'a str,
}

impl Model {
    /// Tokens of a prompt, with the special tokens around it that the model expects.
    ///
    /// # Errors
    /// No tokenizer in the artifact, or none of its tokens for a character.
    pub fn tokenize(&self, text: &str) -> Result<Vec<Token>> {
        self.tokenize_with(text, LLMCC_ADD_SPECIAL)
    }

    /// Tokens of a text as it is: of a part of a text, or of a prompt that a chat template made. Special
    /// tokens that are written out in it are recognised.
    ///
    /// # Errors
    /// As [`Model::tokenize`].
    pub fn tokenize_plain(&self, text: &str) -> Result<Vec<Token>> {
        self.tokenize_with(text, 0)
    }

    /// Tokens of an embedder's text that begins with the prompt that it is to have.
    ///
    /// # Errors
    /// As [`Model::tokenize`].
    pub fn tokenize_prompted(&self, text: &str) -> Result<Vec<Token>> {
        self.tokenize_with(text, LLMCC_ADD_SPECIAL | LLMCC_NO_PROMPT)
    }

    fn tokenize_with(&self, text: &str, flags: u32) -> Result<Vec<Token>> {
        self.fetch(text.len() / 2 + 16, |out, capacity, needed| {
            let (start, len) = (text.as_ptr().cast(), text.len());
            // SAFETY: the text has this length, `out` room for `capacity` tokens.
            unsafe { (self.api().llmcc_tokenize)(self.handle(), start, len, flags, out, capacity, needed) }
        })
    }

    /// The text of tokens, without special ones. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// No tokenizer in the artifact, or a token outside the vocabulary.
    pub fn detokenize(&self, tokens: &[Token]) -> Result<String> {
        self.detokenize_with(tokens, 0)
    }

    /// The text of tokens, special ones by their names.
    ///
    /// # Errors
    /// As [`Model::detokenize`].
    pub fn detokenize_special(&self, tokens: &[Token]) -> Result<String> {
        self.detokenize_with(tokens, LLMCC_SHOW_SPECIAL)
    }

    fn detokenize_with(&self, tokens: &[Token], flags: u32) -> Result<String> {
        self.text(tokens.len() * 8, |out, capacity, needed| {
            let (start, n) = (tokens.as_ptr(), tokens.len());
            // SAFETY: there are so many tokens, and `out` has room for `capacity` bytes.
            unsafe { (self.api().llmcc_detokenize)(self.handle(), start, n, flags, out, capacity, needed) }
        })
    }

    /// The prompt for a conversation, by the model's chat template: for [`Model::tokenize_plain`].
    ///
    /// # Errors
    /// No chat template in the artifact, or it refuses the conversation.
    pub fn chat_prompt(&self, messages: &[Message<'_>]) -> Result<String> {
        let all: Vec<String> = messages.iter().map(Message::json).collect();
        self.chat_prompt_of_json(&format!("[{}]", all.join(",")))
    }

    /// The same for JSON: a list of messages, or an object with `messages`, `tools` and the other
    /// variables that `llmcc_apply_chat_template` takes.
    ///
    /// # Errors
    /// As [`Model::chat_prompt`]; no JSON.
    pub fn chat_prompt_of_json(&self, json: &str) -> Result<String> {
        self.text(json.len() + 256, |out, capacity, needed| {
            let (start, len) = (json.as_ptr().cast(), json.len());
            // SAFETY: the text has this length, `out` room for `capacity` bytes.
            unsafe { (self.api().llmcc_apply_chat_template)(self.handle(), start, len, out, capacity, needed) }
        })
    }

    /// The bytes that a token adds in the middle of a text, which need not be whole characters; for a special token its
    /// name.
    ///
    /// # Errors
    /// No tokenizer, or a token outside the vocabulary.
    pub fn token_bytes(&self, token: Token) -> Result<Vec<u8>> {
        // SAFETY: `out` has room for `capacity` bytes.
        self.fetch(16, |out, capacity, needed| unsafe {
            (self.api().llmcc_token_bytes)(self.handle(), token, out, capacity, needed)
        })
    }

    /// The tokens that end a generation.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn eos_tokens(&self) -> Result<Vec<Token>> {
        // SAFETY: `out` has room for `capacity` tokens.
        self.fetch(8, |out, capacity, needed| unsafe {
            (self.api().llmcc_eos_tokens)(self.handle(), out, capacity, needed)
        })
    }
}

impl Message<'_> {
    fn json(&self) -> String {
        format!("{{\"role\":{},\"content\":{}}}", quoted(self.role), quoted(self.content))
    }
}

/// A text as a string of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\0'..='\x1F' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_json() {
        let message = Message { role: "user", content: "a \"b\" \\ \n\0 é" };
        assert_eq!(message.json(), r#"{"role":"user","content":"a \"b\" \\ \u000a\u0000 é"}"#);
    }
}
