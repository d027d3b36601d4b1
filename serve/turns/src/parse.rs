//! One parser for all formats: text in any pieces, events out.

use crate::body::{Call, Read, Reading};
use crate::boundary::is_marked;
use crate::channels::Channels;
use crate::event::{Event, add};
use crate::format::{Calls, Form, Format};
use crate::scan::{Match, mark};
use crate::tools::Tools;
use std::sync::Arc;

/// Marks of calls that led to none before the rest of a turn is text: work is bounded.
const MOST_WRONG: usize = 32;

/// The meaning of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Reasoning,
    /// It belongs to no text.
    Nothing,
    Calls,
}

#[derive(Debug)]
enum State {
    Text,
    Reasoning,
    /// Bytes of the mark that began it, and the call.
    Call(usize, Reading),
    /// Behind a call.
    After,
}

/// Splits a turn into text, reasoning and calls. The events depend on the text alone, and not on its pieces.
#[derive(Debug)]
pub struct Parser {
    format: Arc<Format>,
    tools: Tools,
    /// Text that has no meaning yet.
    rest: String,
    state: State,
    /// Blanks whose next text decides what they belong to.
    held: String,
    /// Blanks that follow belong to nothing.
    skips: bool,
    /// A text of the answer has begun.
    begun: bool,
    calls: usize,
    wrong: usize,
    hidden: Vec<String>,
    /// The mark before an answer, where the prompt ends with the mark before a call.
    begins: String,
    /// Bytes of the prompt at the beginning of the text.
    prompted: usize,
    channels: Option<Channels>,
    events: Vec<Event>,
}

impl Parser {
    /// A parser of the turn after `prompt`. Without `tools` no text is a call.
    pub fn new(format: Arc<Format>, tools: Tools, prompt: &str) -> Parser {
        let channels = format.channels.then(|| Channels::new(!tools.is_empty()));
        let mut parser = Parser {
            format,
            tools,
            rest: String::new(),
            state: State::Text,
            held: String::new(),
            skips: false,
            begun: false,
            calls: 0,
            wrong: 0,
            hidden: vec![],
            begins: String::new(),
            prompted: 0,
            channels,
            events: vec![],
        };
        let prompt = prompt.trim_end();
        let format = parser.format.clone();
        if format.reasoning.as_ref().is_some_and(|r| !r.start.is_empty() && prompt.ends_with(r.start.trim())) {
            (parser.state, parser.skips) = (State::Reasoning, true);
        } else if let Some(calls) = &format.calls {
            // A prompt may end with the mark before a call or an answer.
            let start = calls.call.start.trim();
            if !parser.tools.is_empty() && !start.is_empty() && prompt.ends_with(start) {
                (parser.rest, parser.prompted) = (start.to_owned(), start.len());
                if !format.content.start.is_empty() {
                    parser.begins = format!("{start}{}", format.content.start);
                }
            }
        }
        parser
    }

    /// A text of a special token that is no mark of the format is not part of the answer.
    pub fn hide(&mut self, text: &str) {
        let text = text.trim();
        let known = self.format.marks().iter().any(|mark| mark.contains(text) || text.contains(mark.trim()));
        if !text.is_empty() && !known && !self.hidden.iter().any(|hidden| hidden == text) {
            self.hidden.push(text.to_owned());
        }
    }

    /// Takes the next piece.
    pub fn push(&mut self, text: &str) -> Vec<Event> {
        match &mut self.channels {
            Some(channels) => channels.push(text),
            None => {
                self.rest.push_str(text);
                while !self.rest.is_empty() && self.step(false) {}
                std::mem::take(&mut self.events)
            }
        }
    }

    /// Ends the turn.
    pub fn finish(&mut self) -> Vec<Event> {
        if let Some(channels) = &mut self.channels {
            return channels.finish();
        }
        while !self.rest.is_empty() && self.step(true) {}
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            let event = if matches!(self.state, State::Reasoning) { Event::Reasoning(held) } else { Event::Text(held) };
            add(&mut self.events, event);
        }
        std::mem::take(&mut self.events)
    }

    /// Whether a call was found.
    pub fn has_calls(&self) -> bool {
        self.calls > 0 || self.channels.as_ref().is_some_and(Channels::has_calls)
    }

    /// Does something with the text, if it can be done; `last`: there will be no more.
    fn step(&mut self, last: bool) -> bool {
        match &mut self.state {
            State::Text => self.text(last),
            State::Reasoning => self.reasoning(last),
            State::Call(..) => self.call(last),
            State::After => self.after(last),
        }
    }

    /// Text of the answer or of reasoning: the first `len` bytes.
    fn give(&mut self, len: usize) {
        let rest = self.rest.split_off(len);
        let text = std::mem::replace(&mut self.rest, rest);
        let prompted = self.prompted.min(len);
        self.prompted -= prompted;
        let text = text.get(prompted..).unwrap_or_default();
        let text = if self.skips { text.trim_start() } else { text };
        let body = text.trim_end();
        if body.is_empty() {
            self.held.push_str(text);
            return;
        }
        let shown = std::mem::take(&mut self.held) + body;
        self.held = text.get(body.len()..).unwrap_or_default().to_owned();
        (self.skips, self.begun) = (false, true);
        let event = if matches!(self.state, State::Reasoning) { Event::Reasoning(shown) } else { Event::Text(shown) };
        add(&mut self.events, event);
    }

    /// Drops bytes, and the blanks around them.
    fn drop_mark(&mut self, len: usize) {
        self.rest.drain(..len);
        self.held.clear();
        (self.skips, self.prompted) = (true, 0);
    }

    /// Marks that a text of the answer may have here.
    fn marks(&self) -> Vec<(&str, Meaning)> {
        let format = &self.format;
        let mut all: Vec<(&str, Meaning)> = vec![];
        if let Some(span) = &format.reasoning {
            all.push((&span.start, Meaning::Reasoning));
            if !self.begun {
                all.push((&span.end, Meaning::Nothing));
            }
        }
        if let Some(calls) = self.callable() {
            for start in [&calls.section.start, &calls.call.start] {
                let clear = is_marked(start) && start.trim().len() > 3;
                if clear || !self.begun || (start.contains(">>>")) {
                    all.push((start, Meaning::Calls));
                }
            }
            let bare = calls.section.start.trim().is_empty() && calls.call.start.trim().is_empty();
            if bare && !self.begun && matches!(calls.form, Form::Object { .. } | Form::Keyed { .. }) {
                all.push(("{", Meaning::Calls));
            }
        }
        if let Some(calls) = format.calls.as_ref().filter(|calls| self.calls > 0 && is_marked(&calls.section.end)) {
            all.push((&calls.section.end, Meaning::Nothing));
        }
        if !self.begun {
            all.extend([(format.content.start.as_str(), Meaning::Nothing), (&self.begins, Meaning::Nothing)]);
        }
        all.extend([(format.content.end.as_str(), Meaning::Nothing), (format.end.as_str(), Meaning::Nothing)]);
        all.extend(self.hidden.iter().map(|hidden| (hidden.as_str(), Meaning::Nothing)));
        all.retain(|(mark, _)| !mark.trim().is_empty());
        all
    }

    /// The form of calls, if a text may have some.
    fn callable(&self) -> Option<&Calls> {
        let may = !self.tools.is_empty() && self.wrong < MOST_WRONG;
        self.format.calls.as_ref().filter(|_| may)
    }

    /// The first place of the text with a mark, or with the beginning of one at its end.
    fn find(&self, marks: &[(&str, Meaning)], last: bool) -> Option<(usize, Option<(usize, Meaning)>)> {
        let starts: Vec<char> = marks.iter().filter_map(|(mark, _)| mark.trim_start().chars().next()).collect();
        for (at, c) in self.rest.char_indices() {
            if !starts.contains(&c) {
                continue;
            }
            let rest = self.rest.get(at..).unwrap_or_default();
            let mut best: Option<(usize, Meaning)> = None;
            let mut partial = false;
            for (text, meaning) in marks {
                match mark(rest, text) {
                    Match::Full(len) if best.is_none_or(|(most, _)| len > most) => best = Some((len, *meaning)),
                    Match::Partial => partial = true,
                    _ => {}
                }
            }
            if partial && !last {
                return Some((at, None));
            }
            if best.is_some() {
                return Some((at, best));
            }
        }
        None
    }

    fn text(&mut self, last: bool) -> bool {
        let Some((at, found)) = self.find(&self.marks(), last) else {
            self.give(self.rest.len());
            return true;
        };
        // (Only at the start: what follows other text is no such mark.)
        let blank = self.rest.get(..at).is_some_and(|text| text.trim().is_empty());
        if at > 0 && !(blank && found.is_none()) {
            self.give(at);
            return true;
        }
        let Some((len, meaning)) = found else { return false };
        match meaning {
            Meaning::Nothing => self.drop_mark(len),
            Meaning::Reasoning => {
                self.drop_mark(len);
                self.state = State::Reasoning;
            }
            Meaning::Calls => self.state = State::Call(len, Reading::new(0, false, false)),
        }
        true
    }

    fn reasoning(&mut self, last: bool) -> bool {
        let end = self.format.reasoning.as_ref().map(|span| span.end.clone()).unwrap_or_default();
        let mut marks = vec![(end.as_str(), Meaning::Nothing)];
        let hidden = self.hidden.clone();
        marks.extend(hidden.iter().map(|hidden| (hidden.as_str(), Meaning::Calls)));
        let Some((at, found)) = self.find(&marks, last) else {
            self.give(self.rest.len());
            return true;
        };
        if at > 0 {
            self.give(at);
            return true;
        }
        let Some((len, meaning)) = found else { return false };
        self.drop_mark(len);
        if meaning == Meaning::Nothing {
            (self.state, self.begun) = (State::Text, false);
        }
        true
    }

    fn call(&mut self, last: bool) -> bool {
        let format = self.format.clone();
        let (Some(calls), State::Call(len, reading)) = (&format.calls, &mut self.state) else { return false };
        let len = *len;
        let read = reading.read(&self.rest, last, calls, &self.tools);
        // A form without marks is a call of a known tool, or none.
        let clear = is_marked(&calls.call.start) || is_marked(&calls.section.start);
        match read {
            Read::More => false,
            Read::Done(end, call) if clear || self.tools.has(&call.name) => {
                self.rest.drain(..end);
                self.held.clear();
                self.prompted = 0;
                self.take(call);
                self.state = State::After;
                true
            }
            Read::Bad | Read::Done(..) => {
                self.wrong += 1;
                self.state = State::Text;
                let first = self.rest.chars().next().map_or(0, char::len_utf8);
                self.give(len.max(first).min(self.rest.len()));
                self.begun = true;
                true
            }
        }
    }

    fn take(&mut self, call: Call) {
        let index = self.calls;
        self.calls += 1;
        self.begun = true;
        let Call { name, id, arguments } = call;
        self.events.push(Event::Call { index, id, name });
        self.events.push(Event::Arguments { index, text: arguments });
        self.events.push(Event::End { index });
    }

    /// Behind a call: the end of its section, another call, or text.
    fn after(&mut self, last: bool) -> bool {
        let format = self.format.clone();
        let Some(calls) = &format.calls else { return false };
        let next = format!("{} {}", calls.separator, calls.call.start);
        let ends = if calls.section.end.trim().is_empty() { Match::No } else { mark(&self.rest, &calls.section.end) };
        let goes_on = if next.trim().is_empty() || calls.single { Match::No } else { mark(&self.rest, &next) };
        let bare = next.trim().is_empty() && !calls.single;
        match (ends, goes_on) {
            (Match::Full(len), _) => {
                self.drop_mark(len);
                self.state = State::Text;
            }
            (_, Match::Full(len)) => self.state = State::Call(len, Reading::new(len, true, true)),
            (Match::Partial, _) | (_, Match::Partial) if !last => return false,
            _ if self.rest.trim().is_empty() && !last => return false,
            _ if bare && self.rest.trim_start().starts_with('{') => {
                self.state = State::Call(0, Reading::new(0, true, true));
            }
            _ => {
                (self.state, self.skips) = (State::Text, true);
            }
        }
        true
    }
}
