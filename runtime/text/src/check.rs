//! Limits on the contents of a `tokenizer.json`, checked before anything else reads it.
//!
//! The `tokenizers` crate trusts its files: some make it panic while it reads them or later, at the
//! first text, and some make a text grow without bound. So the compiler checks here all that the
//! crate (0.23) indexes, divides by, unwraps or recurses over without looking, and then
//! [tries](trial) the tokenizer.

mod charsmap;
pub(crate) mod pattern;

pub(crate) use pattern::backtracks;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::json::Json;

/// Bytes of a `tokenizer.json`; the largest of released models have 40 million.
const LONGEST: usize = 256 << 20;
/// Normalizers, pre-tokenizers, decoders and post-processors, each.
const MOST_PARTS: usize = 64;
/// Times as long as before that a text may become, over all normalizers, pre-tokenizers or
/// decoders.
const MOST_GROWTH: usize = 512;
/// Bytes of a piece of a Unigram vocabulary, whose tree is walked for every character and freed
/// recursively.
const LONGEST_PIECE: usize = 1024;
/// Characters of a WordPiece word, which is searched in quadratic time.
const LONGEST_WORD: i128 = 1000;

type Result<T> = std::result::Result<T, String>;

/// Checks a `tokenizer.json`, and returns the parts that make results random and must be ignored:
/// [`deterministic`].
///
/// # Errors
/// The fault the crate cannot handle, and its place.
pub fn tokenizer(bytes: &[u8]) -> Result<Vec<&'static str>> {
    if bytes.len() > LONGEST {
        return Err(format!("{} bytes are too many for a tokenizer (at most {LONGEST})", bytes.len()));
    }
    let json: Json = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if !matches!(json, Json::Map(_)) {
        return Err("not a JSON object".into());
    }
    let part = |name: &str| json.get(name).filter(|x| **x != Json::Null);
    if let Some(normalizer) = part("normalizer") {
        grows(normalizer, "normalizer", "normalizers", normalizer_growth)?;
    }
    if let Some(pre) = part("pre_tokenizer") {
        grows(pre, "pre_tokenizer", "pretokenizers", pre_tokenizer_growth)?;
    }
    if let Some(decoder) = part("decoder") {
        grows(decoder, "decoder", "decoders", decoder_growth)?;
    }
    if let Some(processor) = part("post_processor") {
        post_processor(processor)?;
    }
    let model = part("model").ok_or("no `model`")?;
    check_model(model)?;
    let random = |name: &'static str| {
        matches!(model.get(name), Some(Json::Float(x)) if *x != 0.0)
            || matches!(model.get(name), Some(Json::Int(n)) if *n != 0)
    };
    Ok(["dropout", "alpha"].into_iter().filter(|name| random(name)).collect())
}

fn text<'j>(json: &'j Json, name: &str, at: &str) -> Result<&'j str> {
    json.get(name).and_then(Json::as_str).ok_or_else(|| format!("{at}: `{name}` is missing or not a string"))
}

/// The parts of nested sequences, in order: `(path, type, part)`.
fn parts<'j>(json: &'j Json, at: &str, list: &str) -> Result<Vec<(String, &'j str, &'j Json)>> {
    let mut found = Vec::new();
    let mut open = vec![(at.to_owned(), json)];
    while let Some((at, json)) = open.pop() {
        if !matches!(json, Json::Map(_)) {
            return Err(format!("{at}: not an object"));
        }
        let kind = text(json, "type", &at)?;
        match json.get(list) {
            Some(Json::List(items)) if kind == "Sequence" => {
                open.extend(items.iter().enumerate().rev().map(|(i, item)| (format!("{at}.{list}[{i}]"), item)));
            }
            _ if kind == "Sequence" => return Err(format!("{at}: `{list}` is missing or not a list")),
            _ => found.push((at, kind, json)),
        }
        if found.len() + open.len() > MOST_PARTS {
            return Err(format!("{list}: more than {MOST_PARTS} parts"));
        }
    }
    Ok(found)
}

/// How many times as long a part makes a text, at most.
type Growth = fn(&str, &Json, &str) -> Result<usize>;

fn grows(json: &Json, at: &str, list: &str, growth: Growth) -> Result<()> {
    let mut product = 1usize;
    for (at, kind, part) in parts(json, at, list)? {
        product = product.saturating_mul(growth(kind, part, &at)?);
        if product > MOST_GROWTH {
            return Err(format!("{at}: up to here a text can grow more than {MOST_GROWTH} times"));
        }
    }
    Ok(())
}

fn normalizer_growth(kind: &str, json: &Json, at: &str) -> Result<usize> {
    match kind {
        "Precompiled" => charsmap::growth(text(json, "precompiled_charsmap", at)?)
            .map_err(|e| format!("{at}.precompiled_charsmap: {e}")),
        "Replace" => replace_growth(json, at),
        // It adds a few bytes once; in front of an empty text nothing.
        "Prepend" => Ok(1 + text(json, "prepend", at)?.len()),
        // The longest compatibility decomposition has 33 bytes for 3.
        "NFD" | "NFC" | "NFKD" | "NFKC" => Ok(11),
        "ByteLevel" | "Lowercase" | "BertNormalizer" => Ok(2),
        _ => Ok(1),
    }
}

fn pre_tokenizer_growth(kind: &str, json: &Json, at: &str) -> Result<usize> {
    match kind {
        "FixedLength" => match json.get("length") {
            None => Ok(1),
            Some(Json::Int(n)) if *n > 0 => Ok(1),
            _ => Err(format!("{at}: `length` must be a positive integer")),
        },
        "Split" => {
            pattern_check(json, at)?;
            Ok(1)
        }
        "ByteLevel" | "Metaspace" => Ok(4),
        _ => Ok(1),
    }
}

fn decoder_growth(kind: &str, json: &Json, at: &str) -> Result<usize> {
    match kind {
        "Replace" => replace_growth(json, at),
        // The crate counts from the end of a token without looking whether it is that long.
        "Strip" => match json.get("stop") {
            None | Some(Json::Int(0)) => Ok(1),
            _ => Err(format!("{at}: `stop` other than 0 is not supported")),
        },
        "CTC" | "BPEDecoder" | "WordPiece" => Ok(2),
        _ => Ok(1),
    }
}

fn replace_growth(json: &Json, at: &str) -> Result<usize> {
    let shortest = pattern_check(json, at)?;
    let content = text(json, "content", at)?.len();
    Ok(match shortest {
        0 => content + 1,
        n => content.div_ceil(n).max(1),
    })
}

/// Checks `pattern`, and returns the bytes that it matches at least.
fn pattern_check(json: &Json, at: &str) -> Result<usize> {
    match json.get("pattern") {
        Some(Json::Map(items)) => match items.as_slice() {
            [(kind, Json::String(s))] if kind == "String" && s.is_empty() => {
                Err(format!("{at}.pattern: an empty string"))
            }
            [(kind, Json::String(s))] if kind == "String" => Ok(s.len()),
            [(kind, Json::String(r))] if kind == "Regex" => {
                pattern::check(r).map_err(|e| format!("{at}.pattern: {e}"))?;
                // Nobody would see a search give up.
                if backtracks(r) && !at.starts_with("pre_tokenizer") {
                    return Err(format!("{at}.pattern: look-around and the like are supported in pre-tokenizers only"));
                }
                Ok(0)
            }
            _ => Err(format!("{at}.pattern: neither a String nor a Regex")),
        },
        _ => Err(format!("{at}: `pattern` is missing")),
    }
}

/// Templates name special tokens that exist and the text exactly once; parts that add tokens do not
/// follow each other, for which the crate is not made.
fn post_processor(json: &Json) -> Result<()> {
    let mut adding = 0;
    for (at, kind, part) in parts(json, "post_processor", "processors")? {
        if matches!(kind, "TemplateProcessing" | "BertProcessing" | "RobertaProcessing") {
            adding += 1;
        }
        if adding > 1 {
            return Err(format!("{at}: a second processor that adds tokens"));
        }
        if kind == "TemplateProcessing" {
            let specials = special_tokens(part, &at)?;
            template(part, "single", &specials, &at)?;
            template(part, "pair", &specials, &at)?;
        }
    }
    Ok(())
}

fn special_tokens<'j>(json: &'j Json, at: &str) -> Result<HashSet<&'j str>> {
    let list = |token: &Json, name: &str| match token.get(name) {
        Some(Json::List(items)) => Some(items.len()),
        _ => None,
    };
    let check = |name: &str, token: &Json| match (list(token, "ids"), list(token, "tokens")) {
        (Some(a), Some(b)) if a == b && a <= MOST_PARTS => Ok(()),
        _ => Err(format!("{at}.special_tokens: {name:?} needs as many `ids` as `tokens`, at most {MOST_PARTS}")),
    };
    let mut names = HashSet::new();
    match json.get("special_tokens") {
        Some(Json::Map(items)) => {
            for (name, token) in items {
                check(name, token)?;
                names.insert(name.as_str());
            }
        }
        Some(Json::List(items)) => {
            for token in items {
                let name = text(token, "id", at)?;
                check(name, token)?;
                names.insert(name);
            }
        }
        _ => return Err(format!("{at}: `special_tokens` is missing")),
    }
    Ok(names)
}

fn template(json: &Json, which: &str, specials: &HashSet<&str>, at: &str) -> Result<()> {
    let Some(Json::List(pieces)) = json.get(which) else {
        return Err(format!("{at}: `{which}` is missing or not a list"));
    };
    if pieces.len() > MOST_PARTS {
        return Err(format!("{at}.{which}: more than {MOST_PARTS} pieces"));
    }
    let (mut a, mut b) = (0, 0);
    for piece in pieces {
        match (piece.get("Sequence"), piece.get("SpecialToken")) {
            (Some(sequence), _) if sequence.get("id").and_then(Json::as_str) == Some("A") => a += 1,
            (Some(_), _) => b += 1,
            (_, Some(token)) => {
                let name = text(token, "id", at)?;
                if !specials.contains(name) {
                    return Err(format!("{at}.{which}: {name:?} is not among the special tokens"));
                }
            }
            _ => return Err(format!("{at}.{which}: a piece that is neither a sequence nor a special token")),
        }
    }
    match which {
        "single" if a != 1 || b != 0 => Err(format!("{at}.single: must have sequence A once, and not B")),
        "pair" if a > 1 || b > 1 => Err(format!("{at}.pair: must not repeat a sequence")),
        _ => Ok(()),
    }
}

fn check_model(model: &Json) -> Result<()> {
    // Files of old versions have no type; a model with merges is BPE.
    let kind =
        model.get("type").and_then(Json::as_str).unwrap_or(if model.get("merges").is_some() { "BPE" } else { "" });
    match kind {
        "BPE" => merges(model),
        "Unigram" => {
            let Some(Json::List(pieces)) = model.get("vocab") else {
                return Err("model: `vocab` is missing or not a list".into());
            };
            let piece = |p: &Json| match p {
                Json::List(pair) => pair.first().and_then(Json::as_str).map(str::len),
                _ => None,
            };
            let long = pieces.iter().position(|p| piece(p).is_some_and(|n| n > LONGEST_PIECE));
            long.map_or(Ok(()), |i| Err(format!("model.vocab[{i}]: a piece of more than {LONGEST_PIECE} bytes")))
        }
        "WordPiece" => match model.get("max_input_chars_per_word") {
            None => Ok(()),
            Some(Json::Int(n)) if *n <= LONGEST_WORD => Ok(()),
            _ => Err(format!("model: `max_input_chars_per_word` must be at most {LONGEST_WORD}")),
        },
        _ => Ok(()),
    }
}

/// Both sides of a merge and their concatenation are in the vocabulary; with a
/// `continuing_subword_prefix`, right sides begin with it.
fn merges(model: &Json) -> Result<()> {
    let Some(Json::Map(vocab)) = model.get("vocab") else {
        return Err("model: `vocab` is missing or not an object".into());
    };
    let vocab: HashSet<&str> = vocab.iter().map(|(token, _)| token.as_str()).collect();
    let prefix = model.get("continuing_subword_prefix").and_then(Json::as_str).unwrap_or_default();
    let Some(Json::List(merges)) = model.get("merges") else {
        return Err("model: `merges` is missing or not a list".into());
    };
    let mut whole = String::new();
    for (i, merge) in merges.iter().enumerate() {
        let pair = match merge {
            Json::String(pair) => pair.split_once(' '),
            Json::List(pair) => match pair.as_slice() {
                [Json::String(a), Json::String(b)] => Some((a.as_str(), b.as_str())),
                _ => None,
            },
            _ => None,
        };
        let Some((left, right)) = pair else { return Err(format!("model.merges[{i}]: not a pair of tokens")) };
        let Some(rest) = right.strip_prefix(prefix) else {
            return Err(format!(
                "model.merges[{i}]: {right:?} does not begin with the continuing_subword_prefix {prefix:?}"
            ));
        };
        whole.clear();
        whole.push_str(left);
        whole.push_str(rest);
        if let Some(missing) = [left, right, &whole].into_iter().find(|token| !vocab.contains(token)) {
            return Err(format!("model.merges[{i}]: {missing:?} is not in the vocabulary"));
        }
    }
    Ok(())
}

/// `bytes` without `truncation` and `padding`, which training leaves and which would silently
/// change prompts, and without the parts that make results random; `None`: nothing has to change.
pub fn deterministic(bytes: &[u8], random: &[&str]) -> std::result::Result<Option<Vec<u8>>, serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct Limits {
        truncation: Option<serde::de::IgnoredAny>,
        padding: Option<serde::de::IgnoredAny>,
    }
    let limits: Limits = serde_json::from_slice(bytes)?;
    if limits.truncation.is_none() && limits.padding.is_none() && random.is_empty() {
        return Ok(None);
    }
    let mut value: serde_json::Value = serde_json::from_slice(bytes)?;
    value["truncation"] = serde_json::Value::Null;
    value["padding"] = serde_json::Value::Null;
    for name in random {
        value["model"][*name] = serde_json::Value::Null;
    }
    serde_json::to_vec(&value).map(Some)
}

/// Time that the trial may run.
const PATIENCE: Duration = Duration::from_secs(20);
/// Repetitions in its monotonous texts.
const LONG_TRIAL: usize = 4000;

/// Loads a checked tokenizer and tries it on texts: empty, of many scripts, long and monotonous, of
/// its own added tokens.
///
/// # Errors
/// It cannot be loaded, or fails in a way that would end a program.
pub fn trial(bytes: &[u8]) -> Result<tokenizers::Tokenizer> {
    let (to, from) = mpsc::channel();
    let (tell, clock) = mpsc::channel();
    let copy = bytes.to_vec();
    let work = move || {
        let _ = tell.send(own_clock());
        // The receiver may have lost its patience.
        let _ = to.send(catch_unwind(AssertUnwindSafe(|| try_all(&copy, LONG_TRIAL))));
    };
    std::thread::Builder::new().name("tokenizer-trial".into()).spawn(work).map_err(|e| format!("no thread: {e}"))?;
    let clock = clock.recv().unwrap_or_default();
    let start = Instant::now();
    loop {
        match from.recv_timeout(Duration::from_millis(500)) {
            Ok(Ok(result)) => return result,
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
                return Err("the tokenizers library panics on it".into());
            }
            // Where others have the processor, the time that passes says nothing about the tokenizer.
            Err(RecvTimeoutError::Timeout) if clock.map_or_else(|| start.elapsed(), passed) > PATIENCE => {
                return Err(format!("it takes more than {} s for short texts", PATIENCE.as_secs()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// The clock of the time that this thread runs.
fn own_clock() -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: the thread is this one, and the clock's place is writable.
    (unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) } == 0).then_some(clock)
}

/// The time on a thread's clock; zero where the thread has ended.
fn passed(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time's place is writable; a clock that is none any more is an error.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32),
        _ => Duration::ZERO,
    }
}

/// Loads a tokenizer and uses it on texts, monotonous ones of `long` repetitions.
pub(crate) fn try_all(bytes: &[u8], long: usize) -> Result<tokenizers::Tokenizer> {
    let tokenizer = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| format!("not a usable tokenizer: {e}"))?;
    for text in texts(&tokenizer, long) {
        // That it refuses a text is its right; it then does so at run time too.
        if let Ok(encoding) = tokenizer.encode_fast(text.as_str(), true) {
            let ids = encoding.get_ids();
            let _ = tokenizer.decode(ids, false);
            let _ = tokenizer.decode(&ids[..ids.len().min(1)], true);
        }
        let _ = tokenizer.encode_fast(text.as_str(), false);
    }
    let ids: Vec<u32> = tokenizer.get_vocab(true).into_values().collect();
    let _ = tokenizer.decode(&ids, false);
    let _ = tokenizer.decode(&ids, true);
    Ok(tokenizer)
}

fn texts(tokenizer: &tokenizers::Tokenizer, long: usize) -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        " ",
        "\0",
        "a",
        "Hello, world! It's 2024.\n\n\tdef f(x):\r\n    return x  ",
        "▁ ▁▁a",
        "\u{feff}\u{301}\u{200d}\u{fffd}\u{10ffff}",
    ]
    .map(str::to_owned)
    .to_vec();
    texts.push(
        "Zażółć ИСТИНА 你好，世界 こんにちは สวัสดี नमस्ते مرحبا שלום 한국어 ﷺ ﬁ İ ß 👩‍👩‍👧‍👦🇩🇪 e\u{301}\u{327} 𝔘𝔫𝔦".into(),
    );
    for unit in ["a", " ", "\n", "1", ".", "ab ", "é", "中", "▁", "a1", " \n", "\u{301}", "'s"] {
        texts.push(unit.repeat(long));
        texts.push(unit.repeat(long) + "!");
    }
    let mut added: Vec<_> = tokenizer.get_added_vocabulary().get_added_tokens_decoder().iter().collect();
    added.sort_by_key(|(id, _)| **id);
    for glue in ["", " ", "a", "  é"] {
        let mut text = String::from(glue);
        for (_, token) in added.iter().take(2000) {
            text += &token.content;
            text += glue;
        }
        texts.push(text);
    }
    texts
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
