//! Fuzz targets: arbitrary bytes in, no panic, hang or exhausted memory out.

use crate::event::{Event, merged};
use crate::format::Format;
use crate::grammar::{Answer, Lexeme, Turn, grammar};
use crate::parse::Parser;
use crate::tools::Tools;
use serde_json::{Value, json};
use std::sync::Arc;

/// A format in JSON on the first line, and the text of a turn after it.
///
/// # Panics
/// The parser has a bug.
pub fn turns(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((format, text)) = text.split_once('\n') else { return };
    if let Ok(format) = serde_json::from_str::<Format>(format) {
        same_in_pieces(&format, text);
    }
}

fn tools() -> Tools {
    let schema = json!({ "type": "object", "required": ["a"], "properties": {
        "a": { "type": "string" }, "b": { "type": "integer" }, "c": { "type": ["object", "null"] } } });
    let function = |name: &str| json!({ "type": "function", "function": { "name": name, "parameters": schema } });
    Tools::new(&json!([function("f"), function("g-h")]))
}

/// Asserts that the events of a turn do not depend on its pieces, and that arguments are objects.
fn same_in_pieces(format: &Format, text: &str) {
    let format = Arc::new(format.clone());
    let reasons = format.reasoning.as_ref().map_or("", |span| span.start.as_str());
    let calls = format.calls.as_ref().map_or("", |calls| calls.call.start.as_str());
    let prompt = ["", reasons, calls][text.len() % 3];
    let whole = run(&format, prompt, &[text]);
    for event in &whole {
        if let Event::Arguments { text, .. } = event {
            assert!(serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_object()), "arguments {text:?}");
        }
    }
    let letters: Vec<&str> = text.split_inclusive(|_: char| true).collect();
    assert_eq!(run(&format, prompt, &letters), whole, "letters of {text:?} after {prompt:?} in {format:?}");
    for count in [2, 3, 7] {
        let pieces: Vec<String> =
            letters.chunks(letters.len().div_ceil(count).max(1)).map(|piece| piece.concat()).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        assert_eq!(run(&format, prompt, &pieces), whole, "{pieces:?} after {prompt:?} in {format:?}");
    }
    let lexemes = |text: &str| vec![Lexeme::Text(text.to_owned())];
    for (answer, single) in [(Answer::None, false), (Answer::Regex("a+".into()), true)] {
        let _ = grammar(&Turn { format: &format, prompt, tools: &tools(), single, answer, lexemes: &lexemes });
    }
}

fn run(format: &Arc<Format>, prompt: &str, pieces: &[&str]) -> Vec<Event> {
    let mut parser = Parser::new(format.clone(), tools(), prompt);
    parser.hide("<|hidden|>");
    let mut all: Vec<Event> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    all.extend(parser.finish());
    assert!(parser.finish().is_empty(), "a turn ends twice");
    merged(all)
}
