//! Vocabularies as llama2.c writes them (`tokenizer.py` of <https://github.com/karpathy/llama2.c>): the
//! longest length, then of each piece its score, its length and its text, in which spaces are spaces.

use super::sentencepiece::{self, Spaces};
use serde_json::Value;

/// Bytes of a piece.
const LONGEST: usize = 512;

/// Types of pieces, as SentencePiece numbers them.
const NORMAL: u64 = 1;
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const BYTE: u64 = 6;

/// The `tokenizer.json` of a vocabulary of `vocab` pieces.
///
/// # Errors
/// The file is cut, or has another number of pieces.
pub(super) fn to_tokenizer_json(file: &[u8], vocab: usize) -> Result<Value, String> {
    let mut rest = file.get(4..).ok_or("the file has no header")?;
    let mut pieces = vec![];
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let [s0, s1, s2, s3, n0, n1, n2, n3] = *head;
        let (score, len) = (f32::from_le_bytes([s0, s1, s2, s3]), u32::from_le_bytes([n0, n1, n2, n3]) as usize);
        let i = pieces.len();
        let text = after.get(..len).filter(|_| len <= LONGEST).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| format!("piece {i} is not a text of {len} bytes"))?;
        let score = if score.is_finite() { score } else { return Err(format!("the score of piece {i} is {score}")) };
        pieces.push(piece(i, text, score));
        rest = &after[len..];
    }
    if !rest.is_empty() || pieces.len() != vocab {
        return Err(format!("it has {} whole pieces, but the model has {vocab} tokens", pieces.len()));
    }
    sentencepiece::from_pieces(pieces, &Spaces { prefix: true, collapse: false }, None)
}

/// The first three are the unknown token and two control tokens.
fn piece(i: usize, text: &str, score: f32) -> (String, f32, u64) {
    let byte = text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
    let kind = match i {
        0 => UNKNOWN,
        1 | 2 => CONTROL,
        _ if byte => BYTE,
        _ => NORMAL,
    };
    let text = if kind == CONTROL { text.trim_matches('\n').to_string() } else { text.replace(' ', "\u{2581}") };
    (text, score, kind)
}
