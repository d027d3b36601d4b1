//! Vocabularies without merges: of a text the longest token is taken, then of the rest (RWKV's).
//!
//! As a `tokenizer.json` such a vocabulary is a WordPiece model over bytes whose words have no end and
//! whose tokens all look alike. The `tokenizers` crate searches these in cubic time, so they are
//! searched here.

use crate::{Result, alphabet, lossy};
use tokenizers::{ModelWrapper, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizerWrapper};

/// The tokens in the order of their bytes.
pub(crate) struct Longest {
    /// Bytes of all tokens.
    bytes: Vec<u8>,
    /// Ranges of these, and ids.
    tokens: Vec<(u32, u32, u32)>,
}

impl Longest {
    /// The vocabulary of a tokenizer; `None` if it is of another kind.
    pub fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Longest> {
        let ModelWrapper::WordPiece(model) = tokenizer.get_model() else { return None };
        let Some(PreTokenizerWrapper::ByteLevel(words)) = tokenizer.get_pre_tokenizer() else { return None };
        let whole = !words.use_regex && !words.add_prefix_space && tokenizer.get_normalizer().is_none();
        if !whole || !model.continuing_subword_prefix.is_empty() {
            return None;
        }
        let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let vocab = tokenizer.get_vocab(false).into_iter().filter(|(_, id)| !added.contains_key(id));
        let of_bytes =
            |(text, id): (String, u32)| Some((text.chars().map(alphabet::byte).collect::<Option<Vec<u8>>>()?, id));
        let mut all: Vec<(Vec<u8>, u32)> = vocab.filter_map(of_bytes).filter(|(token, _)| !token.is_empty()).collect();
        all.sort_unstable();
        let (mut bytes, mut tokens) = (Vec::new(), Vec::new());
        for (token, id) in all {
            tokens.push((u32::try_from(bytes.len()).ok()?, u32::try_from(token.len()).ok()?, id));
            bytes.extend(token);
        }
        Some(Longest { bytes, tokens })
    }

    /// Ids of a text; added tokens written out in it are recognised.
    ///
    /// # Errors
    /// No token begins with some byte.
    pub fn encode(&self, tokenizer: &tokenizers::Tokenizer, text: &str) -> Result<Vec<i32>> {
        let added = tokenizer.get_added_vocabulary();
        let split = added.extract_and_normalize(None::<&NormalizerWrapper>, text);
        let mut ids = Vec::new();
        for (part, _, tokens) in split.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            match tokens {
                Some(tokens) => ids.extend(tokens.iter().map(|t| t.id as i32)),
                None => self.part(part, &mut ids)?,
            }
        }
        Ok(ids)
    }

    fn part(&self, text: &str, ids: &mut Vec<i32>) -> Result<()> {
        let mut rest = text.as_bytes();
        while let Some(byte) = rest.first() {
            let (id, len) = self.first(rest).ok_or_else(|| lossy::refusal(text, &[*byte]))?;
            ids.push(id as i32);
            rest = rest.get(len..).unwrap_or_default();
        }
        Ok(())
    }

    /// The longest token that a text begins with, and its length.
    fn first(&self, text: &[u8]) -> Option<(u32, usize)> {
        let byte = |(start, len, _): &(u32, u32, u32), at: usize| {
            if at < *len as usize { self.bytes.get(*start as usize + at).copied() } else { None }
        };
        let (mut among, mut found) = (&self.tokens[..], None);
        for (at, next) in text.iter().enumerate() {
            // All of these begin with the bytes so far; one that ends here comes first.
            let from = among.partition_point(|t| byte(t, at).is_none_or(|b| b < *next));
            let to = among.partition_point(|t| byte(t, at).is_none_or(|b| b <= *next));
            among = &among[from..to];
            let Some(first) = among.first() else { break };
            if first.1 as usize == at + 1 {
                found = Some((first.2, at + 1));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Tokenizer};

    /// A tokenizer with `model`, and the members before it.
    fn json(prefix: &str, words: bool) -> String {
        let tokens = ["<|endoftext|>", "a", "b", "c", "ab", "abcab", "Ġ", "Ġa", "Ã", "©", "Ã©"];
        let vocab: Vec<String> = tokens.iter().enumerate().map(|(id, t)| format!("\"{t}\": {id}")).collect();
        format!(
            r#"{{"version": "1.0", "added_tokens": [{{"id": 0, "content": "<|endoftext|>", "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false, "special": true}}], "normalizer": null,
            "post_processor": null, "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false,
            "trim_offsets": false, "use_regex": {words}}}, "decoder": {{"type": "ByteLevel",
            "add_prefix_space": false, "trim_offsets": false, "use_regex": false}}, "model": {{"type": "WordPiece",
            "unk_token": "<|endoftext|>", "continuing_subword_prefix": "{prefix}",
            "max_input_chars_per_word": 1000, "vocab": {{{}}}}}}}"#,
            vocab.join(", ")
        )
    }

    #[test]
    fn the_longest_token_is_taken() {
        let tokenizer = Tokenizer::new(&json("", false), &Config::default()).unwrap();
        for (text, ids) in [
            ("", &[][..]),
            ("abcab", &[5]),
            ("abca", &[4, 3, 1]),
            ("abcaab", &[4, 3, 1, 4]),
            ("a a b", &[1, 7, 6, 2]),
            ("é", &[10]),
            ("ab<|endoftext|>c", &[4, 0, 3]),
        ] {
            assert_eq!(tokenizer.encode(text, true).unwrap(), ids, "{text:?}");
        }
        let error = tokenizer.encode("aé中", true).unwrap_err().message;
        assert!(error.contains("no token for: '中'"), "{error}");
        assert_eq!(tokenizer.decode(&[4, 0, 10, 7], true).unwrap(), "ab<|endoftext|>é a");
        assert_eq!(tokenizer.bytes(8).unwrap(), [0xc3]);
        // The crate's own search finds the same.
        for text in ["abcabab", "a abcab b", "éab"] {
            let own: Vec<i32> =
                tokenizer.inner.encode(text, false).unwrap().get_ids().iter().map(|id| *id as i32).collect();
            assert_eq!(tokenizer.encode(text, false).unwrap(), own, "{text:?}");
        }
    }

    #[test]
    fn other_kinds_are_left_to_the_crate() {
        for (prefix, words) in [("##", false), ("", true)] {
            let inner = tokenizers::Tokenizer::from_bytes(json(prefix, words)).unwrap();
            assert!(Longest::of(&inner).is_none());
        }
    }
}
