//! Reads an expression as Oniguruma does.

use super::{Anchor, Node, fold, names};
use regex_syntax::hir::ClassUnicode;

/// Groups within groups.
const DEEPEST: usize = 200;
/// Most that a repetition counts to.
const MOST_TIMES: u32 = 100_000;

/// Repetitions of repetitions.
const MOST_REPETITIONS: u32 = 20;

/// A parsed expression.
#[derive(Debug)]
pub(super) struct Parsed {
    pub node: Node,
    /// Numbers of groups that are referred to.
    pub referred: Vec<u32>,
}

/// One element of an escape.
pub(super) enum Item {
    Chars(Vec<char>),
    Set(ClassUnicode),
}

#[derive(Clone, Copy, Default)]
struct Options {
    ignore_case: bool,
    any_newline: bool,
    extended: bool,
}

/// A place in an expression.
pub(super) struct Parser<'p> {
    pattern: &'p str,
    at: usize,
    groups: u32,
    /// Whether groups have names: others then have no numbers.
    named: bool,
    names: Vec<(String, u32)>,
    referred: Vec<u32>,
    depth: usize,
}

/// Parses an expression.
///
/// # Errors
/// It is malformed, or has a part that cannot be translated.
pub(super) fn parse(pattern: &str) -> Result<Parsed, String> {
    let named = has_names(pattern);
    let mut parser = Parser { pattern, at: 0, groups: 0, named, names: vec![], referred: vec![], depth: 0 };
    let node = parser.alternatives(Options::default())?;
    if parser.peek().is_some() {
        return Err("closes a group that is not open".into());
    }
    if let Some(missing) = parser.referred.iter().find(|n| **n > parser.groups || **n == 0) {
        return Err(format!("refers to group {missing}, which it does not have"));
    }
    Ok(Parsed { node, referred: parser.referred })
}

/// Whether a group has a name; brackets and escapes are passed over.
fn has_names(pattern: &str) -> bool {
    let (mut escaped, mut classes) = (false, 0);
    for (at, c) in pattern.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => classes += 1,
            ']' if classes > 0 => classes -= 1,
            '(' if classes == 0 => {
                let rest = &pattern[at..];
                let look = rest.starts_with("(?<=") || rest.starts_with("(?<!");
                if (rest.starts_with("(?<") && !look) || rest.starts_with("(?'") {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

impl Parser<'_> {
    pub(super) fn rest(&self) -> &str {
        &self.pattern[self.at..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    pub(super) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    pub(super) fn eat(&mut self, c: char) -> bool {
        let is = self.peek() == Some(c);
        if is {
            self.at += c.len_utf8();
        }
        is
    }

    fn eat_text(&mut self, text: &str) -> bool {
        let is = self.rest().starts_with(text);
        if is {
            self.at += text.len();
        }
        is
    }

    /// Passes over comments, and over spaces in extended expressions.
    fn pass(&mut self, options: Options) -> Result<(), String> {
        loop {
            if self.eat_text("(?#") {
                loop {
                    match self.next().ok_or("has a comment without an end")? {
                        '\\' => drop(self.next()),
                        ')' => break,
                        _ => {}
                    }
                }
            } else if options.extended && matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r' | '\x0C')) {
                self.next();
            } else if options.extended && self.peek() == Some('#') {
                while !matches!(self.next(), None | Some('\n')) {}
            } else {
                return Ok(());
            }
        }
    }

    fn alternatives(&mut self, options: Options) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("nests groups too deep".into());
        }
        let mut all = vec![self.branch(options)?];
        while self.eat('|') {
            all.push(self.branch(options)?);
        }
        self.depth -= 1;
        Ok(if all.len() == 1 { all.remove(0) } else { Node::Alt(all) })
    }

    fn branch(&mut self, options: Options) -> Result<Node, String> {
        let mut nodes = Vec::new();
        // Characters in either case, which ligatures may stand for.
        let mut run: Vec<(char, String)> = Vec::new();
        loop {
            self.pass(options)?;
            if matches!(self.peek(), None | Some('|' | ')')) {
                break;
            }
            let atom = self.atom(options)?;
            self.pass(options)?;
            self.pass_once(options)?;
            let repeated = self.repetition_follows();
            if let (Node::Char(c, source), true, false) = (&atom, options.ignore_case, repeated) {
                run.push((*c, source.clone()));
                continue;
            }
            nodes.extend(fold::of_run(&std::mem::take(&mut run))?);
            let mut node = match atom {
                Node::Char(c, source) if options.ignore_case => concat(fold::of_run(&[(c, source)])?),
                node => node,
            };
            let mut repetitions = 0;
            while let Some(times) = self.repetition()? {
                repetitions += 1;
                if repetitions > MOST_REPETITIONS {
                    return Err("repeats repetitions too deep".into());
                }
                node = repeat(node, times)?;
                self.pass(options)?;
            }
            nodes.push(node);
        }
        nodes.extend(fold::of_run(&run)?);
        Ok(concat(nodes))
    }

    fn atom(&mut self, options: Options) -> Result<Node, String> {
        let start = self.at;
        let c = self.next().unwrap_or_default();
        Ok(match c {
            '(' => self.group(options)?,
            '[' => {
                let (mut set, negated) = self.class(0)?;
                if negated {
                    set.negate();
                }
                let source = &self.pattern[start..self.at];
                match options.ignore_case {
                    true => fold::of_class(&set, source, negated),
                    false => Node::Set(set, source.into()),
                }
            }
            '.' if options.any_newline => any(),
            '.' => Node::Set(all_but_newline(), ".".into()),
            '^' => Node::Anchor(Anchor::LineStart),
            '$' => Node::Anchor(Anchor::LineEnd),
            '*' | '+' | '?' => return Err(format!("repeats nothing with {c}")),
            '{' => {
                self.at = start;
                if self.interval()?.is_some() {
                    return Err("repeats nothing with {...}".into());
                }
                self.at = start + 1;
                Node::Char('{', "{".into())
            }
            '\\' => self.escape(start)?,
            c => Node::Char(c, c.into()),
        })
    }

    /// Behind a backslash outside of classes.
    fn escape(&mut self, start: usize) -> Result<Node, String> {
        let c = self.peek().ok_or("ends with a backslash")?;
        let anchor = match c {
            'A' => Some(Anchor::TextStart),
            'z' => Some(Anchor::TextEnd),
            'Z' => Some(Anchor::LastLineEnd),
            'b' => Some(Anchor::Word),
            'B' => Some(Anchor::NotWord),
            'G' => Some(Anchor::SearchStart),
            _ => None,
        };
        if let Some(anchor) = anchor {
            self.next();
            return Ok(Node::Anchor(anchor));
        }
        if matches!(c, 'w' | 'W') {
            self.next();
            let mut set = names::word()?;
            if c == 'W' {
                set.negate();
            }
            return Ok(Node::Set(set, format!(r"\{c}")));
        }
        if let Some(set) = names::shorthand(c) {
            self.next();
            return Ok(Node::Set(set?, format!(r"\{c}")));
        }
        if let Some(set) = self.property_set(true)? {
            return Ok(Node::Set(set, self.pattern[start..self.at].into()));
        }
        match c {
            'K' | 'X' | 'y' | 'Y' => Err(format!(r"has \{c}, which cannot be translated")),
            'g' if matches!(self.rest().as_bytes().get(1), Some(b'<' | b'\'')) => {
                Err(r"calls a group with \g, which cannot be translated".into())
            }
            'k' if matches!(self.rest().as_bytes().get(1), Some(b'<' | b'\'')) => self.named_reference(),
            'R' => {
                self.next();
                Ok(newline())
            }
            'N' => {
                self.next();
                Ok(Node::Set(all_but_newline(), String::new()))
            }
            'O' => {
                self.next();
                Ok(any())
            }
            '1'..='9' => match self.reference() {
                Some(n) => self.refer(n),
                None => self.chars(start),
            },
            _ => self.chars(start),
        }
    }

    /// An escape that stands for characters.
    fn chars(&mut self, start: usize) -> Result<Node, String> {
        let chars = self.char_escape()?;
        match chars.as_slice() {
            [one] => Ok(Node::Char(*one, self.pattern[start..self.at].into())),
            _ => Err("has several characters in one escape, which cannot be translated".into()),
        }
    }

    /// The number of a reference, if it is none of an octal character.
    fn reference(&mut self) -> Option<u32> {
        let digits: String = self.rest().chars().take_while(char::is_ascii_digit).collect();
        let number: u32 = digits.parse().ok().filter(|n| *n <= self.groups.max(9))?;
        self.skip(digits.len());
        Some(number)
    }

    fn refer(&mut self, number: u32) -> Result<Node, String> {
        if self.named {
            return Err("refers to a group by its number where groups have names".into());
        }
        self.referred.push(number);
        Ok(Node::Backref(number))
    }

    fn named_reference(&mut self) -> Result<Node, String> {
        let close = if self.rest()[1..].starts_with('<') { '>' } else { '\'' };
        let rest = &self.rest()[2..];
        let name = rest[..rest.find(close).ok_or(r"has a \k without an end")?].to_string();
        self.skip(2 + name.len() + 1);
        if let Ok(number) = name.parse::<i64>() {
            let number = if number < 0 { i64::from(self.groups) + 1 + number } else { number };
            return match u32::try_from(number) {
                Ok(number) if !name.starts_with('+') => self.refer(number),
                _ => Err(format!(r"has the reference \k<{name}>, which cannot be translated")),
            };
        }
        let numbers: Vec<u32> = self.names.iter().filter(|(n, _)| *n == name).map(|(_, number)| *number).collect();
        match numbers.as_slice() {
            [one] => {
                self.referred.push(*one);
                Ok(Node::Backref(*one))
            }
            _ => Err(format!(r"refers to the group {name:?}, of which there is not exactly one before")),
        }
    }

    /// Behind a `(`.
    fn group(&mut self, options: Options) -> Result<Node, String> {
        if self.rest().starts_with('*') {
            return Err("has a callout, which cannot be translated".into());
        }
        if !self.eat('?') {
            if self.named {
                return self.closed(options);
            }
            self.groups += 1;
            let number = self.groups;
            return Ok(Node::Group(number, Box::new(self.closed(options)?)));
        }
        for (text, behind, negative) in
            [("=", false, false), ("!", false, true), ("<=", true, false), ("<!", true, true)]
        {
            if self.eat_text(text) {
                let node = self.closed(options)?;
                check_look(&node, behind, negative)?;
                return Ok(Node::Look { behind, negative, node: Box::new(node) });
            }
        }
        match self.peek() {
            Some(':') => {
                self.next();
                self.closed(options)
            }
            Some('>') => {
                self.next();
                Ok(Node::Atomic(Box::new(self.closed(options)?)))
            }
            Some('<' | '\'') => self.named_group(options),
            Some(c @ ('~' | '{' | '(')) => {
                let what = match c {
                    '~' => "an absent operator",
                    '{' => "a callout",
                    _ => "a condition",
                };
                Err(format!("has {what} (?{c}...), which cannot be translated"))
            }
            _ => self.options(options),
        }
    }

    fn named_group(&mut self, options: Options) -> Result<Node, String> {
        let close = if self.eat('<') { '>' } else { '\'' };
        self.eat('\'');
        let end = self.rest().find(close).ok_or("has a name of a group without an end")?;
        let name = self.rest()[..end].to_string();
        let fine = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if !fine || name.starts_with(|c: char| c.is_numeric()) {
            return Err(format!("has the name {name:?} of a group"));
        }
        self.skip(end + 1);
        self.groups += 1;
        let number = self.groups;
        self.names.push((name, number));
        Ok(Node::Group(number, Box::new(self.closed(options)?)))
    }

    fn options(&mut self, old: Options) -> Result<Node, String> {
        let (mut new, mut on) = (old, true);
        loop {
            match self.next().ok_or("has a group without an end")? {
                '-' => on = false,
                'i' => new.ignore_case = on,
                'm' => new.any_newline = on,
                'x' => new.extended = on,
                // To the end of the group around it.
                ')' => {
                    let node = self.alternatives(new)?;
                    return Ok(cased(node, old, new));
                }
                ':' => {
                    let node = self.closed(new)?;
                    return Ok(cased(node, old, new));
                }
                c => return Err(format!("has the option (?{c}), which cannot be translated")),
            }
        }
    }

    /// Alternatives, and the `)` behind them.
    fn closed(&mut self, options: Options) -> Result<Node, String> {
        let node = self.alternatives(options)?;
        if self.eat(')') { Ok(node) } else { Err("has a group without an end".into()) }
    }

    /// Passes over `{1}`, which repeats nothing.
    fn pass_once(&mut self, options: Options) -> Result<(), String> {
        loop {
            let start = self.at;
            match self.repetition() {
                Ok(Some(Times { low: 1, high: Some(1), possessive: false, .. })) => self.pass(options)?,
                // Its error comes again where it counts.
                _ => {
                    self.at = start;
                    return Ok(());
                }
            }
        }
    }

    fn repetition_follows(&mut self) -> bool {
        let start = self.at;
        // Its error comes again where it counts.
        let found = self.repetition();
        self.at = start;
        !matches!(found, Ok(None))
    }

    fn repetition(&mut self) -> Result<Option<Times>, String> {
        let (low, high) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => return self.interval(),
            _ => return Ok(None),
        };
        self.next();
        if self.eat('?') {
            return Ok(Some(Times { low, high, greedy: false, possessive: false }));
        }
        Ok(Some(Times { low, high, greedy: true, possessive: self.eat('+') }))
    }

    /// `{n}`, `{n,m}`, `{n,}`, `{,m}`. A `+` behind it makes none possessive, and a `?` behind the
    /// first does not make it lazy.
    fn interval(&mut self) -> Result<Option<Times>, String> {
        let Some(inside) = self.rest()[1..].split_once('}').map(|(inside, _)| inside) else { return Ok(None) };
        let number = |text: &str| -> Result<Option<u32>, String> {
            match text.chars().all(|c| c.is_ascii_digit()) {
                false => Ok(None),
                true => text
                    .parse()
                    .ok()
                    .filter(|n| *n <= MOST_TIMES)
                    .map(Some)
                    .ok_or_else(|| format!("repeats {text} times, where {MOST_TIMES} are the most")),
            }
        };
        let is_number = |text: &str| text.chars().all(|c| c.is_ascii_digit());
        let (low, high, fixed) = match inside.split_once(',') {
            None if inside.is_empty() || !is_number(inside) => return Ok(None),
            None => (number(inside)?, number(inside)?, true),
            Some((low, high)) if !is_number(low) || !is_number(high) || (low.is_empty() && high.is_empty()) => {
                return Ok(None);
            }
            Some(("", high)) => (Some(0), number(high)?, false),
            Some((low, "")) => (number(low)?, None, false),
            Some((low, high)) => (number(low)?, number(high)?, false),
        };
        let low = low.unwrap_or_default();
        self.skip(inside.len() + 2);
        if let Some(less) = high.filter(|high| *high < low) {
            return Ok(Some(Times { low: less, high: Some(low), greedy: true, possessive: true }));
        }
        let greedy = fixed || !self.eat('?');
        Ok(Some(Times { low, high, greedy, possessive: false }))
    }

    /// Characters of an escape, behind its backslash.
    pub(super) fn char_escape(&mut self) -> Result<Vec<char>, String> {
        let rest = self.rest();
        for (prefix, radix, digits) in [("x{", 16, 8), ("o{", 8, 11)] {
            if let Some(inside) = rest.strip_prefix(prefix) {
                let end = inside.find('}').ok_or("has a character by its number without an end")?;
                let numbers: Vec<&str> = inside[..end].split_whitespace().collect();
                let char = |text: &&str| {
                    let number = u32::from_str_radix(text, radix).ok().filter(|_| text.len() <= digits);
                    number.and_then(char::from_u32).ok_or_else(|| format!("has no character of the number {text:?}"))
                };
                let chars: Vec<char> = numbers.iter().map(char).collect::<Result<_, _>>()?;
                if chars.is_empty() || inside[..end].contains('-') {
                    return Err(format!("has the escape \\{prefix}{}}}, which cannot be translated", &inside[..end]));
                }
                self.skip(prefix.len() + end + 1);
                return Ok(chars);
            }
        }
        let c = self.peek().ok_or("ends with a backslash")?;
        match c {
            'x' | '0'..='7' => self.byte_escape().map(|c| vec![c]),
            'u' => {
                let text = rest.get(1..5).filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()));
                let number = text.and_then(|text| u32::from_str_radix(text, 16).ok());
                let c = number.and_then(char::from_u32).ok_or(r"has a \u without four digits of a character")?;
                self.skip(5);
                Ok(vec![c])
            }
            'c' | 'C' | 'M' => Err(format!(r"has \{c}, which cannot be translated")),
            _ => {
                self.next();
                Ok(vec![control(c)])
            }
        }
    }

    /// A character of bytes: `\xHH` or octal, as many as its encoding has.
    fn byte_escape(&mut self) -> Result<char, String> {
        let mut bytes = vec![];
        loop {
            bytes.push(self.byte()?);
            match std::str::from_utf8(&bytes) {
                Ok(text) => return Ok(text.chars().next().unwrap_or_default()),
                Err(e) if e.error_len().is_some() => break,
                Err(_) => {}
            }
            let next = self.rest().as_bytes();
            if !(next.first() == Some(&b'\\') && matches!(next.get(1), Some(b'x' | b'0'..=b'7'))) {
                break;
            }
            self.next();
        }
        Err("has bytes that are no character".into())
    }

    fn byte(&mut self) -> Result<u8, String> {
        let (radix, most) = if self.eat('x') { (16, 2) } else { (8, 3) };
        let digits: String = self.rest().chars().take(most).take_while(|c| c.is_digit(radix)).collect();
        self.skip(digits.len());
        if digits.is_empty() {
            return Ok(0);
        }
        u8::from_str_radix(&digits, radix).map_err(|_| format!(r"has the byte \{digits}, which is too large"))
    }
}

fn control(c: char) -> char {
    match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'f' => '\x0C',
        'a' => '\x07',
        'b' => '\x08',
        'e' => '\x1B',
        'v' => '\x0B',
        other => other,
    }
}

/// How often something is repeated.
struct Times {
    low: u32,
    high: Option<u32>,
    greedy: bool,
    possessive: bool,
}

fn concat(mut nodes: Vec<Node>) -> Node {
    match nodes.len() {
        0 => Node::Empty,
        1 => nodes.remove(0),
        _ => Node::Concat(nodes),
    }
}

fn cased(node: Node, old: Options, new: Options) -> Node {
    match new.ignore_case && !old.ignore_case {
        true => Node::IgnoreCase(Box::new(node)),
        false => node,
    }
}

fn all_but_newline() -> ClassUnicode {
    let mut set = names::one('\n');
    set.negate();
    set
}

fn any() -> Node {
    let mut set = ClassUnicode::empty();
    set.negate();
    Node::Set(set, "(?s:.)".into())
}

/// `\R`.
fn newline() -> Node {
    let char = |c| Node::Set(names::one(c), String::new());
    let range = |a, b| regex_syntax::hir::ClassUnicodeRange::new(a, b);
    let one = ClassUnicode::new([range('\n', '\r'), range('\u{85}', '\u{85}'), range('\u{2028}', '\u{2029}')]);
    let both = Node::Concat(vec![char('\r'), char('\n')]);
    Node::Atomic(Box::new(Node::Alt(vec![both, Node::Set(one, String::new())])))
}

/// Refuses look-around that Oniguruma refuses, or that cannot be translated.
fn check_look(node: &Node, behind: bool, negative: bool) -> Result<(), String> {
    let looks = |n: &Node| matches!(n, Node::Look { .. } | Node::Backref(_) | Node::Anchor(Anchor::SearchStart));
    if behind && node.has(&looks) {
        return Err(r"looks around, refers back or has \G within a look-behind, which cannot be translated".into());
    }
    if behind && negative && node.has(&|n| matches!(n, Node::Group(..))) {
        return Err("has a group within a negative look-behind".into());
    }
    Ok(())
}

/// The kind of a repetition for [`reduced`]: `?`, `*`, `+`, `??`, `*?`, `+?`.
fn kind(low: u32, high: Option<u32>, greedy: bool) -> Option<usize> {
    let kind = match (low, high) {
        (0, Some(1)) => 0,
        (0, None) => 1,
        (1, None) => 2,
        _ => return None,
    };
    Some(if greedy { kind } else { kind + 3 })
}

fn repeat(node: Node, times: Times) -> Result<Node, String> {
    let bad = |n: &Node| matches!(n, Node::Look { .. } | Node::Anchor(_));
    let invalid = match &node {
        Node::Concat(nodes) => nodes.iter().all(bad),
        Node::Alt(nodes) => nodes.iter().any(bad),
        node => bad(node),
    };
    if invalid {
        return Err("repeats what has no length".into());
    }
    let node = match node {
        _ if (times.low, times.high) == (1, Some(1)) => node,
        Node::Repeat { node, low, high, greedy } => reduced((*node, low, high, greedy), &times),
        node => Node::Repeat { node: Box::new(node), low: times.low, high: times.high, greedy: times.greedy },
    };
    Ok(if times.possessive { Node::Atomic(Box::new(node)) } else { node })
}

/// A repetition of a repetition, as Oniguruma makes one of them.
fn reduced(inner: (Node, u32, Option<u32>, bool), outer: &Times) -> Node {
    let (node, low, high, greedy) = inner;
    let make = |node: Node, low, high, greedy| Node::Repeat { node: Box::new(node), low, high, greedy };
    let (inside, outside) = (kind(low, high, greedy), kind(outer.low, outer.high, outer.greedy));
    match (inside, outside) {
        (Some(a), Some(b)) => match REDUCED[a][b] {
            'd' => make(node, low, high, greedy),
            '*' => make(node, 0, None, true),
            '+' => make(node, 1, None, true),
            'l' => make(node, 0, None, false),
            'q' => make(node, 0, Some(1), false),
            'p' => make(make(node, 1, None, true), 0, Some(1), false),
            _ => make(make(node, low, high, greedy), outer.low, outer.high, outer.greedy),
        },
        // The same ends in the same order, and not exponentially many ways to them.
        (None, Some(1 | 2)) if low == 1 && greedy && matches!(node, Node::Set(..) | Node::Char(..)) => {
            make(node, outer.low, None, true)
        }
        (Some(1 | 2), None) if outer.greedy && outer.high.is_some_and(|n| n > 1) => {
            make(make(node, low, high, greedy), outer.low, Some(outer.low.max(1)), true)
        }
        _ => make(make(node, low, high, greedy), outer.low, outer.high, outer.greedy),
    }
}

/// The reduction of a repetition of a repetition: `d` the inner alone, `l` is `*?`, `q` is `??`,
/// `p` is `(?:+)??`, `=` both.
const REDUCED: [[char; 6]; 6] = [
    ['d', '*', '*', 'q', 'l', '='],
    ['d', 'd', 'd', 'p', 'p', 'd'],
    ['*', '*', 'd', '=', 'p', 'd'],
    ['d', 'l', 'l', 'd', 'l', 'l'],
    ['d', 'd', 'd', 'd', 'd', 'd'],
    ['=', '*', '+', 'l', 'l', 'd'],
];
