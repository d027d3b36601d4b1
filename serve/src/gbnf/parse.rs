//! The reader of GBNF.

use super::rules::{Fault, Node, Rules};
use std::collections::HashMap;
use std::iter::Peekable;
use std::str::Chars;

/// Deepest groups.
const DEEPEST: usize = 200;
/// Most repetitions of repetitions.
const REPEATED: usize = 4;
/// Most repetitions; llama.cpp's.
const MOST: u32 = 2000;

/// A place in a text.
#[derive(Clone, Copy, Debug)]
struct Place {
    line: usize,
    column: usize,
}

impl Place {
    fn fault(self, message: impl Into<String>) -> Fault {
        Fault { line: self.line, column: self.column, message: message.into() }
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    place: Place,
    /// Rules by their names.
    known: HashMap<String, usize>,
    names: Vec<String>,
    /// `None`: the rule has been used, and not been read.
    nodes: Vec<Option<Node>>,
    /// Where each rule was named first.
    used: Vec<Place>,
    depth: usize,
}

/// The rules of a grammar.
///
/// # Errors
/// As [`crate::gbnf::lark`].
pub(super) fn rules(source: &str) -> Result<Rules, Fault> {
    let place = Place { line: 1, column: 1 };
    let rest = source.chars().peekable();
    let known = HashMap::new();
    let mut reader = Reader { rest, place, known, names: vec![], nodes: vec![], used: vec![], depth: 0 };
    reader.blanks(true);
    while reader.rest.peek().is_some() {
        reader.rule()?;
        reader.blanks(true);
    }
    let root = reader.known.get("root").copied().filter(|root| reader.nodes[*root].is_some());
    let root = root.ok_or_else(|| place.fault("the grammar has no rule `root`: texts begin with it"))?;
    let mut nodes = vec![];
    for (i, node) in reader.nodes.into_iter().enumerate() {
        let missing = || reader.used[i].fault(format!("there is no rule `{}`", reader.names[i]));
        nodes.push(node.ok_or_else(missing)?);
    }
    Ok(Rules { nodes, root })
}

/// How often the repetition of a node is repeated.
fn repetitions(mut node: &Node) -> usize {
    let mut count = 0;
    while let Node::Repeat(inner, ..) = node {
        (node, count) = (inner, count + 1);
    }
    count
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        self.place = match c {
            '\n' => Place { line: self.place.line + 1, column: 1 },
            _ => Place { column: self.place.column + 1, ..self.place },
        };
        Some(c)
    }

    fn take(&mut self, c: char) -> bool {
        let there = self.rest.peek() == Some(&c);
        if there {
            self.next();
        }
        there
    }

    /// Passes blanks and comments; `lines`: and ends of lines.
    fn blanks(&mut self, lines: bool) {
        while let Some(c) = self.rest.peek().copied() {
            match c {
                ' ' | '\t' => drop(self.next()),
                '\n' | '\r' if lines => drop(self.next()),
                '#' => {
                    while self.rest.peek().is_some_and(|c| *c != '\n') {
                        self.next();
                    }
                }
                _ => return,
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.rest.peek().copied().filter(|c| is_word(*c)) {
            word.push(c);
            self.next();
        }
        word
    }

    /// The place of a rule among all.
    fn place_of(&mut self, name: String, used: Place) -> usize {
        if let Some(known) = self.known.get(&name) {
            return *known;
        }
        self.known.insert(name.clone(), self.nodes.len());
        self.names.push(name);
        self.nodes.push(None);
        self.used.push(used);
        self.nodes.len() - 1
    }

    fn shown(&mut self) -> String {
        self.rest.peek().map_or_else(|| "the end".to_owned(), |c| format!("`{c}`"))
    }

    fn rule(&mut self) -> Result<(), Fault> {
        let begin = self.place;
        let name = self.word();
        if name.is_empty() {
            let shown = self.shown();
            return Err(begin.fault(format!("{shown} begins no rule: write NAME ::= ...")));
        }
        self.blanks(false);
        let at = self.place;
        if !(self.take(':') && self.take(':') && self.take('=')) {
            return Err(at.fault(format!("`::=` does not follow the name `{name}`")));
        }
        let place = self.place_of(name.clone(), begin);
        if self.nodes[place].is_some() {
            return Err(begin.fault(format!("the rule `{name}` is there twice")));
        }
        self.blanks(true);
        self.nodes[place] = Some(self.either(false)?);
        match self.rest.peek() {
            None | Some('\n' | '\r') => Ok(()),
            Some(':') => Err(self.place.fault("a rule begins here: begin it on a line of its own")),
            Some(_) => {
                let shown = self.shown();
                Err(self.place.fault(format!("{shown} is no part of a rule")))
            }
        }
    }

    /// Alternatives; `grouped`: between brackets, where lines may end.
    fn either(&mut self, grouped: bool) -> Result<Node, Fault> {
        let mut all = vec![self.sequence(grouped)?];
        while self.take('|') {
            self.blanks(true);
            all.push(self.sequence(grouped)?);
        }
        Ok(if all.len() == 1 { all.swap_remove(0) } else { Node::Either(all) })
    }

    fn sequence(&mut self, grouped: bool) -> Result<Node, Fault> {
        let mut all: Vec<Node> = vec![];
        while let Some(c) = self.rest.peek().copied() {
            let at = self.place;
            match c {
                '"' => all.push(Node::Text(self.text()?)),
                '[' => all.push(self.class()?),
                '(' => all.push(self.group()?),
                '.' => {
                    self.next();
                    all.push(Node::Any);
                }
                '*' | '+' | '?' | '{' => {
                    let last = all.pop().ok_or_else(|| at.fault(format!("`{c}` has nothing to repeat before it")))?;
                    if repetitions(&last) == REPEATED {
                        return Err(at.fault(format!("repetitions are more than {REPEATED} deep")));
                    }
                    let (least, most) = self.times()?;
                    all.push(Node::Repeat(Box::new(last), least, most));
                }
                '<' | '!' => return Err(at.fault("tokens are not supported in grammars: write their characters")),
                c if is_word(c) => {
                    let name = self.word();
                    all.push(Node::Rule(self.place_of(name, at)));
                }
                _ => break,
            }
            self.blanks(grouped);
        }
        Ok(if all.len() == 1 { all.swap_remove(0) } else { Node::All(all) })
    }

    fn group(&mut self) -> Result<Node, Fault> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.place.fault(format!("groups are more than {DEEPEST} deep")));
        }
        self.next();
        self.blanks(true);
        let node = self.either(true)?;
        if !self.take(')') {
            let shown = self.shown();
            return Err(self.place.fault(format!("{shown} comes where `)` ends a group")));
        }
        self.depth -= 1;
        Ok(node)
    }

    /// How often something is repeated.
    fn times(&mut self) -> Result<(u32, Option<u32>), Fault> {
        let at = self.place;
        match self.next() {
            Some('*') => return Ok((0, None)),
            Some('+') => return Ok((1, None)),
            Some('?') => return Ok((0, Some(1))),
            _ => {}
        }
        self.blanks(false);
        let least = self.count()?;
        self.blanks(false);
        let most = if self.take(',') {
            self.blanks(false);
            let open = self.rest.peek() == Some(&'}');
            if open { None } else { Some(self.count()?) }
        } else {
            Some(least)
        };
        self.blanks(false);
        if !self.take('}') {
            let shown = self.shown();
            return Err(self.place.fault(format!("{shown} comes where `}}` ends a repetition")));
        }
        match most {
            Some(most) if most < least => Err(at.fault(format!("a repetition of {least} to {most} times"))),
            _ => Ok((least, most)),
        }
    }

    fn count(&mut self) -> Result<u32, Fault> {
        let at = self.place;
        let mut digits = String::new();
        while let Some(c) = self.rest.peek().copied().filter(char::is_ascii_digit) {
            digits.push(c);
            self.next();
        }
        let count = digits.parse().ok().filter(|count| *count <= MOST);
        count.ok_or_else(|| at.fault(format!("a repetition needs a count of up to {MOST}")))
    }

    fn text(&mut self) -> Result<String, Fault> {
        let begin = self.place;
        self.next();
        let mut text = String::new();
        loop {
            match self.rest.peek() {
                None | Some('\n') => return Err(begin.fault("the text does not end: write `\"` after it")),
                Some('"') => {
                    self.next();
                    return Ok(text);
                }
                Some(_) => text.push(self.character(begin)?),
            }
        }
    }

    fn class(&mut self) -> Result<Node, Fault> {
        let begin = self.place;
        self.next();
        let (negated, mut ranges) = (self.take('^'), vec![]);
        while !self.take(']') {
            let at = self.place;
            let first = self.character(begin)?;
            let mut last = first;
            if self.rest.peek() == Some(&'-') {
                self.next();
                if self.rest.peek() == Some(&']') {
                    ranges.extend([(first, first), ('-', '-')]);
                    continue;
                }
                last = self.character(begin)?;
            }
            if last < first {
                return Err(at.fault(format!("the range from `{first}` to `{last}` ends before it begins")));
            }
            ranges.push((first, last));
        }
        if ranges.is_empty() {
            return Err(begin.fault("the class has no characters"));
        }
        Ok(Node::Class { negated, ranges })
    }

    /// A character of a text or a class that began at `begin`.
    fn character(&mut self, begin: Place) -> Result<char, Fault> {
        let at = self.place;
        let ends = || begin.fault("the text or class does not end");
        match self.next().ok_or_else(ends)? {
            '\n' => Err(ends()),
            '\\' => {
                let kind = self.next().ok_or_else(ends)?;
                let found = match kind {
                    'n' => Some('\n'),
                    't' => Some('\t'),
                    'r' => Some('\r'),
                    '\\' | '"' | '[' | ']' | '^' | '-' => Some(kind),
                    'x' => self.hexadecimal(2),
                    'u' => self.hexadecimal(4),
                    'U' => self.hexadecimal(8),
                    _ => None,
                };
                found.ok_or_else(|| at.fault(format!("`\\{kind}` begins no escape of a character")))
            }
            c => Ok(c),
        }
    }

    fn hexadecimal(&mut self, digits: usize) -> Option<char> {
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.rest.peek()?.to_digit(16)?;
            self.next();
            code = code * 16 + digit;
        }
        char::from_u32(code)
    }
}
