//! RWKV's vocabularies: a token per line, as `number literal length`, where the literal is one of
//! Python's and the length counts bytes. The longest token is taken, byte by byte
//! (<https://github.com/BlinkDL/ChatRWKV>, "RWKV World").

use super::byte_level::{ByteLevel, added_token};
use super::cuts::WHOLE;
use llmcc_text::alphabet::character;
use serde_json::{Map, Value, json};

/// The name of the file in RWKV's releases.
pub(super) const FILE: &str = "rwkv_vocab_v20230424.txt";

/// The name of the `tokenizer.json` of GPT-NeoX beside rwkv.cpp, whose vocabulary RWKV-4's models of the
/// Pile have.
pub(super) const PILE: &str = "20B_tokenizer.json";
/// The size of that vocabulary.
pub(super) const OF_PILE: usize = 50_277;
/// That of all bytes.
pub(super) const OF_BYTES: usize = 256;

/// The token of number 0, which no text has: it is around texts.
pub(super) const END: &str = "<|endoftext|>";

/// Bytes of a token. The longest of the World vocabulary has 128.
const LONGEST: usize = 1024;

/// The `tokenizer.json` of a vocabulary.
///
/// # Errors
/// The malformed part, and its line.
pub(super) fn to_tokenizer_json(file: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(file).map_err(|e| format!("byte {} is not UTF-8", e.valid_up_to()))?;
    let mut tokens = vec![];
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let read = |line: &str| {
            let (number, rest) = line.split_once(' ')?;
            let (literal, length) = rest.rsplit_once(' ')?;
            let token = python_literal(literal)?;
            (length.trim_end().parse() == Ok(token.len())).then_some(())?;
            Some((number.parse::<u32>().ok()?, token))
        };
        tokens.push(read(line).ok_or_else(|| format!("line {} is no `number literal length`", i + 1))?);
    }
    of_tokens(tokens)
}

/// The `tokenizer.json` of these tokens, beside which there is [`END`].
///
/// # Errors
/// A token or a number is there twice, or some byte is no token.
pub(super) fn of_tokens(tokens: Vec<(u32, Vec<u8>)>) -> Result<Value, String> {
    let mut vocab = Map::from_iter([(END.to_string(), json!(0))]);
    let (mut single, mut numbers) = ([false; 256], std::collections::HashSet::from([0]));
    for (number, token) in tokens {
        if token.is_empty() || token.len() > LONGEST {
            return Err(format!("token {number} has {} bytes", token.len()));
        }
        if let [byte] = token[..] {
            single[usize::from(byte)] = true;
        }
        let text: String = token.iter().map(|b| character(*b)).collect();
        if !numbers.insert(number) || vocab.insert(text, json!(number)).is_some() {
            return Err(format!("token {number} is there twice"));
        }
    }
    if let Some(byte) = single.iter().position(|there| !there) {
        return Err(format!("byte {byte:#04x} is no token: some texts would have none"));
    }
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false });
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [added_token(0, END, true)],
        "normalizer": null,
        "pre_tokenizer": bytes,
        "post_processor": null,
        "decoder": bytes,
        // Takes the longest token, as long as a text is no longer than this; `llmcc_text` has no limit.
        "model": {
            "type": "WordPiece", "unk_token": END, "continuing_subword_prefix": "",
            "max_input_chars_per_word": 1000, "vocab": vocab,
        },
    }))
}

/// The `tokenizer.json` of a vocabulary of all bytes, each by its number.
pub(super) fn of_bytes() -> Value {
    let vocab = (0..=255).map(|byte: u8| (character(byte).to_string(), json!(byte))).collect();
    ByteLevel { vocab, merges: vec![], added: vec![], cut: &WHOLE, prefix_space: false, around: None }.json()
}

/// The bytes of a literal of Python's: a text, which is UTF-8, or bytes.
fn python_literal(literal: &str) -> Option<Vec<u8>> {
    let (bytes, quoted) = literal.strip_prefix('b').map_or((false, literal), |rest| (true, rest));
    let quote = quoted.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    unescaped(quoted.strip_prefix(quote)?.strip_suffix(quote)?, bytes)
}

/// The text between quotes; in `bytes` an escape is a byte, else a character.
pub(super) fn unescaped(text: &str, bytes: bool) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (vec![], text.chars());
    let put = |out: &mut Vec<u8>, c: char| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    while let Some(c) = rest.next() {
        if c != '\\' {
            put(&mut out, c);
            continue;
        }
        let digits = match rest.next()? {
            'n' => {
                out.push(b'\n');
                0
            }
            'r' => {
                out.push(b'\r');
                0
            }
            't' => {
                out.push(b'\t');
                0
            }
            c @ ('\\' | '\'' | '"') => {
                put(&mut out, c);
                0
            }
            'x' => 2,
            'u' if !bytes => 4,
            'U' if !bytes => 8,
            _ => return None,
        };
        if digits > 0 {
            let code = (0..digits).try_fold(0u32, |n, _| Some(n << 4 | rest.next()?.to_digit(16)?))?;
            match bytes {
                true => out.push(u8::try_from(code).ok()?),
                false => put(&mut out, char::from_u32(code)?),
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals() {
        for (literal, bytes) in [
            ("'a'", &b"a"[..]),
            ("\"it's\"", b"it's"),
            (r"'\n\t\r\\\''", b"\n\t\r\\'"),
            (r"'\x85'", "\u{85}".as_bytes()),
            (r"b'\x85'", b"\x85"),
            (r"'\u2029\U0001f600'", "\u{2029}\u{1f600}".as_bytes()),
            ("'é'", "é".as_bytes()),
        ] {
            assert_eq!(python_literal(literal).as_deref(), Some(bytes), "{literal}");
        }
        for bad in ["", "a", "'a", "'", r"'\q'", r"'\x1'", r"b'\u0041'", r"'\ud800'", "''b"] {
            assert_eq!(python_literal(bad).filter(|b| !b.is_empty()), None, "{bad}");
        }
    }

    #[test]
    fn files_that_are_no_vocabulary() {
        let whole: String = (0..256).map(|b| format!("{} b'\\x{b:02x}' 1\n", b + 1)).collect();
        assert!(to_tokenizer_json(whole.as_bytes()).is_ok());
        let says = |text: &str| to_tokenizer_json(text.as_bytes()).unwrap_err();
        assert_eq!(says("1 'a' 2"), "line 1 is no `number literal length`");
        assert_eq!(says(&whole.replace("' 1\n17 ", "' 1\nx ")), "line 17 is no `number literal length`");
        assert_eq!(says(&(whole.clone() + "257 'a' 1")), "token 257 is there twice");
        assert_eq!(says(&(whole.clone() + "1 'ab' 2")), "token 1 is there twice");
        assert_eq!(
            says(&whole.replace("b'\\x07' 1", "'\\x07\\x07' 2")),
            "byte 0x07 is no token: some texts would have none"
        );
        assert_eq!(to_tokenizer_json(b"\xff").unwrap_err(), "byte 0 is not UTF-8");
    }
}
