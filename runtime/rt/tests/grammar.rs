//! Texts of a form.

#[path = "common/api.rs"]
mod api;
mod calls;
mod common;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::*;
use common::{Rng, VOCAB};
use llmcc_rt::capi::types::*;
use llmcc_rt::capi::*;
use llmcc_rt::grammar::{Grammar, Guide, Language, Vocabulary};
use llmcc_rt::text::{Config, Tokenizer};
use llmcc_rt::{Options, Status};
use serde_json::{Value, json};

/// The token that ends texts of [`bytes`].
const END: i32 = 256;

/// A tokenizer of all bytes, in the spelling of GPT-2, with one token that ends texts.
fn bytes() -> Tokenizer {
    let plain = |b: &u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut more = 256..;
    let mut letter = |b: u32| char::from_u32(if plain(&b) { b } else { more.next().unwrap() }).unwrap().to_string();
    let mut vocab: serde_json::Map<String, Value> = (0..256).map(|b| (letter(b), json!(b))).collect();
    vocab.insert("</s>".into(), json!(END));
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let end = json!({"id": END, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true});
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [end], "normalizer": null, "pre_tokenizer": level, "post_processor": null,
        "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []},
    });
    let config = Config::parse(r#"{"eos_token":"</s>","eos_token_ids":[256]}"#).unwrap();
    Tokenizer::new(&tokenizer.to_string(), &config).unwrap()
}

fn of_tokens(ends: &[i32]) -> llmcc_rt::Result<Vocabulary> {
    let tokenizer = bytes();
    Vocabulary::new(&|token| Ok((tokenizer.bytes(token)?, tokenizer.is_special(token))), 257, ends)
}

fn vocabulary() -> Vocabulary {
    of_tokens(&[END]).unwrap()
}

/// The tokens that may follow a text.
fn allowed(guide: &Guide, text: &[i32]) -> Vec<i32> {
    let row = guide.apply(Cow::Owned(vec![0.0; 257]), text).unwrap();
    (0..257).filter(|t| row[*t as usize] == 0.0).collect()
}

/// Whether a text is one of the grammar.
fn accepts(grammar: &Grammar, text: &str) -> bool {
    let guide = Guide::new(grammar.clone());
    let tokens: Vec<i32> = text.bytes().map(i32::from).chain([END]).collect();
    (0..tokens.len()).all(|i| allowed(&guide, &tokens[..i]).contains(&tokens[i]))
}

/// A random text of a grammar; `None` where it has not ended after so many tokens.
fn walk(grammar: &Grammar, rng: &mut Rng, most: usize) -> Option<String> {
    let (guide, mut text) = (Guide::new(grammar.clone()), vec![]);
    while text.len() < most {
        let next = allowed(&guide, &text);
        // Ends come soon, and blanks seldom.
        let few: Vec<i32> = next.iter().copied().filter(|t| !matches!(t, 9 | 10 | 13 | 32 | 92)).collect();
        let next = if few.is_empty() || rng.below(20) == 0 { next } else { few };
        let closes = next.iter().copied().find(|t| [END, 34, 93, 125].contains(t)).filter(|_| rng.below(3) == 0);
        match closes.unwrap_or(next[rng.below(next.len())]) {
            END => return Some(String::from_utf8(text.iter().map(|t| *t as u8).collect()).unwrap()),
            token => text.push(token),
        }
    }
    None
}

#[test]
fn grammars_of_each_language() {
    let all = vocabulary();
    let grammar = |language, source: &str| all.grammar(language, source).unwrap();
    let date = grammar(Language::Regex, r"[0-9]{4}-[0-9]{2}");
    assert!(accepts(&date, "2026-11") && !accepts(&date, "2026-1") && !accepts(&date, "2026-111"));
    let sum = grammar(Language::Lark, "start: n (\"+\" n)*\nn: /[0-9]+/");
    assert!(accepts(&sum, "1+22+3") && !accepts(&sum, "1+") && !accepts(&sum, ""));
    let choice = grammar(Language::Choices, r#"["yes", "no \"really\"", "ja, \u00e4hm"]"#);
    assert!(accepts(&choice, "no \"really\"") && accepts(&choice, "ja, ähm") && !accepts(&choice, "maybe"));
    let age = json!({"type": "integer", "minimum": 0});
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}, "age": age},
        "required": ["name", "age"], "additionalProperties": false});
    let person = grammar(Language::JsonSchema, &schema.to_string());
    assert!(accepts(&person, r#"{"name": "Ada", "age": 36}"#) && accepts(&person, r#"{"name":"Ä\"","age":0}"#));
    assert!(!accepts(&person, r#"{"name": "Ada", "age": -1}"#) && !accepts(&person, r#"{"name": "Ada"}"#));
    // Indented texts, but no empty lines.
    assert!(accepts(&person, "{\n  \"name\": \"Ada\",\r\n\t\"age\": 36\n}"));
    assert!(!accepts(&person, "{\n\n\"name\": \"Ada\", \"age\": 36}"));
}

#[test]
fn wrong_grammars_are_refused_in_words() {
    let all = vocabulary();
    for (language, source, says) in [
        (Language::JsonSchema, "{", "the JSON schema is refused: EOF"),
        (Language::JsonSchema, r#"{"type": "thing"}"#, "the JSON schema is refused"),
        (Language::JsonSchema, "false", "the JSON schema is refused"),
        (Language::Regex, "(a", "the regular expression is refused"),
        (Language::Lark, "start: x", "the grammar is refused"),
        (Language::Lark, "", "the grammar is refused"),
        (Language::Choices, "[]", "the list of choices is refused: it is not a JSON list of one text or more"),
        (Language::Choices, r#"["a", 3]"#, "3 is not a text"),
        (Language::Choices, r#"["a", ""]"#, "an empty text is no choice"),
    ] {
        let error = all.grammar(language, source).err().unwrap_or_else(|| panic!("{source}: accepted"));
        assert!(error.status == Status::Invalid && error.message.contains(says), "{source}: {error}");
    }
    let error = of_tokens(&[]).err().unwrap();
    assert!(error.message.contains("no token that ends texts"), "{error}");
}

/// A guide follows texts in any order: guesses are tried, and taken back.
#[test]
fn guides_go_back() {
    let all = vocabulary();
    let grammar = all.grammar(Language::Regex, "(ab|cd)+e?").unwrap();
    let (guide, mut rng) = (Guide::new(grammar.clone()), Rng(1));
    let mut texts: Vec<Vec<i32>> = vec![vec![]];
    for _ in 0..60 {
        let text = texts[rng.below(texts.len())].clone();
        let next = allowed(&guide, &text);
        assert_eq!(next, allowed(&Guide::new(grammar.clone()), &text), "{text:?}");
        texts.extend(next.iter().filter(|t| **t != END).map(|t| [&text[..], &[*t]].concat()));
    }
    assert!(texts.iter().any(|t| t.len() > 5));
    // A text that is none of the grammar's is an error, and the guide goes on afterwards.
    assert!(guide.apply(Cow::Owned(vec![0.0; 257]), &[100, 100]).unwrap_err().message.contains("cannot go on"));
    assert_eq!(allowed(&guide, &[97]), [98]);
}

/// Guesses of a grammar are the only way to go on, byte by byte.
#[test]
fn forced_tokens_are_certain() {
    let (all, mut rng, mut forced) = (vocabulary(), Rng(7), 0);
    let schema = json!({"type": "object", "properties": {"first name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["first name", "age"], "additionalProperties": false});
    let person = all.grammar(Language::JsonSchema, &schema.to_string()).unwrap();
    let guide = Guide::new(person.clone());
    let after = |text: &str, most| guide.forced(&text.bytes().map(i32::from).collect::<Vec<_>>(), most);
    assert_eq!(after("{\"", 31), "first name\"".bytes().map(i32::from).collect::<Vec<_>>());
    assert_eq!(
        (after("{\"fi", 3), after("{\"first name\": \"A", 31)),
        ("rst".bytes().map(i32::from).collect(), vec![])
    );
    // A text that is none of the grammar's has none, and nor has one at its end.
    assert!(after("{\"x", 31).is_empty() && after("{\"first name\": \"A\", \"age\": 3}", 31).is_empty());
    for grammar in [person, all.grammar(Language::Regex, "(abc|abd){2}xyz*").unwrap()] {
        for _ in 0..20 {
            let Some(text) = walk(&grammar, &mut rng, 100) else { continue };
            let (guide, text) = (Guide::new(grammar.clone()), text.into_bytes());
            for end in 0..text.len() {
                let text: Vec<i32> = text[..end].iter().map(|b| i32::from(*b)).collect();
                let guesses = guide.forced(&text, 31);
                forced += guesses.len();
                (0..guesses.len()).for_each(|i| {
                    assert_eq!(allowed(&guide, &[&text[..], &guesses[..i]].concat()), guesses[i..=i], "{text:?}");
                });
            }
        }
    }
    assert!(forced > 200, "{forced}");
}

fn shared() -> Option<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/json_schema/JSON-Schema-Test-Suite");
    let found = data.join("draft2020-12");
    if !found.is_dir() {
        println!("skipped: {} is not there", data.display());
        return None;
    }
    Some(found)
}

/// The instances of the JSON schema test suite: no schema that is taken lets an invalid one pass.
#[test]
fn schemas_of_the_suite_refuse_wrong_instances() {
    let Some(folder) = shared() else { return };
    let (all, mut counts, mut wrong) = (vocabulary(), BTreeMap::<&str, usize>::new(), vec![]);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    for file in files {
        let groups: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        for group in groups.as_array().unwrap() {
            let Ok(grammar) = all.grammar(Language::JsonSchema, &group["schema"].to_string()) else {
                *counts.entry("schemas refused").or_default() += 1;
                continue;
            };
            *counts.entry("schemas taken").or_default() += 1;
            for test in group["tests"].as_array().unwrap() {
                let (accepted, valid) = (accepts(&grammar, &test["data"].to_string()), test["valid"] == true);
                let kind = match (accepted, valid) {
                    (true, true) | (false, false) => "as they should be",
                    (false, true) => "valid, but written in another way",
                    (true, false) => "invalid and accepted",
                };
                *counts.entry(kind).or_default() += 1;
                if accepted && !valid {
                    wrong.push(format!("{}: {}: {}", file.display(), group["description"], test["description"]));
                }
            }
        }
    }
    println!("{counts:?}");
    assert!(wrong.is_empty(), "{} accepted:\n{}", wrong.len(), wrong.join("\n"));
    assert!(counts["schemas taken"] > 100 && counts["as they should be"] > 500, "{counts:?}");
}

/// Random texts of schemas are JSON.
#[test]
fn texts_of_schemas_are_json() {
    let (all, mut rng, mut ended) = (vocabulary(), Rng(3), 0);
    for schema in [
        json!({"type": "object"}),
        json!({"type": "array", "items": {"type": "integer"}, "maxItems": 5}),
        json!({"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}, {"enum": ["a", 1, {"b": []}]}]}),
        json!({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"$ref": "#/$defs/b"}},
            "required": ["b"], "$defs": {"b": {"type": "array", "items": {"type": "integer"}, "minItems": 1}}}),
        json!({"type": "string", "format": "date-time"}),
    ] {
        let grammar = all.grammar(Language::JsonSchema, &schema.to_string()).unwrap();
        for _ in 0..20 {
            let Some(text) = walk(&grammar, &mut rng, 300) else { continue };
            serde_json::from_str::<Value>(&text).unwrap_or_else(|e| panic!("{schema}: {text}: {e}"));
            ended += 1;
        }
    }
    assert!(ended > 50, "{ended}");
}

/// All letters come, but those that a grammar bans.
fn random(seed: u64, grammar: &'static str, language: u32) -> llmcc_gen_params {
    let mut p = llmcc_gen_params {
        max_tokens: 60,
        grammar: grammar.as_ptr().cast(),
        grammar_len: grammar.len(),
        grammar_language: language,
        ..params()
    };
    p.sampling = llmcc_sampling { temperature: 1e5, seed, ..llmcc_sampling::default() };
    p
}

#[test]
fn generations_follow_grammars() {
    let model = open(Options { threads: 1, max_batch_tokens: 16, max_tokens: 4000, ..Options::default() });
    for seed in 0..30 {
        let p = random(seed, "[ab]{3}(c|dd)*", LLMCC_GRAMMAR_REGEX);
        let (tokens, text, finish, _) = generate(&model, -1, &[1, 2, 3], &p);
        let (head, tail) = text.split_at(3);
        assert!(head.chars().all(|c| "ab".contains(c)) && tail.replace("dd", "").chars().all(|c| c == 'c'), "{text}");
        assert!(finish == 1 && tokens.last() == Some(&5) || finish == 3, "{text}: {finish}");
        // Guesses change nothing.
        let guessed = llmcc_gen_params { guesses: LLMCC_GUESS_LOOKUP, ..p };
        assert_eq!(generate(&model, -1, &[1, 2, 3], &guessed).0, tokens);
        let (_, text, finish, _) = generate(&model, -1, &[4], &random(seed, r#"["ab", "cde"]"#, LLMCC_GRAMMAR_CHOICES));
        assert!((text == "ab" || text == "cde") && finish == 1, "{text}");
    }
}

#[test]
fn requests_follow_grammars() {
    let model = open(Options { threads: 1, max_tokens: 4000, ..Options::default() });
    let mut engine = std::ptr::null_mut();
    // SAFETY: valid arguments throughout.
    unsafe {
        ok(llmcc_engine_open(model.0, std::ptr::null(), &mut engine));
        let (prompt, mut expected) = ([1, 2, 3], BTreeMap::new());
        for seed in 0..16 {
            let p = random(seed, "start: /[a-d]/ start \"e\" | \"e\"", LLMCC_GRAMMAR_LARK);
            let request =
                llmcc_request { tokens: prompt.as_ptr(), n_tokens: 3, params: &p, ..llmcc_request::default() };
            let mut id = 0;
            ok(llmcc_engine_submit(engine, &request, &mut id));
            expected.insert(id, generate(&model, -1, &prompt, &p).0);
        }
        let mut got: BTreeMap<u64, Vec<i32>> = BTreeMap::new();
        let mut left = expected.len();
        while left > 0 {
            let (mut event, mut n) = (llmcc_event::default(), 0);
            ok(llmcc_engine_poll(engine, &mut event, 1, &mut n, -1));
            got.entry(event.request).or_default().extend((event.token >= 0).then_some(event.token));
            assert_eq!(event.status, 0);
            left -= event.ended as usize;
        }
        assert_eq!(got, expected);
        llmcc_engine_close(engine);
    }
}

/// Tokens that are certain take no steps of their own.
#[test]
fn forced_tokens_share_a_step() {
    let model = open(Options { threads: 1, max_tokens: 4000, ..Options::default() });
    let mut engine = std::ptr::null_mut();
    // SAFETY: valid arguments throughout.
    unsafe {
        ok(llmcc_engine_open(model.0, std::ptr::null(), &mut engine));
        let p = random(1, "(abcd){12}", LLMCC_GRAMMAR_REGEX);
        let request = llmcc_request { tokens: [1].as_ptr(), n_tokens: 1, params: &p, ..llmcc_request::default() };
        let (mut id, mut text, mut ended) = (0, String::new(), false);
        ok(llmcc_engine_submit(engine, &request, &mut id));
        while !ended {
            let (mut event, mut n) = (llmcc_event::default(), 0);
            ok(llmcc_engine_poll(engine, &mut event, 1, &mut n, -1));
            text += std::ffi::CStr::from_ptr(event.text).to_str().unwrap();
            ended = event.ended != 0;
        }
        assert_eq!(text, "abcd".repeat(12));
        let (mut out, mut n) = ([0; 1000], 0);
        ok(llmcc_engine_stats(engine, out.as_mut_ptr(), out.len(), &mut n));
        let stats: Value = serde_json::from_slice(std::slice::from_raw_parts(out.as_ptr().cast::<u8>(), n)).unwrap();
        assert_eq!(stats["generated_tokens"], 49);
        assert!(stats["steps"].as_u64().unwrap() < 8, "{stats}");
        llmcc_engine_close(engine);
    }
}

#[test]
fn wrong_parameters_are_refused() {
    let model = open(Options::default());
    let p = random(1, "a", LLMCC_GRAMMAR_REGEX);
    let refuses = |p: &llmcc_gen_params, part: &str| {
        let mut out = std::ptr::null_mut();
        // SAFETY: valid arguments.
        fails(unsafe { llmcc_gen_new(model.0, -1, [1].as_ptr(), 1, p, &mut out) }, Status::Invalid, part);
    };
    refuses(&llmcc_gen_params { grammar_language: 9, ..p }, "grammar_language is 9");
    refuses(&llmcc_gen_params { grammar_language: 0, ..p }, "grammar_language is 0");
    refuses(&llmcc_gen_params { flags: LLMCC_GEN_IGNORE_EOS, ..p }, "LLMCC_GEN_IGNORE_EOS");
    refuses(&llmcc_gen_params { flags: LLMCC_GEN_NO_TEXT, ..p }, "LLMCC_GEN_NO_TEXT");
    refuses(&random(1, "(", LLMCC_GRAMMAR_REGEX), "the regular expression is refused");
    refuses(&random(1, "xyz", LLMCC_GRAMMAR_REGEX), "no text of this vocabulary");
    let all: Vec<llmcc_logit_bias> = (0..VOCAB as i32)
        .map(|token| llmcc_logit_bias { token, value: if token == 1 { f32::NEG_INFINITY } else { 0.0 } })
        .collect();
    let mut banned = p;
    (banned.sampling.bias, banned.sampling.n_bias) = (all.as_ptr(), all.len() as u32);
    let mut generation = std::ptr::null_mut();
    // SAFETY: valid arguments.
    unsafe {
        ok(llmcc_gen_new(model.0, -1, [1].as_ptr(), 1, &banned, &mut generation));
        let mut piece = piece();
        fails(llmcc_gen_next(generation, &mut piece), Status::Invalid, "no token that the grammar allows");
        llmcc_gen_free(generation);
    }
}
