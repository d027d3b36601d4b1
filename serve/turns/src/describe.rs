//! Formats are tried on the renders that they came from: whatever does not come out again is no part of them.

use crate::event::{Event, merged};
use crate::format::Format;
use crate::parse::Parser;
use crate::probe::{CONTENT, KEYS, Known, NAMES, Probe, REASONING, Render, Style, Turn, VALUES, declared};
use crate::tools::Tools;
use serde_json::{Value, json};
use std::sync::Arc;

/// Tries a format, and removes the parts that fail, with notes.
pub(crate) fn check(render: &Render, format: &mut Format) {
    let bare = Probe::new(render, Style::default(), false);
    let plain = bare.answer(CONTENT, None).map(|turn| events(format, &turn));
    if !plain.is_ok_and(|events| trimmed(events) == [Event::Text(CONTENT.into())]) {
        format.notes.push("answers do not come out of the derived format: texts are left as they are".into());
        *format = Format { notes: std::mem::take(&mut format.notes), ..Format::default() };
        return;
    }
    if let Ok(turn) = bare.answer(CONTENT, Some(REASONING))
        && turn.body.contains(REASONING)
        && trimmed(events(format, &turn)) != [Event::Reasoning(REASONING.into()), Event::Text(CONTENT.into())]
    {
        format.notes.push("reasoning does not come out of the derived format: it is left in the text".into());
        format.reasoning = None;
    }
    let Some(single) = format.calls.as_ref().map(|calls| calls.single) else { return };
    let style = styles(format).find(|style| called(render, format, *style, single).is_ok());
    if style.is_none() {
        let why = styles(format).find_map(|style| called(render, format, style, single).err()).unwrap_or_default();
        format.notes.push(format!("the template prints calls in a manner that is not recognised: {why}"));
        format.calls = None;
    }
}

fn styles(format: &Format) -> impl Iterator<Item = Style> {
    let text = format.arguments_text;
    Style::all().into_iter().filter(move |style| style.text == text)
}

/// Tries calls.
fn called(render: &Render, format: &Format, style: Style, single: bool) -> Result<(), String> {
    let probe = Probe::new(render, style, true);
    let typed = json!({ KEYS[0]: "a \"b\"", KEYS[1]: 12, KEYS[2]: VALUES[1] });
    let of = |i: usize, arguments: Value| probe.known(i, arguments);
    let mut trials = vec![vec![of(0, json!({ KEYS[0]: VALUES[0] }))], vec![of(1, json!({}))], vec![of(0, typed)]];
    if !single {
        trials.push(vec![of(0, json!({ KEYS[0]: VALUES[0] })), of(1, json!({ KEYS[0]: VALUES[1] }))]);
    }
    trials.iter().try_for_each(|calls| {
        let turn = probe.calling(calls, "", None)?;
        let found = read(&events(format, &turn));
        let want: Vec<(String, Value)> =
            calls.iter().map(|Known { name, arguments, .. }| ((*name).to_owned(), arguments.clone())).collect();
        if found.as_ref() == Some(&want) { Ok(()) } else { Err(format!("of {:?}", turn.body)) }
    })
}

/// Names and arguments of events that are calls alone.
fn read(events: &[Event]) -> Option<Vec<(String, Value)>> {
    let mut all: Vec<(String, Value)> = vec![];
    for event in events {
        match event {
            Event::Call { name, .. } => all.push((name.clone(), Value::Null)),
            Event::Arguments { text, .. } => all.last_mut()?.1 = serde_json::from_str(text).ok()?,
            Event::End { .. } => {}
            Event::Text(_) | Event::Reasoning(_) => return None,
        }
    }
    Some(all)
}

fn events(format: &Format, turn: &Turn) -> Vec<Event> {
    let tools = Tools::new(&declared());
    // Reasoning may begin in the prompt only; a turn of the past may have none after the mark that opens it.
    let dropped = if turn.body.trim_start().starts_with(REASONING) { turn.dropped.as_str() } else { "" };
    let begun = format!("{}{dropped}", turn.before);
    let ends = |mark: &str, text: &str| !mark.is_empty() && text.trim_end().ends_with(mark);
    let prompt = match &format.reasoning {
        Some(span) if !turn.body.contains(&span.end) && ends(&span.start, &turn.before) => "",
        Some(span) if !ends(&span.start, &turn.before) && ends(&span.start, &begun) => &begun,
        _ => &turn.before,
    };
    let mut parser = Parser::new(Arc::new(format.clone()), tools, prompt);
    // (Templates may print more behind a turn, and the mark of its end within it.)
    let words = [CONTENT, REASONING].into_iter().chain(NAMES).chain(VALUES);
    let told = words.filter_map(|word| Some(turn.body.rfind(word)? + word.len())).max().unwrap_or(0);
    let end = turn.body.get(told..).and_then(|rest| rest.find(&format.end)).filter(|_| !format.end.is_empty());
    let mut all = parser.push(end.and_then(|end| turn.body.get(..told + end)).unwrap_or(&turn.body));
    all.extend(parser.finish());
    merged(all)
}

/// Events without blanks around texts: templates add some.
fn trimmed(events: Vec<Event>) -> Vec<Event> {
    let trim = |event: Event| match event {
        Event::Text(text) => Event::Text(text.trim().to_owned()),
        Event::Reasoning(text) => Event::Reasoning(text.trim().to_owned()),
        other => other,
    };
    events.into_iter().map(trim).filter(|event| *event != Event::Text(String::new())).collect()
}
