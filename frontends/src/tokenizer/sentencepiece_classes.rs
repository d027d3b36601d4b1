//! Transformers 5's classes for SentencePiece models: the vocabulary as they number it, and their
//! own normalizers in place of the file's.

use super::outside::Named;
use super::post::{self, Around};
use super::sentencepiece::{Kind, Model, SPACE, bpe_of, decoder_of, replace};
use super::token::{Flags, Token};
use serde_json::{Value, json};

/// A class, and its conversion of a model.
pub(super) struct Pieces {
    /// Its name.
    name: &'static str,
    /// The `tokenizer.json` without added tokens.
    make: fn(&Model, &Of<'_>) -> Result<Value, String>,
    /// The tokens around texts.
    pub around: Option<&'static Around>,
    /// Texts begin with BOS unless the settings say no.
    pub begins: bool,
}

/// The settings beside a model.
pub(super) struct Of<'a> {
    /// `tokenizer_config.json`.
    pub config: &'a Value,
    /// Special tokens.
    pub named: &'a Named,
}

impl Of<'_> {
    fn role<'b>(&'b self, role: &str, default: &'b str) -> &'b str {
        self.named.role(role).unwrap_or(default)
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool, String> {
        match &self.config[name] {
            Value::Null => Ok(default),
            Value::Bool(flag) => Ok(*flag),
            other => Err(format!("`{name}` of tokenizer_config.json is {other}; it must be true or false")),
        }
    }

    /// Whether words begin with a space, and which.
    fn prefix(&self) -> Result<&'static str, String> {
        Ok(if self.flag("add_prefix_space", true)? { "always" } else { "never" })
    }
}

const fn pieces(
    name: &'static str,
    make: fn(&Model, &Of<'_>) -> Result<Value, String>,
    around: Option<&'static Around>,
) -> Pieces {
    Pieces { name, make, around, begins: false }
}

const CLASSES: &[Pieces] = &[
    pieces("LlamaTokenizer", llama, None),
    Pieces { begins: true, ..pieces("CodeLlamaTokenizer", code_llama, None) },
    pieces("GemmaTokenizer", gemma, None),
    pieces("T5Tokenizer", t5, Some(&post::ENDED)),
    pieces("XLMRobertaTokenizer", xlm_roberta, Some(&post::FAIRSEQ)),
    pieces("CamembertTokenizer", camembert, Some(&post::FAIRSEQ)),
    pieces("BarthezTokenizer", barthez, None),
    pieces("AlbertTokenizer", albert, Some(&post::BERT)),
    pieces("FNetTokenizer", albert, Some(&post::BERT)),
    pieces("XLNetTokenizer", xlnet, Some(&post::XLNET)),
    pieces("BigBirdTokenizer", big_bird, Some(&post::BERT)),
    pieces("RemBertTokenizer", rembert, Some(&post::BERT)),
    pieces("DebertaV2Tokenizer", deberta_v2, Some(&post::BERT)),
    pieces("XGLMTokenizer", xglm, Some(&post::XGLM)),
];

/// Classes of Transformers that have a SentencePiece model and are not read.
const OTHERS: &[&str] = &[
    "BartphoTokenizer",
    "BertJapaneseTokenizer",
    "CpmTokenizer",
    "GPTSw3Tokenizer",
    "LayoutXLMTokenizer",
    "M2M100Tokenizer",
    "MBart50Tokenizer",
    "MBartTokenizer",
    "MLukeTokenizer",
    "MarianTokenizer",
    "NllbTokenizer",
    "PLBartTokenizer",
    "PegasusTokenizer",
    "ReformerTokenizer",
    "SeamlessM4TTokenizer",
    "SiglipTokenizer",
    "Speech2TextTokenizer",
    "SpeechT5Tokenizer",
    "UdopTokenizer",
];

/// Names of the classes that are read.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CLASSES.iter().map(|c| c.name)
}

/// A class's conversion of SentencePiece models; `None`: nothing of its own.
///
/// # Errors
/// The class is known and not read.
pub(super) fn named(name: Option<&str>) -> Result<Option<&'static Pieces>, String> {
    let found = CLASSES.iter().find(|c| Some(c.name) == name);
    match name.filter(|name| OTHERS.contains(name)) {
        Some(name) => {
            let known: Vec<&str> = names().collect();
            Err(format!("`tokenizer_class` is {name:?}; supported with a SentencePiece model are {}", known.join(", ")))
        }
        None => Ok(found),
    }
}

/// Tokens of a model that are cut out of texts, and those that a class adds to them.
pub(super) fn fixed(m: &Model, name: Option<&str>, config: &Value) -> Vec<Token> {
    let cut = m.pieces.iter().filter(|p| matches!(p.kind, Kind::Control | Kind::UserDefined));
    let flags = |special: bool| Flags { special, ..Flags::NONE };
    let mut out: Vec<Token> = cut.map(|p| Token::flagged(&p.text, flags(p.kind == Kind::Control))).collect();
    let mut more = |texts: Vec<String>| out.extend(texts.iter().map(|text| Token::plain(text)));
    match name {
        Some("T5Tokenizer") => more(extra_ids(config)),
        Some("XGLMTokenizer") => more(madeup_words()),
        _ => {}
    }
    out
}

impl Pieces {
    /// The `tokenizer.json` without added tokens.
    ///
    /// # Errors
    /// The malformed or unsupported part.
    pub fn json(&self, m: &Model, of: &Of<'_>) -> Result<Value, String> {
        (self.make)(m, of)
    }
}

/// The most tokens of `extra_ids`.
const MOST_EXTRA: u64 = 10_000;

fn extra_ids(config: &Value) -> Vec<String> {
    let n = config["extra_ids"].as_u64().unwrap_or(100).min(MOST_EXTRA);
    (0..n).rev().map(|i| format!("<extra_id_{i}>")).collect()
}

fn madeup_words() -> Vec<String> {
    (0..7).map(|i| format!("<madeupword{i}>")).collect()
}

fn whole(normalizer: Value, pre_tokenizer: Value, decoder: Value, model: Value) -> Value {
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": decoder,
        "model": model,
    })
}

fn metaspace(scheme: &str, split: bool) -> Value {
    json!({ "type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split })
}

/// Words between white space, each with its space.
fn spaced_words(scheme: &str) -> Value {
    json!({ "type": "Sequence", "pretokenizers": [{ "type": "WhitespaceSplit" }, metaspace(scheme, true)] })
}

fn sequence(steps: Vec<Value>) -> Value {
    json!({ "type": "Sequence", "normalizers": steps })
}

fn charsmap(m: &Model) -> Option<Value> {
    let text = (!m.charsmap.is_empty()).then(|| llmcc_text::base64::encode(&m.charsmap))?;
    Some(json!({ "type": "Precompiled", "precompiled_charsmap": text }))
}

fn several_spaces(to: &str) -> Value {
    replace(json!({ "Regex": " {2,}" }), to)
}

type Scored = Vec<(String, f32)>;

fn scored(m: &Model, from: usize) -> Scored {
    m.pieces.iter().skip(from).map(|p| (p.text.clone(), p.score)).collect()
}

fn unigram(vocab: Scored, unknown: usize, bytes: bool) -> Result<Value, String> {
    if unknown >= vocab.len() {
        return Err(format!("the unknown token is number {unknown} of {}", vocab.len()));
    }
    Ok(json!({ "type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": bytes }))
}

/// The number of the unknown token if it is there with a score of 0, as some classes look for it.
fn unknown_at(vocab: &Scored, text: &str, or: usize) -> usize {
    vocab.iter().position(|(t, score)| t == text && *score == 0.0).unwrap_or(or)
}

fn llama(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    let prefix = of.flag("add_prefix_space", true)?;
    let scheme = match (prefix, of.flag("legacy", false)?) {
        (false, _) => "never",
        (true, true) => "always",
        (true, false) => "first",
    };
    llama_with(m, scheme, prefix)
}

fn code_llama(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    llama_with(m, if of.flag("add_prefix_space", true)? { "first" } else { "never" }, true)
}

fn llama_with(m: &Model, scheme: &str, stripped: bool) -> Result<Value, String> {
    let model = match m.algorithm {
        1 => unigram(scored(m, 0), m.unknown().unwrap_or(0), m.has_bytes())?,
        _ => bpe_of(m)?,
    };
    Ok(whole(Value::Null, metaspace(scheme, false), decoder_of(stripped), model))
}

fn gemma(m: &Model, _: &Of<'_>) -> Result<Value, String> {
    let pre =
        json!({ "type": "Split", "pattern": { "String": " " }, "behavior": "MergedWithPrevious", "invert": false });
    Ok(whole(replace(json!({ "String": " " }), SPACE), pre, decoder_of(false), bpe_of(m)?))
}

fn t5(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    let mut vocab = scored(m, 0);
    vocab.extend(extra_ids(of.config).into_iter().map(|text| (text, 0.0)));
    let normalizer = charsmap(m).unwrap_or(Value::Null);
    Ok(whole(normalizer, spaced_words("always"), metaspace("always", true), unigram(vocab, 2, false)?))
}

/// Fairseq's numbers: four tokens of its own in place of the file's first three.
fn fairseq(m: &Model, of: &Of<'_>) -> Scored {
    let own = [("bos_token", "<s>"), ("pad_token", "<pad>"), ("eos_token", "</s>"), ("unk_token", "<unk>")];
    let mut vocab: Scored = own.iter().map(|(role, text)| (of.role(role, text).to_string(), 0.0)).collect();
    vocab.extend(scored(m, 3));
    vocab
}

fn xlm_roberta(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    let mut vocab = fairseq(m, of);
    vocab.push((of.role("mask_token", "<mask>").into(), 0.0));
    let scheme = of.prefix()?;
    let normalizer = charsmap(m).unwrap_or(Value::Null);
    Ok(whole(normalizer, spaced_words(scheme), metaspace(scheme, true), unigram(vocab, 3, false)?))
}

fn xglm(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    let mut vocab = fairseq(m, of);
    vocab.extend(madeup_words().into_iter().map(|text| (text, 0.0)));
    let scheme = of.prefix()?;
    let steps = charsmap(m).into_iter().chain([several_spaces(" ")]).collect();
    Ok(whole(sequence(steps), metaspace(scheme, true), metaspace(scheme, true), unigram(vocab, 3, false)?))
}

fn camembert(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    of_unigram(m, "CamembertTokenizer")?;
    let unknown = of.role("unk_token", "<unk>");
    let own = [
        ("<s>NOTUSED", 0.0),
        (of.role("pad_token", "<pad>"), 0.0),
        ("</s>NOTUSED", 0.0),
        (unknown, 0.0),
        ("<unk>NOTUSED", -100.0),
    ];
    let mut vocab: Scored = own.iter().map(|(text, score)| ((*text).to_string(), *score)).collect();
    vocab.extend(scored(m, 1));
    vocab.push((of.role("mask_token", "<mask>").into(), 0.0));
    let at = vocab.iter().position(|(text, _)| text == unknown).unwrap_or(0);
    let scheme = of.prefix()?;
    let normalizer = charsmap(m).unwrap_or(Value::Null);
    Ok(whole(normalizer, spaced_words(scheme), metaspace(scheme, true), unigram(vocab, at, false)?))
}

fn of_unigram(m: &Model, class: &str) -> Result<(), String> {
    match m.algorithm {
        1 => Ok(()),
        _ => Err(format!("{class} has a unigram model, but this one has type {}", m.algorithm)),
    }
}

/// A run of white space becomes a space, that at the end nothing.
fn tidied() -> Vec<Value> {
    vec![
        replace(json!({ "Regex": r"\s{2,}|[\n\r\t]" }), " "),
        json!({ "type": "NFC" }),
        json!({ "type": "Strip", "strip_left": false, "strip_right": true }),
    ]
}

fn barthez(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    of_unigram(m, "BarthezTokenizer")?;
    let scheme = of.prefix()?;
    let model = unigram(scored(m, 0), 3, false)?;
    Ok(whole(sequence(tidied()), metaspace(scheme, true), metaspace(scheme, true), model))
}

/// Quotation marks as one character each.
fn quotes() -> Vec<Value> {
    vec![replace(json!({ "String": "``" }), "\""), replace(json!({ "String": "''" }), "\"")]
}

/// Without accents unless they are kept, and in lower case if wanted.
fn plain_letters(steps: &mut Vec<Value>, keep_accents: bool, lowercase: bool) {
    if !keep_accents {
        steps.extend([json!({ "type": "NFKD" }), json!({ "type": "StripAccents" })]);
    }
    steps.extend(lowercase.then(|| json!({ "type": "Lowercase" })));
}

fn albert(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    let mut steps = quotes();
    plain_letters(&mut steps, of.flag("keep_accents", false)?, of.flag("do_lower_case", true)?);
    steps.extend(charsmap(m));
    let scheme = of.prefix()?;
    Ok(whole(sequence(steps), spaced_words(scheme), metaspace(scheme, true), unigram(scored(m, 0), 1, false)?))
}

fn xlnet(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    let mut steps = quotes();
    plain_letters(&mut steps, false, of.flag("do_lower_case", false)?);
    steps.extend(charsmap(m));
    let model = unigram(scored(m, 0), m.unknown_id as usize, false)?;
    Ok(whole(sequence(steps), spaced_words("always"), metaspace("always", true), model))
}

fn big_bird(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    let vocab = scored(m, 0);
    let unknown = unknown_at(&vocab, of.role("unk_token", "<unk>"), 100);
    let scheme = of.prefix()?;
    let model = unigram(vocab, unknown, false)?;
    Ok(whole(sequence(vec![several_spaces(SPACE)]), metaspace(scheme, true), metaspace(scheme, true), model))
}

fn rembert(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    let mut steps = quotes();
    steps.push(several_spaces(" "));
    plain_letters(&mut steps, of.flag("keep_accents", true)?, of.flag("do_lower_case", false)?);
    steps.extend(charsmap(m));
    let scheme = of.prefix()?;
    let model = unigram(scored(m, 0), 2, false)?;
    Ok(whole(sequence(steps), metaspace(scheme, true), metaspace(scheme, true), model))
}

fn deberta_v2(m: &Model, of: &Of<'_>) -> Result<Value, String> {
    let lower = of.flag("do_lower_case", false)?.then(|| json!({ "type": "Lowercase" }));
    let steps = lower.into_iter().chain(tidied()).collect();
    let scheme = if of.flag("add_prefix_space", true)? { "always" } else { "first" };
    let cut = of.flag("split_by_punct", false)?.then(|| json!({ "type": "Punctuation", "behavior": "Isolated" }));
    let parts: Vec<Value> = cut.into_iter().chain([metaspace(scheme, true)]).collect();
    let vocab = scored(m, 0);
    let unknown = unknown_at(&vocab, of.role("unk_token", "[UNK]"), m.unknown_id as usize);
    let pre = json!({ "type": "Sequence", "pretokenizers": parts });
    Ok(whole(sequence(steps), pre, metaspace(scheme, true), unigram(vocab, unknown, false)?))
}
