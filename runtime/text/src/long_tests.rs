//! Walked in small parts, texts have the crate's tokens.

use super::*;
use serde_json::{Value, json};
use std::path::Path;

const TEXTS: &[&str] = &[
    "",
    " ",
    "Hello, world! It's 2024, don't  stop.\n\n\tdef f(x):\r\n    return x  <s> and <mask>here",
    "  ▁ ▁▁a  Zażółć ИСТИНА преступление 你好，世界汉字汉字 こんにちは สวัสดี नमस्ते مرحبا 한국어 ﷺ ﬁ İ ß 👩‍👩‍👧‍👦🇩🇪 e\u{301}\u{327} ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbb",
    "                                        1234567890123456789012345678901234567890 !!!!!!!!!!!!!!!!!",
    "<s>word<s> word  [X][X] x[X]",
];

fn same(name: &str, json: &str) {
    let tokenizer: Tokenizer = json.parse().unwrap_or_else(|e| panic!("{name}: {e}"));
    for part in [1, 7, 40] {
        let long = Long::of(&tokenizer, Some(part)).unwrap_or_else(|| panic!("{name}: left to the crate"));
        let joined = TEXTS.concat();
        for text in TEXTS.iter().copied().chain([joined.as_str()]) {
            let whole = tokenizer.encode_fast(text, false).unwrap();
            let whole: Vec<i32> = whole.get_ids().iter().map(|id| *id as i32).collect();
            match long.encode(&tokenizer, text).unwrap() {
                Some(ids) => assert_eq!(ids, whole, "{name}: {text:?} in parts of {part}"),
                None => assert!(text.contains("<mask>"), "{name}: {text:?} is left to the crate"),
            }
        }
    }
}

/// A vocabulary of the texts' characters and some merges, with a step of each kind before.
fn file(normalizer: Value, pre: Value, bytes: bool, options: Value) -> String {
    let letters: String = match bytes {
        true => (0..=255).map(alphabet::character).collect(),
        false => "abcdefghijklmnopqrstuvwxyz▁HelIoИСТИНА你好世界".chars().collect(),
    };
    let mut vocab = serde_json::Map::new();
    let mut add = |token: &str| {
        let id = vocab.len();
        vocab.entry(token).or_insert(id.into());
    };
    add("<unk>");
    letters.chars().for_each(|c| add(&c.to_string()));
    let merges = [["a", "a"], ["aa", "aa"], ["l", "o"], ["l", "l"], ["h", "e"], ["b", "b"]];
    merges.iter().for_each(|[a, b]| add(&format!("{a}{b}")));
    let mut model = json!({"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": false,
        "vocab": vocab, "merges": merges});
    model.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    let flags = |id: u64, content: &str, strip: bool, normalized: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": strip, "rstrip": false,
            "normalized": normalized, "special": true})
    };
    json!({"version": "1.0", "truncation": null, "padding": null, "post_processor": null, "decoder": null,
        "added_tokens": [flags(900, "<s>", false, false), flags(901, "<mask>", true, false), flags(902, "[X]", false, true)],
        "normalizer": normalizer, "pre_tokenizer": pre, "model": model})
    .to_string()
}

#[test]
fn every_step_works_on_parts() {
    let split = |regex: &str, behavior: &str, invert: bool| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert});
    let bytes = |space: bool, words: bool| json!({"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": words});
    let spaces = |scheme: &str, split: bool| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split});
    let all = |parts: Vec<Value>| json!({"type": "Sequence", "pretokenizers": parts});
    let (none, plain) = (Value::Null, json!({}));
    for behavior in ["Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"] {
        for (regex, invert) in
            [(r"\s", false), (r"\p{L}+|\p{N}", true), (r"(?=\d\d\b)", false), (r" ?\w+|\s+(?!\S)", false)]
        {
            let steps = all(vec![split(regex, behavior, invert), bytes(true, false)]);
            same(&format!("{behavior} {regex}"), &file(none.clone(), steps, true, plain.clone()));
        }
    }
    for (pre, bytes) in [
        (none.clone(), false),
        (bytes(false, true), true),
        (bytes(true, true), true),
        (bytes(true, false), true),
        (all(vec![json!({"type": "Digits", "individual_digits": true}), bytes(false, true)]), true),
        (all(vec![json!({"type": "Digits", "individual_digits": false}), split("o", "Removed", false)]), false),
        (spaces("always", true), false),
        (spaces("first", true), false),
        (spaces("never", true), false),
        (spaces("first", false), false),
        (all(vec![json!({"type": "WhitespaceSplit"}), spaces("always", true)]), false),
        (all(vec![split("d", "MergedWithNext", false), spaces("first", true)]), false),
        (json!({"type": "BertPreTokenizer"}), false),
        (json!({"type": "Whitespace"}), false),
    ] {
        for options in [plain.clone(), json!({"ignore_merges": true, "fuse_unk": false})] {
            same(&pre.to_string(), &file(none.clone(), pre.clone(), bytes, options));
        }
    }
}

#[test]
fn every_normalizer_works_on_parts() {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let bert = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true});
    let mut kinds: Vec<Value> =
        ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"].iter().map(|t| json!({"type": t})).collect();
    kinds.extend([bert, json!({"type": "Strip", "strip_left": true, "strip_right": true})]);
    kinds.push(json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}));
    for kind in kinds {
        same(&kind.to_string(), &file(kind.clone(), Value::Null, false, json!({})));
    }
}

/// The special tokens around a text, and its truncation, are as with the crate.
#[test]
fn long_texts_get_what_short_ones_get() {
    let piece = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let special = json!({"id": "<s>", "ids": [900], "tokens": ["<s>"]});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let mut json: Value = serde_json::from_str(&file(Value::Null, bytes, true, json!({}))).unwrap();
    json["post_processor"] = json!({"type": "TemplateProcessing", "single": [piece("<s>"), text, piece("<s>")],
        "pair": [], "special_tokens": {"<s>": special}});
    let long = "Hello, hello world: aaaa llo. ".repeat(3000);
    for most in [None, Some(1000)] {
        let config = crate::Config { most, ..crate::Config::default() };
        let tokenizer = crate::Tokenizer::new(&json.to_string(), &config).unwrap();
        let whole = tokenizer.inner.encode_fast(long.as_str(), true).unwrap();
        let mut whole: Vec<i32> = whole.get_ids().iter().map(|id| *id as i32).collect();
        if let Some(most) = most {
            whole.truncate(most - 1);
            whole.push(900);
        }
        assert_eq!(tokenizer.encode(&long, true).unwrap(), whole);
        let plain = tokenizer.encode(&long, false).unwrap();
        assert!(!plain.contains(&900) && plain.len() > 30_000);
    }
}

#[test]
fn what_is_not_known_is_left_to_the_crate() {
    let regex = json!({"type": "Replace", "pattern": {"Regex": " +"}, "content": "▁"});
    let unknown = file(regex, Value::Null, false, json!({}));
    assert!(Long::of(&unknown.parse().unwrap(), None).is_none());
    let unknown = file(Value::Null, json!({"type": "UnicodeScripts"}), false, json!({}));
    assert!(Long::of(&unknown.parse().unwrap(), None).is_none());
}

#[test]
fn real_tokenizers_work_on_parts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/tokenizers");
    let mut compared = 0;
    for name in ["pythia_neox/20B_tokenizer.json", "granite_code/tokenizer.json"] {
        if let Ok(json) = std::fs::read_to_string(dir.join(name)) {
            same(name, &json);
            compared += 1;
        }
    }
    if compared == 0 {
        eprintln!("skipped: no shared tokenizers");
    }
}

/// Searches that give up in the crate go on here; where they give up as well, or only the crate knows the steps, that
/// is an error and no other cut.
#[test]
fn searches_that_give_up() {
    let split =
        json!({"type": "Split", "pattern": {"Regex": r"\d+(?![\d!])"}, "behavior": "Isolated", "invert": false});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let of = |steps: Vec<Value>| {
        let json = file(Value::Null, json!({"type": "Sequence", "pretokenizers": steps}), true, json!({}));
        crate::Tokenizer::new(&json, &crate::Config::default()).unwrap()
    };
    let text = format!("{}!12x3", "1".repeat(3000));
    let here = of(vec![split.clone(), bytes.clone()]);
    let cut = of(vec![bytes.clone()]);
    let pieces = [&text[..3001], "12", "x", "3"].map(|piece| cut.encode(piece, false).unwrap()).concat();
    assert_eq!(here.encode(&text, false).unwrap(), pieces);
    assert_eq!(here.encode_pair(&text, "a", None).unwrap().0.len(), pieces.len() + 1);

    let scripts = of(vec![json!({"type": "UnicodeScripts"}), split, bytes]);
    for result in [scripts.encode(&text, false), scripts.encode(&text, true)] {
        let Err(error) = result else { panic!("the search went on") };
        assert_eq!(error.kind, crate::Kind::Invalid);
        assert!(error.message.contains("gives up"), "{error}");
    }
    assert!(scripts.encode(&text[2000..], false).is_ok());

    let words = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let words = of(vec![words]);
    assert!(words.encode(&" ".repeat(1 << 21), false).is_err_and(|e| e.message.contains("gives up")));
}
