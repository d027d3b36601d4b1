//! Vocabularies of checkpoints without a `tokenizer.json`: `vocab.json` with `merges.txt`,
//! `vocab.txt`, files of tiktoken. Which tokenizer they belong to says `tokenizer_class` in
//! `tokenizer_config.json`; what it does is what Transformers makes of such a folder.

use super::byte_level::{ByteLevel, added_token};
use super::cuts::{Cut, GPT2, LLAMA3, QWEN2};
use super::tiktoken;
use super::word_piece::WordPiece;
use super::{special_token, token_text};
use serde_json::{Map, Value, json};

/// Classes of tokenizers over bytes.
const BYTE_LEVEL: &[(&[&str], &Cut)] = &[
    (&["GPT2Tokenizer", "CodeGenTokenizer", "GPTNeoXTokenizer"], &GPT2),
    (&["RobertaTokenizer", "LongformerTokenizer", "BartTokenizer"], &GPT2),
    (&["Qwen2Tokenizer"], &QWEN2),
];

/// Classes whose texts have a token before and one after.
const AROUND: &[&str] = &["RobertaTokenizer", "LongformerTokenizer", "BartTokenizer"];

/// Classes of WordPiece.
const WORD_PIECE: &[&str] =
    &["BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "MPNetTokenizer"];

/// What is known beside a vocabulary.
pub(super) struct Settings<'a> {
    /// `tokenizer_config.json`.
    pub config: &'a Value,
    /// `special_tokens_map.json`.
    pub map: &'a Value,
    /// `added_tokens.json`.
    pub added: &'a Value,
}

impl Settings<'_> {
    /// The class, without the ending of the fast ones, or what it is where none is said.
    fn class<'a>(&'a self, default: &'a str) -> &'a str {
        self.config["tokenizer_class"].as_str().map_or(default, |c| c.strip_suffix("Fast").unwrap_or(c))
    }

    fn special(&self, name: &str) -> Option<String> {
        special_token(self.config, self.map, name)
    }

    /// Ids and contents of tokens that are cut out of texts, and whether they are special.
    fn added(&self, id: &dyn Fn(&str) -> Option<u64>) -> Result<Vec<Value>, String> {
        let mut out: Vec<(u64, String, bool)> = vec![];
        let mut add = |id: u64, text: String, special: bool| {
            if out.iter().all(|(known, ..)| *known != id) {
                out.push((id, text, special));
            }
        };
        for (number, token) in self.config["added_tokens_decoder"].as_object().into_iter().flatten() {
            let wrong = || format!("`added_tokens_decoder` has no token {number:?}");
            let (id, text) = (number.parse().map_err(|_| wrong())?, token_text(Some(token)).ok_or_else(wrong)?);
            add(id, text, token["special"].as_bool().unwrap_or(false));
        }
        for (text, number) in self.added.as_object().into_iter().flatten() {
            let id = number.as_u64().ok_or_else(|| format!("`added_tokens.json` has no id of {text:?}"))?;
            add(id, text.clone(), true);
        }
        let names = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
        for text in names.iter().filter_map(|name| self.special(name)) {
            if let Some(id) = id(&text) {
                add(id, text, true);
            }
        }
        out.sort();
        Ok(out.into_iter().map(|(id, text, special)| added_token(id, &text, special)).collect())
    }
}

/// `vocab.json` and `merges.txt`.
///
/// # Errors
/// What is malformed, or not known.
pub(super) fn byte_level(vocab: &[u8], merges: &[u8], s: &Settings<'_>) -> Result<Value, String> {
    let vocab: Map<String, Value> = serde_json::from_slice(vocab).map_err(|e| format!("no vocabulary: {e}"))?;
    let class = s.class("GPT2Tokenizer");
    let cut = BYTE_LEVEL.iter().find(|(classes, _)| classes.contains(&class)).map(|(_, cut)| *cut);
    let cut = cut.ok_or_else(|| {
        let known: Vec<&str> = BYTE_LEVEL.iter().flat_map(|(classes, _)| *classes).copied().collect();
        format!("`tokenizer_class` is {class:?}; of a vocab.json are read {}", known.join(", "))
    })?;
    let merges = std::str::from_utf8(merges).map_err(|_| "merges.txt is no UTF-8".to_string())?;
    let lines =
        merges.lines().enumerate().filter(|(i, line)| !(line.is_empty() || *i == 0 && line.starts_with("#version")));
    let pair = |(i, line): (usize, &str)| match line.split_once(' ') {
        Some((left, right)) => Ok(json!([left, right])),
        None => Err(format!("line {} of merges.txt is no pair", i + 1)),
    };
    let merges = lines.map(pair).collect::<Result<Vec<_>, _>>()?;
    let id = |text: &str| vocab.get(text).and_then(Value::as_u64);
    let added = s.added(&id)?;
    let around = match AROUND.contains(&class) {
        true => {
            let end = |name: &str, other: &str| {
                let text = s.special(name).unwrap_or_else(|| other.to_string());
                id(&text).map(|id| (text.clone(), id)).ok_or_else(|| format!("there is no token {text:?}"))
            };
            Some([end("cls_token", "<s>")?, end("sep_token", "</s>")?])
        }
        false => None,
    };
    let prefix_space = s.config["add_prefix_space"].as_bool().unwrap_or(false);
    if prefix_space && cut.patterns != GPT2.patterns {
        return Err(format!("`add_prefix_space` is true, which {class} does not have"));
    }
    Ok(ByteLevel { vocab, merges, added, cut, prefix_space, around }.json())
}

/// `vocab.txt`: a token per line.
///
/// # Errors
/// What is malformed, or not known.
pub(super) fn word_piece(vocab: &[u8], s: &Settings<'_>) -> Result<Value, String> {
    let text = std::str::from_utf8(vocab).map_err(|_| "no UTF-8".to_string())?;
    let class = s.class("BertTokenizer");
    if !WORD_PIECE.contains(&class) {
        return Err(format!("`tokenizer_class` is {class:?}; of a vocab.txt are read {}", WORD_PIECE.join(", ")));
    }
    let [first, last, unknown, others @ ..] = &match class {
        "MPNetTokenizer" => ["<s>", "</s>", "[UNK]", "<pad>", "<mask>"],
        _ => ["[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"],
    };
    let said = |name: &str, default: &str| s.special(name).unwrap_or_else(|| default.to_string());
    let (first, last) = (said("cls_token", first), said("sep_token", last));
    let unknown = said("unk_token", unknown);
    let flag = |name: &str, default: bool| s.config[name].as_bool().unwrap_or(default);
    WordPiece {
        tokens: text.lines().map(|line| line.trim_end_matches('\r').to_string()).collect(),
        unknown: &unknown,
        first: &first,
        last: &last,
        others: others.to_vec(),
        lowercase: flag("do_lower_case", true),
        strip_accents: s.config["strip_accents"].as_bool(),
        chinese: flag("tokenize_chinese_chars", true),
        twice: class == "MPNetTokenizer",
    }
    .json()
}

/// Whether a file is one of tiktoken: then its `tokenizer.json`. Texts are cut as by cl100k_base, with
/// words that are tokens whole (Llama 3).
///
/// # Errors
/// What is malformed.
pub(super) fn tiktoken(file: &[u8], s: &Settings<'_>) -> Option<Result<Value, String>> {
    let tokens = tiktoken::ranks(file)?;
    let id = |_: &str| None;
    let made = s.added(&id).and_then(|mut added| {
        if added.is_empty() && tokens.len() == 128_000 {
            added = tiktoken::specials(tokens.len(), &tiktoken::llama3_specials());
        }
        tiktoken::to_tokenizer_json(&tokens, added, &LLAMA3)
    });
    Some(made)
}
