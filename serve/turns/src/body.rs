//! One call, read from a text that grows.

use crate::format::{Calls, Form, Mid, Nested, Piece, Span, ValueKind};
use crate::scan::{Brackets, Match, mark};
use crate::tools::Tools;
use crate::values;
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};

/// Longest name of a tool, an argument or a call, in bytes.
const NAME: usize = 512;

/// A call that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    /// JSON.
    pub(crate) arguments: String,
}

/// How far a call has been read.
pub(crate) enum Read {
    /// The text ends within it.
    More,
    /// It is none.
    Bad,
    /// It ends at this byte.
    Done(usize, Call),
}

/// A step of reading.
enum Step {
    Next,
    More,
    Bad,
}

/// A call under way.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Bytes that were read.
    pub(crate) at: usize,
    stage: Stage,
    call: Call,
    arguments: Vec<(String, String)>,
}

#[derive(Debug)]
enum Stage {
    /// Before the mark of the section.
    Section,
    /// Before the mark of the call.
    Open,
    /// Before a piece of its head.
    Head(usize),
    /// In a value between brackets, which begins here.
    Value(usize, Brackets),
    /// Before an argument.
    Argument,
    /// In the value of an argument, which begins here; so far was searched.
    Tagged { key: String, kind: ValueKind, begins: usize, searched: usize },
    /// Before the mark that closes it.
    Close,
}

impl Reading {
    /// A call after the byte `at`. `within`: its section has begun, and so has the call if `opened`.
    pub(crate) fn new(at: usize, within: bool, opened: bool) -> Reading {
        let stage = match (within, opened) {
            (_, true) => Stage::Head(0),
            (true, false) => Stage::Open,
            (false, false) => Stage::Section,
        };
        Reading { at, stage, call: Call::default(), arguments: vec![] }
    }

    /// Goes on in a text; `last`: there will be no more.
    pub(crate) fn read(&mut self, text: &str, last: bool, calls: &Calls, tools: &Tools) -> Read {
        loop {
            let rest = text.get(self.at..).unwrap_or_default();
            let step = match &self.stage {
                Stage::Section => match mark(rest, &calls.section.start) {
                    Match::Full(len) => self.go(len, Stage::Open),
                    Match::Partial => Step::More,
                    Match::No => self.go(0, Stage::Open),
                },
                Stage::Open => match mark(rest, &calls.call.start) {
                    Match::Full(len) => self.go(len, Stage::Head(0)),
                    Match::Partial => Step::More,
                    Match::No => Step::Bad,
                },
                Stage::Head(piece) => self.head(*piece, text, calls),
                Stage::Value(..) => self.value(text, &calls.form),
                Stage::Argument => self.argument(rest, last, calls),
                Stage::Tagged { .. } => self.tagged(text, &calls.form, tools),
                Stage::Close => match mark(rest, &calls.call.end) {
                    Match::Full(len) => return self.done(len),
                    Match::Partial if last => return self.done(0),
                    Match::Partial => Step::More,
                    Match::No => Step::Bad,
                },
            };
            match step {
                Step::Next => {}
                Step::More => return if last { Read::Bad } else { Read::More },
                Step::Bad => return Read::Bad,
            }
        }
    }

    fn go(&mut self, len: usize, stage: Stage) -> Step {
        self.at += len;
        self.stage = stage;
        Step::Next
    }

    fn done(&mut self, len: usize) -> Read {
        if !self.arguments.is_empty() || self.call.arguments.is_empty() {
            let member = |(name, value): &(String, String)| format!("{}: {value}", Value::from(name.as_str()));
            let members: Vec<String> = self.arguments.iter().map(member).collect();
            self.call.arguments = format!("{{{}}}", members.join(", "));
        }
        Read::Done(self.at + len, std::mem::take(&mut self.call))
    }

    /// Reads a piece of the head, or begins with what follows it.
    fn head(&mut self, piece: usize, text: &str, calls: &Calls) -> Step {
        let rest = text.get(self.at..).unwrap_or_default();
        let pieces: &[Piece] = match &calls.form {
            Form::Named { pieces } => pieces,
            Form::Tagged { head, .. } => head,
            Form::Python | Form::Notation { .. } => &[Piece::Name, Piece::Arguments],
            Form::Object { .. } | Form::Keyed { .. } => &[Piece::Arguments],
        };
        let Some(now) = pieces.get(piece) else { return self.go(0, Stage::Argument) };
        match now {
            Piece::Text(text) => match mark(rest, text) {
                Match::Full(len) => self.go(len, Stage::Head(piece + 1)),
                Match::Partial => Step::More,
                Match::No => Step::Bad,
            },
            Piece::Name | Piece::Id | Piece::Key | Piece::Index(_) => {
                self.word(now, piece, text, pieces.get(piece + 1))
            }
            Piece::Arguments => {
                let blanks = rest.len() - rest.trim_start().len();
                let (open, brackets) = match &calls.form {
                    Form::Python => ('(', Brackets::python()),
                    Form::Notation { quote } => ('{', Brackets::new(&[quote], false)),
                    _ => ('{', Brackets::json()),
                };
                match rest.trim_start().chars().next() {
                    None => Step::More,
                    Some(c) if c == open => {
                        let begins = self.at + blanks;
                        self.go(blanks, Stage::Value(begins, brackets))
                    }
                    Some(_) => Step::Bad,
                }
            }
        }
    }

    /// Reads a name or the like, up to the text that follows it.
    fn word(&mut self, piece: &Piece, i: usize, text: &str, next: Option<&Piece>) -> Step {
        let rest = text.get(self.at..).unwrap_or_default();
        let blanks = rest.len() - rest.trim_start().len();
        let word = rest.trim_start();
        let stop = match next {
            Some(Piece::Text(text)) => text.trim().chars().next(),
            _ => None,
        };
        let ends = |c: char| Some(c) == stop || c.is_whitespace() || "<>{}[]()\"'|,=".contains(c);
        let Some(end) = word.find(ends) else {
            return if word.len() > NAME { Step::Bad } else { Step::More };
        };
        let found = word.get(..end).unwrap_or_default();
        if end == 0 || end > NAME {
            return Step::Bad;
        }
        match piece {
            Piece::Name if self.call.name.is_empty() => self.call.name = found.to_owned(),
            Piece::Id => self.call.id = Some(found.to_owned()),
            Piece::Index(_) if found.bytes().any(|b| !b.is_ascii_digit()) => return Step::Bad,
            Piece::Index(_) if self.call.id.is_none() => {
                // An identifier may have the name and the place.
                let read = text.get(..self.at + blanks + end).unwrap_or_default();
                let id = read.rsplit(['<', '>', '|', '"', '\'', ' ', '\n']).next().unwrap_or_default();
                self.call.id = id.contains(&self.call.name).then(|| id.to_owned());
            }
            _ => {}
        }
        self.go(blanks + end, Stage::Head(i + 1))
    }

    /// Reads on in a value between brackets.
    fn value(&mut self, text: &str, form: &Form) -> Step {
        let Stage::Value(begins, brackets) = &mut self.stage else { return Step::Bad };
        let begins = *begins;
        let Some(len) = text.get(begins..).and_then(|value| brackets.end(value)) else {
            // An object begins with a name, or ends.
            let inner = text.get(begins + 1..).unwrap_or_default().trim_start();
            let json = !matches!(form, Form::Python | Form::Notation { .. });
            return if json && !inner.is_empty() && !inner.starts_with(['"', '}']) { Step::Bad } else { Step::More };
        };
        let raw = text.get(begins..begins + len).unwrap_or_default();
        let Some(step) = self.take(raw, form) else { return Step::Bad };
        self.at = begins + len;
        self.stage = Stage::Close;
        step
    }

    /// Takes the text of a value.
    fn take(&mut self, raw: &str, form: &Form) -> Option<Step> {
        match form {
            Form::Object { name, arguments, id, text, .. } => {
                let named: String = serde_json::from_str(member(raw, name)?).ok()?;
                let inner = member(raw, arguments)?;
                self.call.arguments = match serde_json::from_str::<String>(inner) {
                    Ok(inner) if *text || serde_json::from_str::<Value>(&inner).is_ok_and(|v| v.is_object()) => inner,
                    _ => inner.to_owned(),
                };
                serde_json::from_str::<Value>(&self.call.arguments).ok().filter(Value::is_object)?;
                if !id.is_empty() {
                    self.call.id = member(raw, id).and_then(|id| serde_json::from_str(id).ok());
                }
                self.call.name = named;
            }
            Form::Keyed { .. } => {
                let all = members(raw)?;
                let [(name, arguments)] = &all[..] else { return None };
                serde_json::from_str::<Value>(arguments).ok().filter(Value::is_object)?;
                (self.call.name, self.call.arguments) = (name.clone(), (*arguments).to_owned());
            }
            Form::Python => self.call.arguments = values::keywords(raw.strip_prefix('(')?.strip_suffix(')')?)?,
            Form::Notation { quote } => self.call.arguments = values::notation(raw, quote)?,
            Form::Named { .. } | Form::Tagged { .. } => {
                serde_json::from_str::<Value>(raw).ok()?;
                self.call.arguments = raw.to_owned();
            }
        }
        (!self.call.name.is_empty()).then_some(Step::Next)
    }

    /// Begins with an argument, or ends.
    fn argument(&mut self, rest: &str, last: bool, calls: &Calls) -> Step {
        let Form::Tagged { key, mids, .. } = &calls.form else { return Step::Bad };
        let (opens, closes) = (mark(rest, key), mark(rest, &calls.call.end));
        let len = match (opens, closes) {
            // (The mark that closes the call may begin as that of an argument does.)
            (Match::Full(len), Match::Full(end)) if end > len => return self.go(0, Stage::Close),
            (Match::Full(_), Match::Partial) if !last => return Step::More,
            (Match::Full(len), _) => len,
            (Match::Partial, _) if !last => return Step::More,
            (_, Match::Full(_)) => return self.go(0, Stage::Close),
            (_, Match::Partial) => return Step::More,
            _ => return Step::Bad,
        };
        let after = rest.get(len..).unwrap_or_default();
        let first = mids.first().and_then(|mid| mid.text.trim_start().chars().next());
        let ends = |c: char| Some(c) == first || c == '\n';
        let Some(end) = after.find(ends) else { return if after.len() > NAME { Step::Bad } else { Step::More } };
        let name = after.get(..end).unwrap_or_default().trim();
        let tail = after.get(end..).unwrap_or_default();
        let mut best: Option<(usize, &Mid)> = None;
        for mid in mids {
            match mark(tail, &mid.text) {
                Match::Full(len) if best.is_none_or(|(most, _)| len > most) => best = Some((len, mid)),
                Match::Partial => return Step::More,
                _ => {}
            }
        }
        let Some((mid_len, mid)) = best.filter(|_| !name.is_empty() && name.len() <= NAME) else { return Step::Bad };
        let value = tail.get(mid_len..).unwrap_or_default();
        // The line that a value begins on belongs to the mark.
        let breaks = mid.text.ends_with('\n');
        if breaks && value.is_empty() {
            return Step::More;
        }
        let skip = usize::from(breaks && value.starts_with('\n'));
        let begins = self.at + len + end + mid_len + skip;
        self.stage = Stage::Tagged { key: name.to_owned(), kind: mid.kind, begins, searched: begins };
        self.at = begins;
        Step::Next
    }

    /// Reads on in the value of an argument.
    fn tagged(&mut self, text: &str, form: &Form, tools: &Tools) -> Step {
        let Form::Tagged { key: opens, end, escape, nested, .. } = form else { return Step::Bad };
        let Stage::Tagged { key, kind, begins, searched } = &mut self.stage else { return Step::Bad };
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            _ => key.clone(),
        };
        let close: String = end.iter().map(piece).collect();
        let (mut escaped, mut wanted) = (None, close.trim().to_owned());
        if let Some(Span { start, end }) = escape {
            let value = text.get(*begins..).unwrap_or_default().trim_start();
            if value.len() < start.len() && start.starts_with(value) {
                return Step::More;
            }
            if value.starts_with(start.as_str()) {
                escaped = Some((start, end));
                wanted = format!("{end}{wanted}");
            }
        }
        let Some(found) = text.get(*searched..).and_then(|rest| rest.find(wanted.as_str())) else {
            let mut back = text.len().saturating_sub(wanted.len()).max(*begins);
            while !text.is_char_boundary(back) {
                back -= 1;
            }
            *searched = back.max(*begins);
            return Step::More;
        };
        let stop = *searched + found;
        let mut raw = text.get(*begins..stop).unwrap_or_default();
        if close.starts_with('\n') {
            raw = raw.strip_suffix('\n').unwrap_or(raw);
        }
        let is_text = if escaped.is_some() { Some(true) } else { tools.is_text(&self.call.name, key) };
        if let Some((start, _)) = escaped {
            raw = raw.trim_start().strip_prefix(start.as_str()).unwrap_or(raw);
        }
        let inner = nested.as_ref().and_then(|Nested { item }| {
            let open = opens.trim().strip_suffix('<').unwrap_or_default();
            values::elements(raw, open, item, 64)
        });
        let value = match (inner, *kind) {
            (Some(inner), _) if is_text != Some(true) => inner,
            (_, ValueKind::Any) => values::plain(raw, is_text),
            (_, ValueKind::Text) => values::plain(raw, Some(true)),
            (_, ValueKind::Json) => values::plain(raw, None),
        };
        let key = std::mem::take(key);
        self.arguments.push((key, value));
        self.at = stop + wanted.len();
        self.stage = Stage::Argument;
        Step::Next
    }
}

/// A member of an object, by the members on the way to it.
fn member<'a>(value: &'a str, path: &[String]) -> Option<&'a str> {
    let Some((first, rest)) = path.split_first() else { return Some(value) };
    let (_, inner) = members(value)?.into_iter().find(|(name, _)| name == first)?;
    member(inner, rest)
}

/// The members of an object, as they are written.
fn members(object: &str) -> Option<Vec<(String, &str)>> {
    let mut rest = object.trim_start().strip_prefix('{')?.trim_start();
    let mut all = vec![];
    while !rest.starts_with('}') {
        if !all.is_empty() {
            rest = rest.strip_prefix(',')?.trim_start();
        }
        let mut names = Deserializer::from_str(rest).into_iter::<String>();
        let name = names.next()?.ok()?;
        rest = rest.get(names.byte_offset()..)?.trim_start().strip_prefix(':')?.trim_start();
        let mut values = Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        let (value, after) = rest.split_at_checked(values.byte_offset())?;
        all.push((name, value));
        rest = after.trim_start();
    }
    rest.strip_prefix('}')?.trim().is_empty().then_some(all)
}
