//! Random texts of marks and letters: events do not depend on pieces, and no letter of an answer is lost.

use llmcc_turns::{Event, Format, Parser, Tools, merged};
use serde_json::{Value, json};
use std::sync::Arc;

/// A generator of random values (Vigna's splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as usize % n
    }
}

fn formats() -> Vec<Format> {
    let span = |start: &str, end: &str| json!({ "start": start, "end": end });
    let object = json!({ "kind": "object", "name": ["name"], "arguments": ["arguments"], "pieces": [] });
    let tagged = json!({ "kind": "tagged", "head": ["name", { "text": ">" }], "key": "\n<p=",
        "mids": [{ "text": ">\n", "kind": "any" }], "end": [{ "text": "\n</p>" }] });
    let named = json!({ "kind": "named", "pieces": ["name", { "text": "\n" }, "arguments"] });
    let forms = [
        (span("", ""), span("<call>\n", "\n</call>"), "\n", object.clone()),
        (span("[CALLS][", "]"), span("", ""), ", ", object.clone()),
        (span("", ""), span("", ""), "", object),
        (span("", ""), span("<call>\n<f=", "\n</f>\n</call>"), "\n", tagged),
        (span("<s>", "</s>"), span("<call>", "</call>"), "", named.clone()),
        (span("", ""), span(">>>", ""), "", named),
        (span("<s>[", "]</s>"), span("", ""), ", ", json!({ "kind": "python" })),
        (span("", ""), span("<call>", "</call>"), "", json!({ "kind": "notation", "quote": "~\"~" })),
    ];
    let format = |(section, call, separator, form): (Value, Value, &str, Value)| {
        let calls = json!({ "section": section, "call": call, "separator": separator, "form": form });
        let all = json!({ "reasoning": span("<think>", "</think>"), "end": "<end>", "calls": calls });
        serde_json::from_value::<Format>(all).expect("a format")
    };
    forms.into_iter().map(format).chain([Format { channels: true, ..Format::default() }]).collect()
}

const PARTS: &[&str] = &[
    "<call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}\n</call>",
    "[CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
    "<call>\n<f=f>\n<p=a>\nx\n</p>\n</f>\n</call>",
    "<s><call>f\n{}</call></s>",
    ">>>f\n{\"a\": 1}",
    "<s>[f(a='x'), g()]</s>",
    "<call>f{a:~\"~x~\"~}</call>",
    "<|channel|>commentary to=functions.f<|message|>{}<|call|>",
    "<call>",
    "</call>",
    "[CALLS]",
    "[",
    "]",
    "<s>",
    "</s>",
    ">>>",
    "<think>",
    "</think>",
    "<end>",
    "<f=",
    "</f>",
    "<p=",
    ">",
    "</p>",
    "f",
    "g",
    "{\"name\": \"f\", \"arguments\": {}}",
    "{\"name\": \"f\", \"arguments\": ",
    "{}",
    "{\"a\": 1}",
    "}",
    "{",
    "\"",
    "\\",
    "'",
    "(",
    ")",
    "a=",
    "a:",
    "1",
    ",",
    " ",
    "\n",
    "~\"~",
    "é",
    "x",
    "<|channel|>",
    "final",
    "analysis",
    "<|message|>",
    "<|end|>",
    "<|start|>",
    "assistant",
    "commentary to=functions.f",
    "<|call|>",
    "<",
];

fn run(format: &Arc<Format>, prompt: &str, pieces: &[&str]) -> Vec<Event> {
    let function = |name: &str| json!({ "function": { "name": name } });
    let mut parser = Parser::new(format.clone(), Tools::new(&json!([function("f"), function("g")])), prompt);
    parser.hide("<|hidden|>");
    let mut all: Vec<Event> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    all.extend(parser.finish());
    assert!(parser.finish().is_empty() && parser.push("").is_empty());
    merged(all)
}

#[test]
fn pieces_do_not_matter() {
    let mut random = Random(3);
    let mut calls = 0;
    for format in formats() {
        let format = Arc::new(format);
        for _ in 0..1200 {
            let text: String = (0..1 + random.below(14)).map(|_| PARTS[random.below(PARTS.len())]).collect();
            let prompt = ["", "<think>", "x>>>"][random.below(3)];
            let whole = run(&format, prompt, &[&text]);
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(run(&format, prompt, &letters), whole, "{text:?} after {prompt:?} in {format:?}");
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let at = places[random.below(places.len())];
            assert_eq!(run(&format, prompt, &[&text[..at], &text[at..]]), whole, "{text:?} at {at} in {format:?}");
            for event in &whole {
                if let Event::Arguments { text, .. } = event {
                    calls += 1;
                    assert!(serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_object()), "{text:?}");
                }
            }
            lost(&format, &text, &whole);
        }
    }
    assert!(calls > 300, "{calls} calls");
}

/// The letter `x` belongs to no mark and no call: it comes out as often as it goes in.
fn lost(format: &Format, text: &str, events: &[Event]) {
    let inside = |event: &Event| match event {
        Event::Text(text) | Event::Reasoning(text) | Event::Arguments { text, .. } => text.matches('x').count(),
        Event::Call { name, .. } => name.matches('x').count(),
        Event::End { .. } => 0,
    };
    let out: usize = events.iter().map(inside).sum();
    // (Headers of messages are no text.)
    assert!(format.channels || out == text.matches('x').count(), "{text:?}: {events:?}");
}
