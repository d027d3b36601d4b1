//! Vocabularies over bytes that lack some: the `tokenizers` crate leaves the characters of such bytes out
//! without a word. Here they are refused.

use crate::{Error, Kind, Result, alphabet};
use tokenizers::{
    Model, ModelWrapper, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizer, PreTokenizerWrapper,
};

/// Characters that a message names.
const NAMED: usize = 8;

/// Bytes that a vocabulary lacks, and that texts have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lossy {
    missing: Vec<u8>,
    /// Words that are tokens are taken whole, whatever their bytes are.
    whole_words: bool,
}

impl Lossy {
    /// The bytes a tokenizer loses; `None`: it loses nothing, or does not work on bytes.
    pub fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Lossy> {
        let ModelWrapper::BPE(model) = tokenizer.get_model() else { return None };
        let unknown = model.unk_token.as_ref().is_some_and(|unk| model.token_to_id(unk).is_some());
        let cut = |part: &Option<String>| part.as_ref().is_some_and(|text| !text.is_empty());
        let other = unknown || cut(&model.continuing_subword_prefix) || cut(&model.end_of_word_suffix);
        if other || !over_bytes(tokenizer) {
            return None;
        }
        let has = |byte: u8| model.token_to_id(alphabet::character(byte).encode_utf8(&mut [0; 4])).is_some();
        let missing: Vec<u8> = (0..=u8::MAX).filter(|b| occurs(*b) && !has(*b)).collect();
        (!missing.is_empty()).then_some(Lossy { missing, whole_words: model.ignore_merges })
    }

    /// The bytes.
    pub fn missing(&self) -> &[u8] {
        &self.missing
    }

    /// Checks that all of a text becomes tokens.
    ///
    /// # Errors
    /// [`Kind::Invalid`], with the characters that would be lost.
    pub(crate) fn check(&self, tokenizer: &tokenizers::Tokenizer, text: &str) -> Result<()> {
        let refused = |e: tokenizers::Error| Error::new(Kind::Invalid, format!("the tokenizer refused the text: {e}"));
        let mut parts = tokenizer.get_added_vocabulary().extract_and_normalize(tokenizer.get_normalizer(), text);
        if let Some(words) = tokenizer.get_pre_tokenizer() {
            words.pre_tokenize(&mut parts).map_err(refused)?;
        }
        let model = tokenizer.get_model();
        let mut lost = [false; 256];
        for (part, _, tokens) in parts.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            if tokens.is_some() || self.whole_words && model.token_to_id(part).is_some() {
                continue;
            }
            let bytes = part.chars().filter_map(alphabet::byte).filter(|b| self.missing.contains(b));
            bytes.for_each(|byte| lost[usize::from(byte)] = true);
        }
        let lost: Vec<u8> = (0..=u8::MAX).filter(|b| lost[usize::from(*b)]).collect();
        if lost.is_empty() { Ok(()) } else { Err(refusal(text, &lost)) }
    }
}

/// The error for a text with bytes that would be lost.
pub(crate) fn refusal(text: &str, lost: &[u8]) -> Error {
    let mut found: Vec<char> = vec![];
    for c in text.chars().filter(|c| c.encode_utf8(&mut [0; 4]).bytes().any(|b| lost.contains(&b))) {
        if !found.contains(&c) && found.len() <= NAMED {
            found.push(c);
        }
    }
    let more = if found.len() > NAMED { " and others" } else { "" };
    let characters: Vec<String> = found.iter().take(NAMED).map(|c| format!("{c:?}")).collect();
    let bytes: Vec<String> = lost.iter().take(NAMED).map(|b| format!("{b:#04x}")).collect();
    let what = match characters.is_empty() {
        true => format!("bytes that the vocabulary has no token for: {}", bytes.join(", ")),
        false => format!("characters that the vocabulary has no token for: {}{more}", characters.join(", ")),
    };
    Error::new(Kind::Invalid, format!("the text has {what}; leave them out, for the model cannot see them"))
}

/// Whether texts have this byte: the others are no part of UTF-8.
fn occurs(byte: u8) -> bool {
    !matches!(byte, 0xc0 | 0xc1 | 0xf5..)
}

/// Whether texts become characters for bytes.
fn over_bytes(tokenizer: &tokenizers::Tokenizer) -> bool {
    fn words(part: &PreTokenizerWrapper) -> bool {
        match part {
            PreTokenizerWrapper::ByteLevel(_) => true,
            PreTokenizerWrapper::Sequence(parts) => parts.as_ref().iter().any(words),
            _ => false,
        }
    }
    fn texts(part: &NormalizerWrapper) -> bool {
        match part {
            NormalizerWrapper::ByteLevel(_) => true,
            NormalizerWrapper::Sequence(parts) => parts.as_ref().iter().any(texts),
            _ => false,
        }
    }
    tokenizer.get_pre_tokenizer().is_some_and(words) || tokenizer.get_normalizer().is_some_and(texts)
}

#[cfg(test)]
mod tests {
    use crate::{Config, Kind, Tokenizer};

    /// BPE over bytes without most of them; `unknown` is the token for unknown bytes.
    fn tokenizer(unknown: &str, whole_words: bool) -> Tokenizer {
        let json = format!(
            r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{{"id": 4, "content": "é!",
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}}],
            "normalizer": null, "post_processor": null, "decoder": {{"type": "ByteLevel", "add_prefix_space": false,
            "trim_offsets": false, "use_regex": false}}, "pre_tokenizer": {{"type": "Sequence", "pretokenizers": [
            {{"type": "WhitespaceSplit"}}, {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
            "use_regex": false}}]}}, "model": {{"type": "BPE", "dropout": null, "unk_token": {unknown},
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": {whole_words}, "vocab": {{"a": 0, "b": 1, "ab": 2, "Ã©": 3}},
            "merges": [["a", "b"]]}}}}"#
        );
        Tokenizer::new(&json, &Config::default()).unwrap()
    }

    #[test]
    fn lost_characters_are_refused() {
        let t = tokenizer("null", false);
        assert_eq!(t.encode("ab a", false).unwrap(), [2, 0]);
        assert_eq!(t.encode("abé!", false).unwrap(), [2, 4], "an added token loses nothing");
        for text in ["abé", "中", "a\u{301}"] {
            let error = t.encode(text, true).unwrap_err();
            assert_eq!(error.kind, Kind::Invalid);
            let last = text.chars().last().unwrap();
            assert!(error.message.contains(&format!("no token for: {last:?};")), "{error}");
            assert!(t.encode_pair("a", text, None).is_err());
        }
        let many = "cdefghijklmnop";
        assert!(
            t.encode(many, false).unwrap_err().message.contains("'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j' and others")
        );
        assert_eq!(tokenizer("null", true).encode("é ab", false).unwrap(), [3, 2], "a word that is a token");
        assert_eq!(
            tokenizer("\"b\"", false).encode("aé", false).unwrap(),
            [2, 1],
            "unknown ones have a token, which merges"
        );
    }
}
