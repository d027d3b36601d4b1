//! `tekken.json` of Mistral: tokens by rank in base64, the pattern that cuts texts, and special tokens,
//! which have the first ids. The reference is mistral-common.

use super::cuts::LLAMA3;
use super::tiktoken;
use llmcc_text::alphabet::character;
use llmcc_text::base64;
use serde::Deserialize;
use serde_json::{Value, json};

/// Special tokens that texts begin and end with, and others, whatever the settings say not.
pub(super) const ROLES: [(&str, &str); 4] =
    [("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")];

/// Special tokens of files that name none, which are those before version 8.
const OLD: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

/// Special tokens of a file; released ones have a thousand.
const MOST_SPECIAL: usize = 1 << 16;

#[derive(Deserialize)]
struct File {
    config: Config,
    vocab: Vec<Entry>,
    #[serde(default)]
    special_tokens: Option<Vec<Special>>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
    #[serde(default)]
    version: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    rank: usize,
    token_bytes: String,
}

#[derive(Deserialize)]
struct Special {
    rank: usize,
    token_str: String,
}

/// The `tokenizer.json` of such a file.
///
/// # Errors
/// The malformed part.
pub(super) fn to_tokenizer_json(file: &[u8]) -> Result<Value, String> {
    let file: File = serde_json::from_slice(file).map_err(|e| format!("no vocabulary of Mistral: {e}"))?;
    let special = specials(&file)?;
    let (total, first) = (file.config.default_vocab_size, special.len());
    let plain = total.checked_sub(first).filter(|n| *n <= file.vocab.len()).ok_or_else(|| {
        format!("`default_vocab_size` is {total}, but there are {first} special tokens and {} others", file.vocab.len())
    })?;
    let mut tokens = vec![];
    for (i, entry) in file.vocab.iter().take(plain).enumerate() {
        if entry.rank != i {
            return Err(format!("token {i} of `vocab` has rank {}", entry.rank));
        }
        let bytes = base64::decode(&entry.token_bytes).filter(|bytes| !bytes.is_empty());
        tokens.push(bytes.ok_or_else(|| format!("token {i} of `vocab` is no base64: {:?}", entry.token_bytes))?);
    }
    let added = special.iter().enumerate().map(|(id, text)| super::byte_level::added_token(id as u64, text, true));
    let mut json = tiktoken::to_tokenizer_json(&tokens, added.collect(), &LLAMA3)?;
    json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = file.config.pattern.into();
    let text = |bytes: &[u8]| -> String { bytes.iter().map(|b| character(*b)).collect() };
    let mut vocab = serde_json::Map::new();
    vocab.extend(tokens.iter().enumerate().map(|(i, bytes)| (text(bytes), json!(first + i))));
    // A token of the same text is found nowhere: the special one is cut out before.
    vocab.extend(special.into_iter().enumerate().map(|(id, text)| (text, json!(id))));
    json["model"]["vocab"] = vocab.into();
    Ok(json)
}

/// Texts of the special tokens in the order of their ids. Those that the file does not name have numbers
/// for names.
fn specials(file: &File) -> Result<Vec<String>, String> {
    let n = file.config.default_num_special_tokens;
    let mut out = match &file.special_tokens {
        Some(list) => {
            let mut list: Vec<&Special> = list.iter().collect();
            list.sort_by_key(|s| s.rank);
            if let Some((i, s)) = list.iter().enumerate().find(|(i, s)| s.rank != *i) {
                return Err(format!("special token {:?} has rank {}, where {i} is next", s.token_str, s.rank));
            }
            list.iter().map(|s| s.token_str.clone()).collect()
        }
        None if newer(file.config.version.as_deref()) => {
            return Err("`special_tokens` is missing, which versions from 8 on must have".into());
        }
        None => OLD.map(String::from).to_vec(),
    };
    if out.len() > n || n > MOST_SPECIAL {
        return Err(format!("`default_num_special_tokens` is {n}, but there are {} special tokens", out.len()));
    }
    out.extend((out.len()..n).map(|i| format!("<SPECIAL_{i}>")));
    let mut seen = std::collections::HashSet::new();
    match out.iter().find(|text| !seen.insert(text.as_str())) {
        Some(twice) => Err(format!("the special token {twice:?} is there twice")),
        None => Ok(out),
    }
}

/// Whether a version is 8 or later.
fn newer(version: Option<&str>) -> bool {
    version.and_then(|v| v.strip_prefix('v')?.parse::<u32>().ok()).is_some_and(|v| v > 7)
}
