//! `tokenizer.model` (SentencePiece, arXiv 1808.06226) as a JSON for the `tokenizers` crate.
//!
//! SentencePiece's BPE merges the adjacent pair whose concatenation has the best score; here that
//! becomes an ordered list of merges. Differences remain where two pairs form the same piece
//! (SentencePiece then takes the left one).

use super::protobuf::{Field, Fields};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// A piece of the vocabulary.
pub(super) struct Piece {
    pub text: String,
    pub score: f32,
    pub kind: Kind,
}

/// `ModelProto.SentencePiece.Type`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    fn numbered(n: u64) -> Option<Kind> {
        use Kind::*;
        [Normal, Unknown, Control, UserDefined, Unused, Byte].get(usize::try_from(n.checked_sub(1)?).ok()?).copied()
    }
}

/// The parts of `ModelProto` that the conversion reads; defaults as in `sentencepiece_model.proto`.
pub(super) struct Model {
    pub pieces: Vec<Piece>,
    /// `TrainerSpec.model_type`: 1 unigram, 2 BPE.
    pub algorithm: u64,
    /// `TrainerSpec.unk_id`.
    pub unknown_id: u64,
    pub charsmap: Vec<u8>,
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    escape_whitespaces: bool,
    whitespace_as_suffix: bool,
}

/// Bytes of a piece: the ways to cut it count.
const LONGEST_PIECE: usize = 512;
/// Most merges of a vocabulary; released models have half a million.
const MOST_MERGES: usize = 1 << 23;

/// Stands for a space inside pieces.
pub(super) const SPACE: &str = "▁";

/// Converts a serialized `ModelProto`.
///
/// # Errors
/// A message naming the malformed or unsupported part.
pub(super) fn to_tokenizer_json(bytes: &[u8]) -> Result<Value, String> {
    convert(&Model::read(bytes)?)
}

/// The settings beside the pieces of a vocabulary that is no `ModelProto`.
pub(super) struct Spaces {
    /// A text begins with one whether it has it or not.
    pub prefix: bool,
    /// Several become one.
    pub collapse: bool,
}

/// Converts the pieces of a vocabulary, each with its score and the number of its type: BPE, or
/// (where characters are mapped first) Unigram.
///
/// # Errors
/// A message naming the malformed part.
pub(super) fn from_pieces(
    pieces: Vec<(String, f32, u64)>,
    spaces: &Spaces,
    charsmap: Option<Vec<u8>>,
) -> Result<Value, String> {
    let piece = |(i, (text, score, kind)): (usize, (String, f32, u64))| match Kind::numbered(kind) {
        Some(kind) => Ok(Piece { text, score, kind }),
        None => Err(format!("piece {i} is of the unknown type {kind}")),
    };
    let pieces = pieces.into_iter().enumerate().map(piece).collect::<Result<Vec<_>, _>>()?;
    if let Some(long) = pieces.iter().position(|p| p.text.len() > LONGEST_PIECE) {
        return Err(format!("piece {long} has more than {LONGEST_PIECE} bytes"));
    }
    convert(&Model {
        pieces,
        algorithm: if charsmap.is_some() { 1 } else { 2 },
        unknown_id: 0,
        charsmap: charsmap.unwrap_or_default(),
        add_dummy_prefix: spaces.prefix,
        remove_extra_whitespaces: spaces.collapse,
        escape_whitespaces: true,
        whitespace_as_suffix: false,
    })
}

/// Gives pieces the texts that `added_tokens_decoder` has for their numbers, unless other pieces have
/// these.
pub(super) fn rename(m: &mut Model, decoder: &Value) {
    let mut known: HashSet<String> = m.pieces.iter().map(|p| p.text.clone()).collect();
    for (id, token) in decoder.as_object().into_iter().flatten() {
        let Some(text) = token["content"].as_str().filter(|text| text.len() <= LONGEST_PIECE) else { continue };
        if !known.insert(text.to_string()) {
            continue;
        }
        if let Some(piece) = id.parse::<usize>().ok().and_then(|id| m.pieces.get_mut(id)) {
            piece.text = text.to_string();
        }
    }
}

/// The `tokenizer.json` that behaves like the file's own normalizer and algorithm.
///
/// # Errors
/// The unsupported part.
pub(super) fn convert(model: &Model) -> Result<Value, String> {
    model.has_prefixes()?;
    let algorithm = match model.algorithm {
        1 => unigram(model),
        2 => bpe(model)?,
        n => return Err(format!("SentencePiece model type {n} is not supported (only unigram and BPE)")),
    };
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added_tokens(model),
        "normalizer": normalizer(model),
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": decoder(model),
        "model": algorithm,
    }))
}

impl Model {
    /// Reads a serialized `ModelProto`.
    ///
    /// # Errors
    /// It is malformed.
    pub(super) fn read(bytes: &[u8]) -> Result<Model, String> {
        let mut m = Model {
            pieces: vec![],
            algorithm: 1,
            unknown_id: 0,
            charsmap: vec![],
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
            whitespace_as_suffix: false,
        };
        let malformed = || "neither a SentencePiece model nor a file of tiktoken".to_string();
        for field in Fields(bytes) {
            match field.ok_or_else(malformed)? {
                (1, Field::Bytes(b)) => m.pieces.push(piece(b).ok_or_else(malformed)?),
                (2, Field::Bytes(b)) => m.trainer(b).ok_or_else(malformed)?,
                (3, Field::Bytes(b)) => m.normalizer(b).ok_or_else(malformed)?,
                _ => {}
            }
        }
        if let Some(long) = m.pieces.iter().position(|p| p.text.len() > LONGEST_PIECE) {
            return Err(format!("piece {long} has more than {LONGEST_PIECE} bytes"));
        }
        if m.pieces.is_empty() { Err(malformed()) } else { Ok(m) }
    }

    fn trainer(&mut self, bytes: &[u8]) -> Option<()> {
        for field in Fields(bytes) {
            match field? {
                (3, Field::Int(n)) => self.algorithm = n,
                (24, Field::Int(n)) => self.whitespace_as_suffix = n != 0,
                (40, Field::Int(n)) => self.unknown_id = n,
                _ => {}
            }
        }
        Some(())
    }

    fn normalizer(&mut self, bytes: &[u8]) -> Option<()> {
        for field in Fields(bytes) {
            match field? {
                (2, Field::Bytes(b)) => self.charsmap = b.to_vec(),
                (3, Field::Int(n)) => self.add_dummy_prefix = n != 0,
                (4, Field::Int(n)) => self.remove_extra_whitespaces = n != 0,
                (5, Field::Int(n)) => self.escape_whitespaces = n != 0,
                _ => {}
            }
        }
        Some(())
    }

    /// Spaces are before words.
    ///
    /// # Errors
    /// They are behind them.
    pub(super) fn has_prefixes(&self) -> Result<(), String> {
        match self.whitespace_as_suffix {
            true => Err("whitespace as a suffix of pieces is not supported".into()),
            false => Ok(()),
        }
    }

    /// True if unknown characters fall back to byte pieces.
    pub(super) fn has_bytes(&self) -> bool {
        self.pieces.iter().any(|p| p.kind == Kind::Byte)
    }

    /// The number of the unknown piece.
    pub(super) fn unknown(&self) -> Option<usize> {
        self.pieces.iter().position(|p| p.kind == Kind::Unknown)
    }
}

fn piece(bytes: &[u8]) -> Option<Piece> {
    let mut piece = Piece { text: String::new(), score: 0.0, kind: Kind::Normal };
    for field in Fields(bytes) {
        match field? {
            (1, Field::Bytes(b)) => piece.text = std::str::from_utf8(b).ok()?.to_string(),
            (2, Field::Fixed32(b)) => piece.score = Some(f32::from_le_bytes(b)).filter(|s| s.is_finite())?,
            (3, Field::Int(n)) => piece.kind = Kind::numbered(n)?,
            _ => {}
        }
    }
    Some(piece)
}

/// Tokens cut out of the text before the algorithm runs: special ones, and symbols the trainer's
/// user fixed.
fn added_tokens(m: &Model) -> Vec<Value> {
    let fixed = |p: &Piece| matches!(p.kind, Kind::Unknown | Kind::Control | Kind::UserDefined);
    let entry = |(id, p): (usize, &Piece)| {
        json!({
            "id": id,
            "content": p.text,
            "single_word": false,
            "lstrip": false,
            "rstrip": false,
            // Symbols with spaces are met only after spaces became `▁`.
            "normalized": p.kind == Kind::UserDefined && p.text.contains(SPACE),
            "special": p.kind != Kind::UserDefined,
        })
    };
    m.pieces.iter().enumerate().filter(|(_, p)| fixed(p)).map(entry).collect()
}

/// A step that replaces a pattern.
pub(super) fn replace(pattern: Value, content: &str) -> Value {
    json!({ "type": "Replace", "pattern": pattern, "content": content })
}

/// Order as in SentencePiece: character map, extra spaces, prefix, escape; spaces at the end go
/// last, with those that the text itself wrote as `▁`.
fn normalizer(m: &Model) -> Value {
    let mut steps = vec![];
    if !m.charsmap.is_empty() {
        steps.push(json!({ "type": "Precompiled", "precompiled_charsmap": llmcc_text::base64::encode(&m.charsmap) }));
    }
    if m.remove_extra_whitespaces {
        steps.push(replace(json!({ "Regex": r"\A +" }), ""));
        steps.push(replace(json!({ "Regex": " {2,}" }), " "));
    }
    let space = if m.escape_whitespaces { SPACE } else { " " };
    if m.add_dummy_prefix {
        steps.push(json!({ "type": "Prepend", "prepend": space }));
    }
    if m.escape_whitespaces {
        steps.push(replace(json!({ "String": " " }), SPACE));
    }
    if m.remove_extra_whitespaces {
        steps.push(replace(json!({ "Regex": format!(r"(?:{space})+\z") }), ""));
    }
    json!({ "type": "Sequence", "normalizers": steps })
}

fn decoder(m: &Model) -> Value {
    decoder_of(m.add_dummy_prefix)
}

/// The decoder; without the first space if so wanted.
pub(super) fn decoder_of(stripped: bool) -> Value {
    let mut steps =
        vec![replace(json!({ "String": SPACE }), " "), json!({ "type": "ByteFallback" }), json!({ "type": "Fuse" })];
    if stripped {
        steps.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    json!({ "type": "Sequence", "decoders": steps })
}

fn unigram(m: &Model) -> Value {
    let vocab: Vec<_> = m.pieces.iter().map(|p| json!([p.text, p.score])).collect();
    json!({ "type": "Unigram", "unk_id": m.unknown(), "vocab": vocab, "byte_fallback": m.has_bytes() })
}

/// As [`bpe`], for the classes of Transformers: pieces that the trainer's user fixed are merged, too,
/// and of equal merges those with the shorter left part come first.
pub(super) fn bpe_of(m: &Model) -> Result<Value, String> {
    m.has_prefixes()?;
    bpe_with(
        m,
        |kind| matches!(kind, Kind::Normal | Kind::UserDefined | Kind::Unused),
        |m, x| {
            let chars = |id: usize| m.pieces[id].text.chars().count();
            (chars(x.left), chars(x.right))
        },
    )
}

fn bpe(m: &Model) -> Result<Value, String> {
    bpe_with(m, |kind| kind == Kind::Normal, |_, x| (x.left, x.right))
}

fn bpe_with(m: &Model, takes: fn(Kind) -> bool, order: fn(&Model, &Merge) -> (usize, usize)) -> Result<Value, String> {
    let mut ids = HashMap::new();
    for (id, p) in m.pieces.iter().enumerate() {
        if ids.insert(p.text.as_str(), id).is_some() {
            return Err(format!("piece {:?} appears twice", p.text));
        }
    }
    let mut merges = merges(m, &ids, takes);
    if merges.len() > MOST_MERGES {
        return Err(format!("its pieces join in {} ways (at most {MOST_MERGES})", merges.len()));
    }
    // Best score first; among equals the order of pieces, then of their parts.
    let place = |x: &Merge| (x.piece, order(m, x));
    merges.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| place(a).cmp(&place(b))));
    let text = |id: usize| m.pieces[id].text.as_str();
    let merges: Vec<_> = merges.iter().map(|x| json!([text(x.left), text(x.right)])).collect();
    let vocab: serde_json::Map<_, _> = m.pieces.iter().enumerate().map(|(id, p)| (p.text.clone(), json!(id))).collect();
    Ok(json!({
        "type": "BPE",
        "dropout": null,
        "unk_token": m.unknown().map(text),
        "continuing_subword_prefix": null,
        "end_of_word_suffix": null,
        "fuse_unk": true,
        "byte_fallback": m.has_bytes(),
        "ignore_merges": false,
        "vocab": vocab,
        "merges": merges,
    }))
}

/// Two pieces that join into a third; all by id.
struct Merge {
    score: f32,
    piece: usize,
    left: usize,
    right: usize,
}

/// Every way to form a piece from two others, of kinds that take part.
fn merges(m: &Model, ids: &HashMap<&str, usize>, takes: fn(Kind) -> bool) -> Vec<Merge> {
    let part = |text: &str| ids.get(text).copied().filter(|id| takes(m.pieces[*id].kind));
    let mut merges = vec![];
    for (id, p) in m.pieces.iter().enumerate().filter(|(_, p)| takes(p.kind)) {
        for (cut, _) in p.text.char_indices().skip(1) {
            let (left, right) = p.text.split_at(cut);
            if let (Some(left), Some(right)) = (part(left), part(right)) {
                merges.push(Merge { score: p.score, piece: id, left, right });
            }
        }
    }
    merges
}
