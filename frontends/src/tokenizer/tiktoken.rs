//! Files of tiktoken: a token per line, in base64, and its rank. Llama 3 has one under the name
//! `tokenizer.model`.
//!
//! Such a file says no merges. They follow from the ranks: a token was made by the last merge of its
//! own bytes.

use super::byte_level::ByteLevel;
use super::cuts::Cut;
use llmcc_text::alphabet::character;
use llmcc_text::base64;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Bytes of a token; the ways to cut it count.
const LONGEST: usize = 1024;

/// Ranks by bytes; `None` if this is no such file.
pub(super) fn ranks(file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let text = std::str::from_utf8(file).ok()?;
    let mut out = vec![];
    for (i, line) in text.lines().enumerate() {
        let (token, rank) = line.split_once(' ')?;
        if rank.trim().parse() != Ok(i) {
            return None;
        }
        out.push(base64::decode(token).filter(|bytes| !bytes.is_empty())?);
    }
    (!out.is_empty()).then_some(out)
}

/// The `tokenizer.json` of these tokens; `added` follow them.
///
/// # Errors
/// A token is no merge of others.
pub(super) fn to_tokenizer_json(tokens: &[Vec<u8>], added: Vec<Value>, cut: &Cut) -> Result<Value, String> {
    let mut ranks: HashMap<&[u8], usize> = HashMap::new();
    for (rank, token) in tokens.iter().enumerate() {
        if token.is_empty() || token.len() > LONGEST {
            return Err(format!("token {rank} has {} bytes", token.len()));
        }
        if ranks.insert(token, rank).is_some() {
            return Err(format!("token {rank} appears twice"));
        }
    }
    let text = |bytes: &[u8]| -> String { bytes.iter().map(|b| character(*b)).collect() };
    let mut merges = vec![];
    for (rank, token) in tokens.iter().enumerate().filter(|(_, t)| t.len() > 1) {
        // A token that no merge makes is found as a whole only.
        if let Some(at) = last_merge(token, rank, &ranks) {
            merges.push(json!([text(&token[..at]), text(&token[at..])]));
        }
    }
    let vocab: Map<String, Value> = tokens.iter().enumerate().map(|(id, t)| (text(t), json!(id))).collect();
    Ok(ByteLevel { vocab, merges, added, cut, prefix_space: false, around: None }.json())
}

/// Where the two parts meet that the last merge joins into the token of this rank.
fn last_merge(token: &[u8], rank: usize, ranks: &HashMap<&[u8], usize>) -> Option<usize> {
    // Ends of the parts.
    let mut ends: Vec<usize> = (1..=token.len()).collect();
    while ends.len() > 2 {
        let from = |i: usize| if i == 0 { 0 } else { ends[i - 1] };
        let pair = |i: usize| ranks.get(&token[from(i)..ends[i + 1]]).copied().filter(|r| *r < rank);
        let (_, i) = (0..ends.len() - 1).filter_map(|i| Some((pair(i)?, i))).min()?;
        ends.remove(i);
    }
    Some(ends[0])
}

/// The tokens after the tokens of Llama 3's file.
pub(super) fn llama3_specials() -> Vec<String> {
    let reserved = |n: usize| format!("<|reserved_special_token_{n}|>");
    let mut out: Vec<String> = ["<|begin_of_text|>", "<|end_of_text|>"].map(String::from).to_vec();
    out.extend((0..4).map(reserved));
    out.extend(["<|start_header_id|>", "<|end_header_id|>"].map(String::from));
    out.push(reserved(4));
    out.push("<|eot_id|>".into());
    out.extend((5..251).map(reserved));
    out
}
