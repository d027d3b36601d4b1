//! Marks of reasoning.

use super::pieces::stripped;
use crate::boundary::{back, common_prefix, last_mark, shared_end};
use crate::format::Span;
use crate::probe::{CONTENT, Probe, REASONING, Turn};
use serde_json::{Value, json};

/// Marks that turns without calls show.
pub(crate) struct Seen {
    pub(crate) reasoning: Option<Span>,
    /// The mark before an answer.
    pub(crate) content: String,
}

/// Marks of reasoning and of answers. `plain`: a turn without reasoning.
pub(crate) fn seen(probe: &Probe, plain: &Turn) -> Seen {
    let head = plain.body.split_once(CONTENT).map_or("", |(head, _)| head);
    let thought = thinking(probe);
    let between = thought.as_ref().map_or("", |(_, between)| between.as_str());
    // (A turn without reasoning may have an empty one.)
    let skeleton = !between.trim().is_empty() && head.trim().ends_with(between.trim());
    let content = match &thought {
        _ if skeleton || head.trim().is_empty() => "",
        Some(_) => shared_end(head, between).trim(),
        None => head.trim(),
    };
    let span = thought.as_ref().and_then(|(turn, between)| {
        let end = between.trim().strip_suffix(content).unwrap_or_default().trim();
        let before = turn.body.split_once(REASONING).map_or("", |(before, _)| before);
        let start = match before.trim() {
            "" => opening(probe, plain, turn)?,
            text => text.to_owned(),
        };
        (!end.is_empty()).then(|| Span::new(start, end))
    });
    let by_prompt = || prompted(probe, plain);
    let reasoning = span.or_else(by_prompt).or_else(|| empty(head));
    let content = stripped(content, reasoning.as_ref(), &Span::default()).trim().to_owned();
    Seen { reasoning, content }
}

/// A turn that shows reasoning before its answer, and the text between the two.
fn thinking(probe: &Probe) -> Option<(Turn, String)> {
    let tried = || {
        let on = probe.with(&switch(true));
        let named = [probe.answer(CONTENT, Some(REASONING)), on.answer(CONTENT, Some(REASONING))];
        let inner = [json!(REASONING), json!([{ "type": "text", "text": REASONING }])];
        named.into_iter().chain(inner.into_iter().map(|inner| probe.parts(&inner, CONTENT)))
    };
    tried().flatten().find_map(|turn| {
        let (before, rest) = turn.body.split_once(REASONING)?;
        let between = rest.split_once(CONTENT)?.0.to_owned();
        // (Some templates print parts as they print any list.)
        let dumped = before.contains("\"thinking\"") || before.contains("'thinking'");
        (!dumped).then_some((turn, between))
    })
}

/// Variables that turn reasoning on or off, as templates call them.
fn switch(on: bool) -> Value {
    json!({ "enable_thinking": on, "thinking": on })
}

/// The mark that a prompt ends with, after which reasoning follows at once. `plain`: a turn without reasoning.
pub(crate) fn opening(probe: &Probe, plain: &Turn, turn: &Turn) -> Option<String> {
    let base = probe.base().unwrap_or_default();
    let tail = turn.before.strip_prefix(base.as_str()).unwrap_or(&turn.before);
    let dropped = turn.dropped.trim();
    let mark = last_mark(tail).filter(|mark| dropped.is_empty() || !plain.before.trim_end().ends_with(mark));
    let Some(mark) = mark else { return (!dropped.is_empty()).then(|| dropped.to_owned()) };
    // A mark that is there twice, one near the other, needs the text before it.
    let start = tail.trim_end().len() - mark.len();
    let earlier = tail.get(..start)?.rfind(mark).map(|earlier| earlier + mark.len());
    let from = earlier.filter(|from| start - from <= mark.len() + 32).unwrap_or(start);
    Some(tail.get(from..)?.trim().to_owned())
}

/// Marks that prompts show: one that opens reasoning, and its counterpart that closes it.
fn prompted(probe: &Probe, plain: &Turn) -> Option<Span> {
    let variants = [json!({}), switch(true), switch(false)];
    let prompts: Vec<String> = variants.iter().filter_map(|v| probe.with(v).prompt().ok()).collect();
    let head = plain.body.split_once(CONTENT).map_or("", |(head, _)| head);
    prompts.iter().find_map(|prompt| {
        let start = last_mark(prompt).filter(|mark| is_tag(mark))?;
        let end = format!("</{}", start.get(1..)?);
        let same = common_prefix(prompt, &plain.before);
        let new = prompt.get(back(prompt, same, false)..).unwrap_or_default();
        // It is one if a prompt without reasoning closes it, if turns of the past lose it, or if answers lose it.
        let closed = prompts.iter().any(|p| p.trim_end().ends_with(&end)) || head.contains(&end);
        let lost = new.contains(start);
        let strips = || {
            let text = format!("{start}{REASONING}{end}{CONTENT}");
            probe.answer(&text, None).is_ok_and(|turn| turn.body.contains(CONTENT) && !turn.body.contains(REASONING))
        };
        let named = start.contains("think") || start.contains("reason");
        (closed || lost || named || strips()).then(|| Span::new(start, end))
    })
}

/// Marks of an empty reasoning that a turn of the past begins with: a mark, and its counterpart.
pub(crate) fn empty(head: &str) -> Option<Span> {
    let head = head.trim_start();
    let (start, rest) = head.split_at_checked(head.find('>')? + 1)?;
    let rest = rest.trim_start();
    let end = rest.get(..rest.find('>')? + 1)?;
    let tag = is_tag(start) && end.strip_prefix("</") == start.strip_prefix('<');
    let words = [("START", "END"), ("start", "end"), ("BEGIN", "END"), ("begin", "end")];
    let named = words.iter().any(|(a, b)| start.contains(a) && start.replace(a, b) == end);
    (tag || named).then(|| Span::new(start, end))
}

/// Whether a mark is a tag: a name between angles.
fn is_tag(mark: &str) -> bool {
    let name = mark.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or_default();
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_:-".contains(c))
}
