//! Grammars of tool calls: random texts of them are calls that the parser of the same format reads.

use std::borrow::Cow;
use std::sync::Arc;

use llmcc_rt::grammar::{Grammar, Guide, Language, Vocabulary};
use llmcc_turns::grammar::{Answer, Lexeme, Turn, grammar};
use llmcc_turns::{Event, Format, Parser, Tools, merged};
use serde_json::{Value, json};

/// The token that ends texts, and special tokens after it.
const END: i32 = 256;
const SPECIAL: [&str; 3] = ["<|call|>", "<|end|>", "<think>"];

fn vocabulary() -> Vocabulary {
    let word = |token: i32| {
        let special = usize::try_from(token - END - 1).ok().and_then(|i| SPECIAL.get(i));
        Ok(match special {
            Some(text) => (text.as_bytes().to_vec(), true),
            None if token == END => (b"</s>".to_vec(), true),
            None => (vec![token as u8], false),
        })
    };
    Vocabulary::new(&word, 257 + SPECIAL.len(), &[END]).unwrap()
}

/// Splits a text at special tokens.
fn lexemes(text: &str) -> Vec<Lexeme> {
    let found = SPECIAL.iter().enumerate().filter_map(|(i, special)| Some((text.find(special)?, i, special.len())));
    let Some((at, i, len)) = found.min() else {
        return if text.is_empty() { vec![] } else { vec![Lexeme::Text(text.into())] };
    };
    let mut all = lexemes(&text[..at]);
    all.push(Lexeme::Token(257 + i as u32));
    all.extend(lexemes(&text[at + len..]));
    all
}

fn tokens(text: &str) -> Vec<i32> {
    let of = |lexeme| match lexeme {
        Lexeme::Text(text) => text.bytes().map(i32::from).collect::<Vec<i32>>(),
        Lexeme::Token(token) => vec![token as i32],
    };
    lexemes(text).into_iter().flat_map(of).collect()
}

fn text_of(tokens: &[i32]) -> String {
    let of = |token: &i32| match usize::try_from(token - 257) {
        Ok(i) => SPECIAL[i].as_bytes().to_vec(),
        Err(_) => vec![*token as u8],
    };
    String::from_utf8_lossy(&tokens.iter().flat_map(of).collect::<Vec<u8>>()).into_owned()
}

fn allowed(guide: &Guide, text: &[i32]) -> Vec<i32> {
    let n = 257 + SPECIAL.len();
    let row = guide.apply(Cow::Owned(vec![0.0; n]), text).unwrap();
    (0..n as i32).filter(|t| row[*t as usize] == 0.0).collect()
}

/// Whether a text is one of the grammar.
fn accepts(grammar: &Grammar, text: &str) -> bool {
    let guide = Guide::new(grammar.clone());
    let tokens: Vec<i32> = tokens(text).into_iter().chain([END]).collect();
    (0..tokens.len()).all(|i| allowed(&guide, &tokens[..i]).contains(&tokens[i]))
}

/// A random text of a grammar; `None` where it has not ended soon.
fn walk(grammar: &Grammar, state: &mut u64) -> Option<String> {
    let (guide, mut text) = (Guide::new(grammar.clone()), vec![]);
    let mut below = |n: usize| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize % n
    };
    while text.len() < 600 {
        let next = allowed(&guide, &text);
        // Letters of plain texts, and ends soon.
        let few: Vec<i32> = next.iter().copied().filter(|t| matches!(t, 33..=91 | 93..=126 | 256..)).collect();
        let next = if few.is_empty() { next } else { few };
        let closes =
            next.iter().copied().find(|t| [END, 257, 258, 34, 60, 93, 125].contains(t)).filter(|_| below(3) == 0);
        match closes.unwrap_or_else(|| next[below(next.len())]) {
            END => return Some(text_of(&text)),
            token => text.push(token),
        }
    }
    None
}

fn tools() -> Tools {
    let schema = json!({ "type": "object", "required": ["city"], "additionalProperties": false, "properties": {
        "city": { "type": "string" }, "days": { "type": "integer" }, "exact": { "type": "boolean" },
        "unit": { "type": "string", "enum": ["C", "F"] } } });
    let function = json!({ "name": "weather", "parameters": schema });
    let none = json!({ "name": "now" });
    Tools::new(&json!([{ "function": function }, { "function": none }]))
}

fn format(calls: Value) -> Format {
    serde_json::from_value(json!({ "calls": calls, "reasoning": { "start": "<think>", "end": "</think>" } })).unwrap()
}

fn formats() -> Vec<(Format, &'static str)> {
    let span = |start: &str, end: &str| json!({ "start": start, "end": end });
    let calls = |section: Value, call: Value, separator: &str, form: Value| {
        format(json!({ "section": section, "call": call, "separator": separator, "form": form }))
    };
    let object = json!({ "kind": "object", "name": ["name"], "arguments": ["arguments"],
        "pieces": [{ "text": "{\"name\": \"" }, "name", { "text": "\", \"arguments\": " }, "arguments",
            { "text": "}" }] });
    let any = json!([{ "text": ">\n", "kind": "any" }]);
    let tagged = json!({ "kind": "tagged", "head": ["name", { "text": ">\n" }], "key": "<parameter=", "mids": any,
        "end": [{ "text": "\n</parameter>\n" }] });
    let named =
        json!({ "kind": "named", "pieces": ["name", { "text": ":" }, { "index": 0 }, { "text": "|" }, "arguments"] });
    let python = json!({ "kind": "python" });
    let notation = json!({ "kind": "notation", "quote": "~~" });
    vec![
        (
            calls(span("", ""), span("<tool_call>\n", "\n</tool_call>"), "\n", object.clone()),
            "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>",
        ),
        (
            calls(span("<|call|>[", "]"), span("", ""), ", ", object),
            "<|call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}]",
        ),
        (
            calls(span("", ""), span("<tool_call>\n<function=", "</function>\n</tool_call>"), "\n", tagged),
            "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            calls(span("<|call|>", "<|end|>"), span("<c>", "</c>"), "", named),
            "<|call|><c>weather:0|{\"city\": \"Bern\"}</c><|end|>",
        ),
        (calls(span("<|call|>[", "]<|end|>"), span("", ""), ", ", python), "<|call|>[weather(city='Bern')]<|end|>"),
        (
            calls(span("", ""), span("<|call|>call:", "<|end|>"), "", notation),
            "<|call|>call:weather{city:~~Bern~~}<|end|>",
        ),
    ]
}

fn source(format: &Format, prompt: &str, single: bool, answer: Answer) -> String {
    let tools = tools();
    grammar(&Turn { format, prompt, tools: &tools, single, answer, lexemes: &lexemes }).unwrap()
}

/// The calls of a text; none for a text with anything else.
fn calls(format: &Format, prompt: &str, text: &str) -> Vec<(String, Value)> {
    let mut parser = Parser::new(Arc::new(format.clone()), tools(), prompt);
    let mut events = parser.push(text);
    events.extend(parser.finish());
    let mut all: Vec<(String, Value)> = vec![];
    for event in merged(events) {
        match event {
            Event::Call { name, .. } => all.push((name, Value::Null)),
            Event::Arguments { text, .. } => all.last_mut().unwrap().1 = serde_json::from_str(&text).unwrap(),
            Event::Text(rest) => panic!("{text:?}: the text {rest:?}"),
            Event::Reasoning(_) | Event::End { .. } => {}
        }
    }
    all
}

#[test]
fn random_calls_are_read() {
    let vocabulary = vocabulary();
    for (format, good) in formats() {
        let source = source(&format, "", false, Answer::None);
        let grammar = vocabulary.grammar(Language::Lark, &source).unwrap_or_else(|e| panic!("{e}:\n{source}"));
        assert!(accepts(&grammar, good), "{good}\n{source}");
        assert!(accepts(&grammar, &format!("<think>so</think>{good}")), "{good}\n{source}");
        assert!(!accepts(&grammar, "text") && !accepts(&grammar, &good.replace("weather", "other")), "{source}");
        assert!(!accepts(&grammar, &good.replace("city", "town")), "{source}");
        let (mut state, mut found) = (7, 0);
        for text in (0..60).filter_map(|_| walk(&grammar, &mut state)) {
            let all = calls(&format, "", &text);
            assert!(!all.is_empty(), "{text}");
            for (name, arguments) in all {
                found += 1;
                assert!(name == "now" || arguments["city"].is_string(), "{text}: {arguments}");
                let days = arguments.get("days").is_none_or(Value::is_i64) || name == "now";
                assert!(days, "{text}: {arguments}");
            }
        }
        assert!(found > 4, "{found} calls of\n{source}");
    }
}

#[test]
fn one_call_or_several() {
    let vocabulary = vocabulary();
    let (format, good) = formats().swap_remove(0);
    let of = |single| vocabulary.grammar(Language::Lark, &source(&format, "", single, Answer::None)).unwrap();
    let two = format!("{good}\n{good}");
    assert!(accepts(&of(false), &two) && !accepts(&of(true), &two) && accepts(&of(true), good));
}

#[test]
fn reasoning_calls_and_answers_in_one() {
    let vocabulary = vocabulary();
    let (format, good) = formats().swap_remove(1);
    let schema = r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}"#;
    for (answer, text) in [
        (Answer::Json(schema.into()), r#"{"a": 1}"#),
        (Answer::Regex("[ab]/c".into()), "a/c"),
        (Answer::Choices(vec!["yes".into(), "no \"x\"".into()]), "no \"x\""),
        (Answer::Lark("start: \"x\" y\ny: \"z\"".into()), "xz"),
    ] {
        // After a prompt that opens the reasoning, that closes it, and that says nothing.
        let of = |prompt: &str| {
            let source = source(&format, prompt, false, answer.clone());
            vocabulary.grammar(Language::Lark, &source).unwrap_or_else(|e| panic!("{e}:\n{source}"))
        };
        let (opened, closed, free) = (of("x<think>\n"), of("x<think></think>\n"), of("x"));
        for body in [text, good] {
            assert!(accepts(&opened, &format!("so {{\n</think>\n\n{body}")) && !accepts(&opened, body), "{body}");
            assert!(accepts(&closed, body) && !accepts(&closed, &format!("<think>so</think>{body}")), "{body}");
            assert!(accepts(&free, body) && accepts(&free, &format!("<think>so</think>{body}")), "{body}");
        }
        assert!(!accepts(&free, "else"));
    }
}

#[test]
fn messages_with_channels() {
    let vocabulary = vocabulary();
    let format = Format { channels: true, ..Format::default() };
    let source = source(&format, "<|start|>assistant", false, Answer::Json("{}".into()));
    let grammar = vocabulary.grammar(Language::Lark, &source).unwrap();
    let call = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"x\"}";
    assert!(accepts(&grammar, call));
    let thought = format!("<|channel|>analysis<|message|>so<|end|><|start|>assistant{call}");
    assert!(accepts(&grammar, &thought));
    assert_eq!(calls(&format, "", &format!("{thought}<|call|>")), [("weather".to_owned(), json!({ "city": "x" }))]);
}
