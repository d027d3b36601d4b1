//! Texts of calls as pieces.

use super::core::json_of;
use crate::format::{Piece, Span};
use crate::probe::Known;
use serde_json::Value;

/// Removes the marks of reasoning and of answers that a turn begins with.
pub(crate) fn stripped<'a>(mut text: &'a str, reasoning: Option<&Span>, content: &Span) -> &'a str {
    let mut marks = vec![content.start.as_str(), content.end.as_str()];
    if let Some(span) = reasoning {
        marks.extend([span.start.as_str(), span.end.as_str()]);
    }
    loop {
        let rest = text.trim_start();
        let found = marks.iter().filter(|mark| !mark.is_empty()).find_map(|mark| rest.strip_prefix(*mark));
        match found {
            Some(rest) => text = rest,
            None => return text,
        }
    }
}

/// A text whose known parts are pieces of their own.
pub(crate) fn split(text: &str, parts: &[(&str, Piece)]) -> Vec<Piece> {
    let found = parts.iter().filter(|(part, _)| !part.is_empty());
    let next = found.filter_map(|(part, piece)| Some((text.find(part)?, part.len(), piece))).min_by_key(|f| f.0);
    let literal = |text: &str| if text.is_empty() { vec![] } else { vec![Piece::Text(text.to_owned())] };
    let Some((at, len, piece)) = next else { return literal(text) };
    let mut all = literal(text.get(..at).unwrap_or_default());
    all.push(piece.clone());
    all.extend(split(text.get(at + len..).unwrap_or_default(), parts));
    all
}

/// The pieces of a call's head.
pub(crate) fn pieces(text: &str, call: &Known) -> Vec<Piece> {
    // (Identifiers with names fall into pieces.)
    let id = if call.id.contains(call.name) { "" } else { call.id.as_str() };
    split(text, &[(id, Piece::Id), (call.name, Piece::Name)])
}

/// The pieces of an object, as it is printed.
pub(crate) fn object_pieces(whole: &str, call: &Known, text: bool) -> Vec<Piece> {
    let range = json_of(whole, 1, &call.arguments);
    let printed = match range {
        Some((from, to)) if !text => whole.get(from..to).unwrap_or_default().to_owned(),
        _ => Value::from(call.arguments.to_string()).to_string(),
    };
    let (head, tail) = whole.split_once(printed.as_str()).unwrap_or((whole, ""));
    let mut all = pieces(head, call);
    if head.len() < whole.len() {
        all.push(Piece::Arguments);
        all.extend(pieces(tail, call));
    }
    all
}

/// Pieces of the first call, where digits that differ in the second one are its place.
pub(crate) fn placed(first: Vec<Piece>, second: Option<Vec<Piece>>) -> Vec<Piece> {
    let Some(second) = second.filter(|second| second.len() == first.len()) else { return first };
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let mut all = vec![];
    for (a, b) in first.into_iter().zip(second) {
        let (Piece::Text(x), Piece::Text(y)) = (&a, &b) else {
            all.push(a);
            continue;
        };
        let (from, to) = (digits(x).parse::<u32>(), digits(y).parse::<u32>());
        match (from, to) {
            (Ok(from), Ok(to)) if to == from + 1 && x.replace(&digits(x), "#") == y.replace(&digits(y), "#") => {
                all.extend(split(x, &[(&digits(x), Piece::Index(from))]));
            }
            _ => all.push(a),
        }
    }
    all
}
