//! Turns as messages with headers: `<|channel|>analysis<|message|>…<|end|>` (OpenAI's harmony).
//!
//! A template prints the past of such a turn in another order than models write it, so differences of renders do not
//! tell the format. Its marks do.

use crate::event::{Event, add};
use crate::format::{Format, Span};
use crate::harmony::{CHANNEL, ENDS, MESSAGE, REASONING_START, START};
use crate::probe::CONTENT;
use serde_json::Value;

/// Longest header, in bytes.
const HEADER: usize = 512;

/// Whether a prompt and the turn after it are of this format.
pub(crate) fn is_channelled(prompt: &str, body: &str) -> bool {
    let head = body.split_once(CONTENT).map_or("", |(head, _)| head);
    prompt.contains(START) && head.contains(CHANNEL) && head.trim_end().ends_with(MESSAGE)
}

/// The format.
pub(crate) fn format() -> Format {
    let reasoning = Some(Span::new(REASONING_START, "<|end|>"));
    Format { channels: true, reasoning, ..Format::default() }
}

/// Whose a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Text,
    /// A call, and its text so far.
    Call(String, String),
}

/// A parser of such turns.
#[derive(Debug)]
pub(crate) struct Channels {
    callable: bool,
    rest: String,
    /// `None`: in a header.
    kind: Option<Kind>,
    calls: usize,
    events: Vec<Event>,
}

impl Channels {
    /// A parser. `callable`: there are tools.
    pub(crate) fn new(callable: bool) -> Channels {
        Channels { callable, rest: String::new(), kind: None, calls: 0, events: vec![] }
    }

    /// Whether a call was found.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Event> {
        self.rest.push_str(text);
        while !self.rest.is_empty() && self.step(false) {}
        std::mem::take(&mut self.events)
    }

    /// Ends the turn.
    pub(crate) fn finish(&mut self) -> Vec<Event> {
        while !self.rest.is_empty() && self.step(true) {}
        self.end();
        std::mem::take(&mut self.events)
    }

    fn step(&mut self, last: bool) -> bool {
        if self.kind.is_none() { self.header(last) } else { self.message(last) }
    }

    /// Reads a header.
    fn header(&mut self, last: bool) -> bool {
        let text = self.rest.trim_start();
        let begins = [START, CHANNEL, "assistant", "to="];
        let some = text.is_empty() || begins.iter().any(|b| text.starts_with(b) || b.starts_with(text));
        let Some(at) = self.rest.find(MESSAGE).filter(|at| some && *at <= HEADER) else {
            if some && !last && self.rest.len() <= HEADER + MESSAGE.len() {
                return false;
            }
            // A text without a header is an answer, and so is the mark of a header that is none.
            self.kind = Some(Kind::Text);
            let blanks = self.rest.len() - self.rest.trim_start().len();
            if self.rest.trim_start().starts_with(START) {
                self.give(blanks + START.len());
            }
            return true;
        };
        let header = self.rest.get(..at).unwrap_or_default();
        let words = |text: &str| text.split([' ', '<', '\n']).next().unwrap_or_default().to_owned();
        let channel = header.split_once(CHANNEL).map(|(_, rest)| words(rest)).unwrap_or_default();
        let to = header.split_once("to=").map(|(_, rest)| words(rest)).filter(|_| self.callable);
        self.kind = Some(match (channel.as_str(), to) {
            (_, Some(to)) => Kind::Call(to.strip_prefix("functions.").unwrap_or(&to).to_owned(), String::new()),
            ("analysis", None) => Kind::Reasoning,
            _ => Kind::Text,
        });
        self.rest.drain(..at + MESSAGE.len());
        true
    }

    /// Reads a message.
    fn message(&mut self, last: bool) -> bool {
        let ends = ENDS.iter().filter_map(|end| Some((self.rest.find(end)?, *end))).min();
        if let Some((at, end)) = ends {
            self.give(at);
            // The mark of a next message belongs to its header.
            self.rest.drain(..if end == START { 0 } else { end.len() });
            self.end();
            return true;
        }
        let open = self.rest.rfind('<').filter(|at| {
            let tail = self.rest.get(*at..).unwrap_or_default();
            !last && ENDS.iter().any(|end| end.starts_with(tail))
        });
        match open {
            Some(0) => false,
            Some(at) => {
                self.give(at);
                false
            }
            None => {
                self.give(self.rest.len());
                true
            }
        }
    }

    /// Gives the first bytes to their reader.
    fn give(&mut self, len: usize) {
        let rest = self.rest.split_off(len);
        let text = std::mem::replace(&mut self.rest, rest);
        match &mut self.kind {
            Some(Kind::Call(_, all)) => all.push_str(&text),
            Some(Kind::Reasoning) => add(&mut self.events, Event::Reasoning(text)),
            _ => add(&mut self.events, Event::Text(text)),
        }
    }

    /// Ends a message.
    fn end(&mut self) {
        let Some(Kind::Call(name, text)) = self.kind.take() else { return };
        let text = text.trim();
        if !serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object()) {
            add(&mut self.events, Event::Text(text.to_owned()));
            return;
        }
        let index = self.calls;
        self.calls += 1;
        let text = text.to_owned();
        self.events.extend([
            Event::Call { index, id: None, name },
            Event::Arguments { index, text },
            Event::End { index },
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_all_channels() {
        let text = concat!(
            "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>commentary to=functions.f ",
            "<|constrain|>json<|message|>{\"a\": 1}<|call|><|start|>assistant to=functions.g<|channel|>commentary json",
            "<|message|>{<|call|><|start|>assistant<|channel|>final<|message|>done<|return|>"
        );
        let want = vec![
            Event::Reasoning("so".into()),
            Event::Call { index: 0, id: None, name: "f".into() },
            Event::Arguments { index: 0, text: "{\"a\": 1}".into() },
            Event::End { index: 0 },
            // (No JSON is no call.)
            Event::Text("{done".into()),
        ];
        for cut in 0..=text.len() {
            let mut parser = Channels::new(true);
            let mut events = parser.push(&text[..cut]);
            events.extend(parser.push(&text[cut..]));
            events.extend(parser.finish());
            assert_eq!(crate::event::merged(events), want, "{cut}");
        }
        let wrong = ",<|start|>x<|start|>";
        let mut parser = Channels::new(true);
        let mut events = parser.push(wrong);
        events.extend(parser.finish());
        assert_eq!(crate::event::merged(events), [Event::Text(wrong.into())]);
        let mut plain = Channels::new(false);
        let mut events = plain.push("hello");
        events.extend(plain.finish());
        assert_eq!(events, [Event::Text("hello".into())]);
    }
}
