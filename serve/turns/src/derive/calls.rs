//! The form of calls, and the marks around them.

use super::core::{Core, Found, find};
use super::pieces::{object_pieces, pieces, placed, stripped};
use super::reasoning::{empty, opening};
use super::tagged;
use crate::boundary::{shared_end, shared_start};
use crate::format::{Calls, Form, Format, Piece, Span};
use crate::probe::{CONTENT, KEYS, Probe, REASONING, Render, Style, Turn, VALUES};
use serde_json::{Value, json};

/// Calls as a template prints them.
pub(crate) struct Derived {
    pub(crate) calls: Calls,
    pub(crate) style: Style,
    /// The text after a turn.
    pub(crate) end: String,
    /// Marks of reasoning before a call, where a turn without calls shows none.
    pub(crate) reasoning: Option<Span>,
}

/// Turns with one call and with two.
struct Turns<'a> {
    probe: Probe<'a>,
    one: Turn,
    first: Core,
    two: Option<(Turn, Core, Core)>,
}

/// An argument that the schema says is a text.
pub(crate) fn argument(i: usize) -> Value {
    json!({ KEYS[0]: VALUES.get(i).copied().unwrap_or_default() })
}

/// Derives the form of calls. `after`: the text after an answer.
pub(crate) fn derive(render: &Render, format: &Format, after: &str) -> Result<Derived, String> {
    let turns = turns(render)?;
    let style = turns.probe.style;
    let Turns { probe, one, first, two } = &turns;
    let body = |turn: &Turn, from: usize, to: usize| turn.body.get(from..to).unwrap_or_default().to_owned();
    let mut tail = body(one, first.end, one.body.len());
    let end = match tail.find(after.trim()) {
        Some(at) if !after.trim().is_empty() => {
            tail.truncate(at);
            after.to_owned()
        }
        _ => shared_end(after, &tail).to_owned(),
    };
    tail = tail.strip_suffix(end.as_str()).unwrap_or(&tail).to_owned();
    let mut middle = two.as_ref().map(|(turn, a, b)| body(turn, a.end, b.start));
    let head = body(one, first.start, first.arguments);
    let second = two.as_ref().map(|(turn, _, b)| body(turn, b.start, b.arguments));
    let known = [probe.known(0, argument(0)), probe.known(1, argument(1))];
    let heads = |ends: &str| {
        let cut = |text: &str| text.strip_suffix(ends).unwrap_or(text).to_owned();
        placed(pieces(&cut(&head), &known[0]), second.as_ref().map(|text| pieces(&cut(text), &known[1])))
    };
    let form = match &first.found {
        Found::Object { name, arguments, id, text } => {
            let whole = body(one, first.start, first.end);
            let pieces = object_pieces(&whole, &known[0], *text);
            Form::Object { name: name.clone(), arguments: arguments.clone(), id: id.clone(), text: *text, pieces }
        }
        Found::Keyed => Form::Keyed { pieces: object_pieces(&body(one, first.start, first.end), &known[0], false) },
        Found::Named => Form::Named { pieces: heads("").into_iter().chain([Piece::Arguments]).collect() },
        Found::Python => Form::Python,
        Found::Notation => {
            let inner = body(one, first.arguments, first.end);
            let before = inner.split_once(VALUES[0]).map_or("", |(before, _)| before);
            let quote = before.split_once(KEYS[0]).map_or("", |(_, rest)| rest).trim_start_matches(':').trim();
            Form::Notation { quote: quote.to_owned() }
        }
        Found::Tagged => {
            let tags = tagged::derive(probe, one, first)?;
            let strip = |text: &str| text.strip_prefix(tags.end_text.as_str()).map(str::to_owned);
            tail = strip(&tail).ok_or("calls end in a manner that is not recognised")?;
            middle = middle.and_then(|middle| strip(&middle));
            let head = heads(&tags.key);
            let tagged::Tags { key, mids, end, escape, nested, .. } = tags;
            Form::Tagged { head, key, mids, end, escape, nested }
        }
    };
    let lead = one.body.get(..first.start).unwrap_or_default();
    let none = if format.reasoning.is_none() { empty(lead) } else { None };
    let lead = stripped(lead, format.reasoning.as_ref().or(none.as_ref()), &format.content);
    let calls = marks(&one.before, lead, middle.as_deref(), &tail, form);
    let reasoning = if format.reasoning.is_none() { none.or_else(|| thought(probe, &calls)) } else { None };
    Ok(Derived { calls, style, end, reasoning })
}

/// Renders of turns with calls, in the first style that the template prints.
fn turns<'a>(render: &'a Render<'a>) -> Result<Turns<'a>, String> {
    let last = |i: usize| Some((KEYS[0], VALUES.get(i).copied().unwrap_or_default()));
    let (mut refused, mut silent) = (None, false);
    for style in Style::all() {
        let probe = Probe::new(render, style, true);
        let known = [probe.known(0, argument(0)), probe.known(1, argument(1))];
        let one = match probe.calling(&known[..1], "", None) {
            Ok(one) => one,
            Err(why) => {
                refused.get_or_insert(why);
                continue;
            }
        };
        let Some(first) = find(&one.body, 0, &known[0], last(0)) else {
            silent = true;
            continue;
        };
        // An object as Python prints it is no form: the template wants a text.
        let head = one.body.get(first.start..first.arguments).unwrap_or_default();
        if first.found == Found::Tagged && (head.contains("{'") || head.contains("{\"")) {
            continue;
        }
        let two = probe.calling(&known, "", None).ok().and_then(|two| {
            let a = find(&two.body, 0, &known[0], last(0))?;
            let b = find(&two.body, a.end, &known[1], last(1)).filter(|b| b.found == a.found)?;
            Some((two, a, b))
        });
        return Ok(Turns { probe, one, first, two });
    }
    Err(match refused {
        Some(why) if !silent => format!("the template refuses calls of tools: {why}"),
        _ => "the template prints no calls of tools".to_owned(),
    })
}

/// The marks around calls, from the texts before, between and after them.
fn marks(before: &str, lead: &str, middle: Option<&str>, tail: &str, form: Form) -> Calls {
    let Some(middle) = middle else {
        let call = Span::new(lead, tail);
        return Calls { section: Span::default(), call, separator: String::new(), single: true, form };
    };
    let end = shared_start(middle, tail);
    let rest = middle.get(end.len()..).unwrap_or_default();
    // A prompt may end with the mark before the first call.
    let prompted = lead.trim().is_empty();
    let whole = if prompted { format!("{before}{lead}") } else { lead.to_owned() };
    let start = shared_end(&whole, rest);
    let start = if prompted && start.trim().is_empty() { lead } else { start };
    let section = if prompted { "" } else { lead.strip_suffix(start).unwrap_or_default() };
    Calls {
        section: Span::new(section, tail.get(end.len()..).unwrap_or_default()),
        call: Span::new(start, end),
        separator: rest.strip_suffix(start).unwrap_or(rest).to_owned(),
        single: false,
        form,
    }
}

/// Marks of reasoning that stands before calls only.
fn thought(probe: &Probe, calls: &Calls) -> Option<Span> {
    let known = probe.known(0, argument(0));
    let turn = probe.calling(std::slice::from_ref(&known), "", Some(REASONING)).ok()?;
    let plain = probe.answer(CONTENT, None).ok()?;
    let (before, rest) = turn.body.split_once(REASONING)?;
    // (Up to the call, if it follows.)
    let between = rest.split_once(known.name).map(|(between, _)| between)?;
    let begins = format!("{}{}", calls.section.start, calls.call.start);
    let begins = if begins.trim().is_empty() { "{" } else { begins.as_str() };
    let between = between.split_once(begins).map_or(between, |(between, _)| between);
    let end = between.trim();
    let start = match before.trim() {
        "" => opening(probe, &plain, &turn)?,
        start => start.to_owned(),
    };
    (!start.is_empty() && !end.is_empty()).then(|| Span::new(start, end))
}
