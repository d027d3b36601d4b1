//! Common parts of the parsers of all levels: the token cursor, errors and recovery, names,
//! numbers, types.

use super::lex::{Kind, MAX_ERRORS, Token, lex};
use super::names::unescape;
use crate::diag::{Diagnostic, Place};
use crate::graph::{Attr, AttrKind, AttrType, F32};
use crate::ty::{DType, Dim, TensorType};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// A parsed thing, or the error that ends its statement.
pub(crate) type Parsed<T> = Result<T, Box<Diagnostic>>;

/// Where things were in the text, by the places that the verifier names.
pub(crate) type Places = HashMap<Place, Range<usize>>;

/// A cursor over the tokens of a text.
pub(crate) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    /// First token of the innermost statement.
    statement: usize,
    errors: Vec<Diagnostic>,
    pub places: Places,
}

/// A label of a value: `%11` or `%x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Label<'a> {
    /// By number.
    Number(u32),
    /// By name.
    Name(Cow<'a, str>),
}

/// An error at a range of the text.
pub(super) fn fault(code: &'static str, range: Range<usize>, message: impl Into<String>) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(code, Place::Text(range), message))
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Parser<'a> {
        let mut errors = vec![];
        let tokens = lex(text, &mut errors);
        Parser { text, tokens, at: 0, statement: 0, errors, places: Places::new() }
    }

    /// `value` if nothing went wrong, else all errors in the order of the text.
    pub fn finish<T>(mut self, value: Parsed<T>) -> Result<(T, Places), Vec<Diagnostic>> {
        let value = match value {
            Ok(value) => Some(value),
            Err(e) => {
                self.report(*e);
                None
            }
        };
        match value {
            Some(value) if self.errors.is_empty() => Ok((value, self.places)),
            _ => {
                self.errors.sort_by_key(|d| match &d.place {
                    Place::Text(range) => range.start,
                    _ => 0,
                });
                Err(self.errors)
            }
        }
    }

    /// True once something was reported: later findings may only be a consequence.
    pub fn failed(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Records an error and goes on; after too many of them, goes to the end of the text.
    pub fn report(&mut self, e: Diagnostic) {
        // One unclosed brace leaves all outer ones unclosed too.
        let again = e.code == "unclosed" && self.errors.iter().any(|other| other.code == "unclosed");
        if self.errors.len() < MAX_ERRORS && !again {
            self.errors.push(e);
        }
        if self.errors.len() >= MAX_ERRORS {
            self.at = self.tokens.len() - 1;
        }
    }

    // Tokens.

    pub fn peek(&self) -> Token {
        self.tokens[self.at]
    }

    /// The token after the next one.
    pub fn peek_second(&self) -> Token {
        self.tokens[(self.at + 1).min(self.tokens.len() - 1)]
    }

    pub fn next(&mut self) -> Token {
        let t = self.tokens[self.at];
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        t
    }

    pub fn str_of(&self, t: Token) -> &'a str {
        &self.text[t.range()]
    }

    pub fn at_end(&self) -> bool {
        self.peek().kind == Kind::End
    }

    /// Number of the next token, for [`Parser::since`].
    pub fn mark(&self) -> usize {
        self.at
    }

    /// Bytes from the token at `mark` to the last one read.
    pub fn since(&self, mark: usize) -> Range<usize> {
        let last = self.at.saturating_sub(1).max(mark).min(self.tokens.len() - 1);
        self.tokens[mark].range().start..self.tokens[last].range().end
    }

    /// `expected …, found …` at the next token.
    pub fn unexpected(&self, wanted: impl std::fmt::Display) -> Box<Diagnostic> {
        let t = self.peek();
        // Inside a statement, something missing at the end of a line is missing there, not before
        // the next line's first word.
        if t.line_start && self.at > self.statement {
            let before = self.tokens[self.at - 1];
            if !matches!(before.kind, Kind::Punct(b',' | b'(' | b'{' | b'[' | b'}')) {
                let end = before.range().end;
                return fault("syntax", end..end, format!("expected {wanted}, found the end of the line"));
            }
        }
        let found = match t.kind {
            Kind::End => "the end of the text".into(),
            Kind::Str => "a string".into(),
            _ => format!("`{}`", shorten(self.str_of(t))),
        };
        fault("syntax", t.range(), format!("expected {wanted}, found {found}"))
    }

    pub fn eat(&mut self, punct: u8) -> bool {
        let found = self.peek().kind == Kind::Punct(punct);
        if found {
            self.next();
        }
        found
    }

    pub fn expect(&mut self, punct: u8) -> Parsed<Token> {
        if self.peek().kind == Kind::Punct(punct) {
            Ok(self.next())
        } else {
            Err(self.unexpected(format_args!("`{}`", punct as char)))
        }
    }

    pub fn expect_kind(&mut self, kind: Kind, wanted: &str) -> Parsed<Token> {
        if self.peek().kind == kind { Ok(self.next()) } else { Err(self.unexpected(wanted)) }
    }

    /// The next token's text if it is a word, else nothing.
    pub fn peek_word(&self) -> &'a str {
        let t = self.peek();
        if t.kind == Kind::Word { self.str_of(t) } else { "" }
    }

    pub fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.next();
        }
        found
    }

    pub fn expect_word(&mut self, word: &str) -> Parsed<Token> {
        if self.peek_word() == word { Ok(self.next()) } else { Err(self.unexpected(format_args!("`{word}`"))) }
    }

    /// One of some words; the error names them and the nearest one.
    pub fn one_of(&self, what: &str, words: &[&'static str]) -> Box<Diagnostic> {
        let list: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
        let error = *self.unexpected(format_args!("{what}: {}", list.join(", ")));
        Box::new(suggest(error, self.peek_word(), words.iter().copied()))
    }

    // Structure.

    /// `{ statement… }`. A statement that fails is reported and skipped up to the next line that
    /// starts one, as `starts` says.
    pub fn statements(
        &mut self,
        starts: fn(Kind, &str) -> bool,
        mut each: impl FnMut(&mut Self) -> Parsed<()>,
    ) -> Parsed<()> {
        let open = self.expect(b'{')?;
        loop {
            if self.eat(b'}') {
                return Ok(());
            }
            if self.at_end() {
                return Err(fault("unclosed", open.range(), "this `{` is not closed"));
            }
            self.statement(starts, &mut each);
        }
    }

    /// One statement with recovery.
    pub fn statement(&mut self, starts: fn(Kind, &str) -> bool, each: &mut impl FnMut(&mut Self) -> Parsed<()>) {
        let from = self.at;
        self.statement = from;
        if let Err(e) = each(self) {
            // Back to the statement's start, to count its braces; but never forward again from the
            // end.
            let stopped = self.at_end();
            self.report(*e);
            if self.errors.len() < MAX_ERRORS && !stopped {
                self.at = from;
                self.skip_statement(starts);
            }
        }
    }

    /// Skips at least one token.
    fn skip_statement(&mut self, starts: fn(Kind, &str) -> bool) {
        let mut depth = 0usize;
        let mut first = true;
        loop {
            let t = self.peek();
            match t.kind {
                Kind::End => return,
                Kind::Punct(b'{') => depth += 1,
                Kind::Punct(b'}') if depth == 0 && !first => return,
                Kind::Punct(b'}') => depth = depth.saturating_sub(1),
                kind if depth == 0 && t.line_start && !first && starts(kind, self.str_of(t)) => return,
                _ => {}
            }
            first = false;
            self.next();
        }
    }

    /// `item, item, … close`, the opening bracket already read; a comma may follow the last.
    pub fn list<T>(&mut self, close: u8, mut each: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![];
        while !self.eat(close) {
            items.push(each(self)?);
            if !self.eat(b',') && self.peek().kind != Kind::Punct(close) {
                return Err(self.unexpected(format_args!("`,` or `{}`", close as char)));
            }
        }
        Ok(items)
    }

    // Names and numbers.

    /// The value of a string token from byte `skip` of it on (a sigil).
    fn string_at(&self, t: Token, skip: usize) -> Parsed<String> {
        let text = self.str_of(t);
        // An unclosed string has been reported; it ends where its token ends.
        let inside = text.get(skip + 1..).unwrap_or("");
        let inside = inside.strip_suffix('"').unwrap_or(inside);
        unescape(inside).map_err(|(at, len)| {
            let from = t.range().start + skip + 1 + at;
            let e = fault("bad-escape", from..from + len, "unknown escape");
            Box::new(e.with_help("the escapes are \\\" \\\\ \\n \\r \\t \\u{1f600}"))
        })
    }

    pub fn string(&mut self, what: &str) -> Parsed<String> {
        let t = self.expect_kind(Kind::Str, what)?;
        self.string_at(t, 0)
    }

    /// `%x`
    pub fn label(&mut self, what: &str) -> Parsed<(Label<'a>, Range<usize>)> {
        let t = self.expect_kind(Kind::Value, what)?;
        let text = &self.str_of(t)[1..];
        let label = match text.as_bytes().first() {
            Some(b'"') => Label::Name(self.string_at(t, 1)?.into()),
            Some(b'0'..=b'9') => match text.parse() {
                Ok(n) => Label::Number(n),
                Err(_) => return Err(fault("number-range", t.range(), "the number is too large for a value")),
            },
            _ => Label::Name(text.into()),
        };
        Ok((label, t.range()))
    }

    /// `%name`, not a number.
    pub fn value_name(&mut self, what: &str) -> Parsed<(Cow<'a, str>, Range<usize>)> {
        match self.label(what)? {
            (Label::Name(name), range) => Ok((name, range)),
            (Label::Number(n), range) => {
                let e = fault("syntax", range, format!("expected {what}, found `%{n}`"));
                Err(Box::new(e.with_help(format!("numbers are for results; a name of digits is written %\"{n}\""))))
            }
        }
    }

    /// `@name`
    pub fn symbol(&mut self, what: &str) -> Parsed<(Cow<'a, str>, Range<usize>)> {
        let t = self.expect_kind(Kind::Symbol, what)?;
        let text = &self.str_of(t)[1..];
        let name = if text.starts_with('"') { Cow::Owned(self.string_at(t, 1)?) } else { Cow::Borrowed(text) };
        Ok((name, t.range()))
    }

    pub fn size(&mut self, what: &str) -> Parsed<usize> {
        let t = self.expect_kind(Kind::Int, what)?;
        let too_large = |_| fault("number-range", t.range(), "the number is too large");
        self.str_of(t).parse().map_err(too_large)
    }

    /// `name=42`
    pub fn field_size(&mut self, name: &str) -> Parsed<usize> {
        self.expect_word(name)?;
        self.expect(b'=')?;
        self.size("a whole number")
    }

    /// `name=0.5`
    pub fn field_real(&mut self, name: &str) -> Parsed<F32> {
        self.expect_word(name)?;
        self.expect(b'=')?;
        Ok(F32::new(self.real()?))
    }

    /// `name=word`, one of those that an attribute of operations may be.
    pub fn field_word<T: AttrType>(&mut self, name: &str) -> Parsed<T> {
        self.expect_word(name)?;
        self.expect(b'=')?;
        let attr = self.attr_value(T::KIND)?;
        T::from_attr(&attr).ok_or_else(|| self.unexpected("a word"))
    }

    /// A number in order: `weight 0`, `weight 1`…
    pub fn in_order(&mut self, what: &str, next: &mut usize) -> Parsed<()> {
        let t = self.peek();
        let n = self.size("its number")?;
        let wanted = std::mem::replace(next, n.saturating_add(1));
        if n == wanted {
            Ok(())
        } else {
            Err(fault("numbering", t.range(), format!("{what} are numbered in order: expected {wanted}")))
        }
    }

    /// A real number: `0.5`, `-3`, `1e-5`, `#7fc00000`.
    pub fn real(&mut self) -> Parsed<f32> {
        let from = self.at;
        let negative = self.eat(b'-');
        let t = self.peek();
        let text = self.str_of(t);
        let value = match t.kind {
            Kind::Int | Kind::Float => text.parse::<f32>().ok().filter(|x| x.is_finite()),
            Kind::Bits if !negative && text.len() == 9 => u32::from_str_radix(&text[1..], 16).ok().map(f32::from_bits),
            Kind::Bits => {
                return Err(fault("syntax", t.range(), "`#` is followed by the 8 hexadecimal digits of an f32"));
            }
            _ => return Err(self.unexpected("a number")),
        };
        self.next();
        let value =
            value.ok_or_else(|| fault("number-range", self.since(from), "the number is too large for an f32"))?;
        Ok(if negative { -value } else { value })
    }

    // Types.

    pub fn dim(&mut self) -> Parsed<Dim> {
        match self.peek_word() {
            "T" => {
                self.next();
                Ok(Dim::Tokens)
            }
            "R" => {
                self.next();
                Ok(Dim::Rows)
            }
            _ => Ok(Dim::Static(self.size("a dimension (a number, `T` or `R`)")?)),
        }
    }

    /// `[d, d, …]`
    pub fn dims(&mut self) -> Parsed<Vec<Dim>> {
        self.expect(b'[')?;
        self.list(b']', Self::dim)
    }

    /// `[n, k]` with both known.
    pub fn matrix_dims(&mut self) -> Parsed<(usize, usize)> {
        self.expect(b'[')?;
        let n = self.size("the number of rows")?;
        self.expect(b',')?;
        let k = self.size("the number of columns")?;
        self.expect(b']')?;
        Ok((n, k))
    }

    /// `f32[T, 256]`
    pub fn tensor_type(&mut self) -> Parsed<TensorType> {
        let Some(dtype) = DType::parse(self.peek_word()) else {
            let names: Vec<&'static str> = DType::ALL.iter().map(|(_, n)| *n).collect();
            return Err(self.one_of("an element type", &names));
        };
        self.next();
        Ok(TensorType { dtype, shape: self.dims()? })
    }

    /// `{name=value, …}`, exactly the declared attributes in any order; nothing at all if none are
    /// declared.
    pub fn attrs(
        &mut self,
        op: &str,
        decls: &[(&'static str, AttrKind)],
        defaults: Vec<Option<Attr>>,
    ) -> Parsed<Vec<Attr>> {
        let mark = self.at.saturating_sub(1);
        let mut values = vec![None; decls.len()];
        if self.eat(b'{') {
            self.list(b'}', |p| p.attr(op, decls, &mut values))?;
        }
        values.iter_mut().zip(defaults).filter(|(v, _)| v.is_none()).for_each(|(v, usual)| *v = usual);
        let missing: Vec<String> =
            decls.iter().zip(&values).filter(|(_, v)| v.is_none()).map(|((n, _), _)| format!("`{n}`")).collect();
        if !missing.is_empty() {
            return Err(fault("attribute", self.since(mark), format!("`{op}` lacks {}", missing.join(", "))));
        }
        Ok(values.into_iter().flatten().collect())
    }

    fn attr(&mut self, op: &str, decls: &[(&'static str, AttrKind)], values: &mut [Option<Attr>]) -> Parsed<()> {
        let t = self.expect_kind(Kind::Word, "an attribute")?;
        let name = self.str_of(t);
        let Some(i) = decls.iter().position(|(n, _)| *n == name) else {
            let e = *fault("attribute", t.range(), format!("`{op}` has no attribute `{}`", shorten(name)));
            return Err(Box::new(suggest(e, name, decls.iter().map(|(n, _)| *n))));
        };
        self.expect(b'=')?;
        let value = self.attr_value(decls[i].1)?;
        match values[i].replace(value) {
            None => Ok(()),
            Some(_) => Err(fault("attribute", t.range(), format!("`{name}` is given twice"))),
        }
    }

    fn attr_value(&mut self, kind: AttrKind) -> Parsed<Attr> {
        Ok(match kind {
            AttrKind::Size => Attr::Size(self.size("a whole number")?),
            AttrKind::Real => Attr::Real(F32::new(self.real()?)),
            AttrKind::Flag => Attr::Flag(self.word_of(&["false", "true"])? == "true"),
            AttrKind::Word(words) => Attr::Word(self.word_of(words)?),
            AttrKind::Sizes => {
                self.expect(b'[')?;
                Attr::Sizes(self.list(b']', |p| p.size("a whole number"))?.into())
            }
        })
    }

    fn word_of(&mut self, words: &'static [&'static str]) -> Parsed<&'static str> {
        let found = words.iter().find(|w| **w == self.peek_word()).ok_or_else(|| self.one_of("a word", words))?;
        self.next();
        Ok(found)
    }
}

/// Names in scope, and the numbers they stand for.
pub(crate) struct Scope<'a> {
    map: HashMap<Label<'a>, usize>,
}

impl<'a> Scope<'a> {
    pub fn new() -> Scope<'a> {
        Scope { map: HashMap::new() }
    }

    /// Defines a label.
    ///
    /// # Errors
    /// It is defined already; the old definition stays.
    pub fn define(&mut self, label: Label<'a>, range: Range<usize>, value: usize) -> Parsed<()> {
        if self.map.contains_key(&label) {
            return Err(fault("duplicate-name", range, format!("`{}` is defined twice", show(&label))));
        }
        self.map.insert(label, value);
        Ok(())
    }

    /// The referent of a label.
    pub fn find(&self, label: &Label<'a>, range: Range<usize>) -> Parsed<usize> {
        self.map.get(label).copied().ok_or_else(|| {
            let e = *fault("unknown-name", range, format!("`{}` is not defined before its use", show(label)));
            let Label::Name(name) = label else { return Box::new(e) };
            let known = self.map.keys().filter_map(|l| match l {
                Label::Name(n) => Some(n.as_ref()),
                Label::Number(_) => None,
            });
            Box::new(suggest(e, name, known))
        })
    }
}

fn show(label: &Label) -> String {
    match label {
        Label::Number(n) => format!("%{n}"),
        Label::Name(n) => format!("%{}", shorten(&super::names::Name(n).to_string())),
    }
}

/// A long piece of foreign text, cut for a message.
pub(super) fn shorten(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}

/// Adds `did you mean` if a known name is near: at most a third of the letters differ.
pub(super) fn suggest<'n>(e: Diagnostic, name: &str, known: impl Iterator<Item = &'n str>) -> Diagnostic {
    if name.len() > 64 {
        return e;
    }
    let near = |k: &&str| k.len().abs_diff(name.len()) <= name.len() / 3;
    // The smallest distance, and among equals the first in alphabetical order: `known` may come
    // from a hash table.
    match known.filter(near).map(|k| (distance(name, k), k)).min() {
        Some((d, k)) if d <= name.len() / 3 => e.with_help(format!("did you mean `{k}`?")),
        _ => e,
    }
}

/// Edit distance (Levenshtein) in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let up = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != y)).min(up + 1).min(row[j] + 1);
            diagonal = up;
        }
    }
    row[b.len()]
}
