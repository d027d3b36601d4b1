//! Tokens of `.lir` text.

use super::names::bare_len;
use crate::diag::{Diagnostic, Place};
use std::ops::Range;

/// Errors after which reading stops.
pub(super) const MAX_ERRORS: usize = 50;

/// Longest text that is read: byte positions are stored in 32 bits, and a model's text is a few
/// megabytes.
pub(super) const MAX_TEXT: usize = 256 << 20;

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `matmul`, `f32`, `T`.
    Word,
    /// `42`.
    Int,
    /// `0.5`, `1e-5`.
    Float,
    /// `#7fc00000`: the bits of an f32.
    Bits,
    /// `"…"`.
    Str,
    /// `%x`, `%11`, `%"…"`.
    Value,
    /// `@layer`, `@"…"`.
    Symbol,
    /// One of `( ) { } [ ] < > , : = + - * /`.
    Punct(u8),
    /// `->`.
    Arrow,
    /// `..`.
    Range,
    /// End of the text.
    End,
}

/// A token: kind, place, and whether it is the first of its line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    start: u32,
    end: u32,
    pub line_start: bool,
}

impl Token {
    /// Bytes of the text.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Cuts `text` into tokens; the last is [`Kind::End`]. Characters that cannot be a token are
/// reported and skipped.
pub(super) fn lex(text: &str, errors: &mut Vec<Diagnostic>) -> Vec<Token> {
    let mut lexer = Lexer { text, at: 0, errors };
    let mut tokens = vec![];
    let mut line_start = true;
    if text.len() > MAX_TEXT {
        let message = format!("the text has {} bytes, more than the {MAX_TEXT} that are read", text.len());
        lexer.errors.push(Diagnostic::error("too-large", Place::Whole, message));
        lexer.at = text.len();
    }
    loop {
        line_start |= lexer.skip_blanks();
        let start = lexer.at;
        if let Some(kind) = lexer.token() {
            tokens.push(Token { kind, start: start as u32, end: lexer.at as u32, line_start });
            line_start = false;
            if kind == Kind::End {
                return tokens;
            }
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    errors: &'a mut Vec<Diagnostic>,
}

impl Lexer<'_> {
    fn rest(&self) -> &[u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn take_while(&mut self, f: impl Fn(u8) -> bool) {
        self.at += self.rest().iter().take_while(|b| f(**b)).count();
    }

    /// Skips blanks and comments; true if a line ended.
    fn skip_blanks(&mut self) -> bool {
        let mut newline = false;
        loop {
            match self.rest().first() {
                Some(b'\n') => {
                    newline = true;
                    self.at += 1;
                }
                Some(b' ' | b'\t' | b'\r') => self.at += 1,
                Some(b';') => self.take_while(|b| b != b'\n'),
                _ => return newline,
            }
        }
    }

    /// The next token; `None` if there was only something to report.
    fn token(&mut self) -> Option<Kind> {
        let rest = self.rest();
        let Some(&first) = rest.first() else { return Some(Kind::End) };
        match first {
            b'(' | b')' | b'{' | b'}' | b'[' | b']' | b'<' | b'>' | b',' | b':' | b'=' | b'+' | b'*' | b'/' => {
                self.at += 1;
                Some(Kind::Punct(first))
            }
            b'-' if rest.get(1) == Some(&b'>') => {
                self.at += 2;
                Some(Kind::Arrow)
            }
            b'-' => {
                self.at += 1;
                Some(Kind::Punct(b'-'))
            }
            b'.' if rest.get(1) == Some(&b'.') => {
                self.at += 2;
                Some(Kind::Range)
            }
            b'%' => self.name(Kind::Value),
            b'@' => self.name(Kind::Symbol),
            b'#' => {
                self.at += 1;
                self.take_while(|b| b.is_ascii_hexdigit());
                Some(Kind::Bits)
            }
            b'"' => {
                self.string();
                Some(Kind::Str)
            }
            b'0'..=b'9' => Some(self.number()),
            _ if bare_len(rest) > 0 => {
                self.at += bare_len(rest);
                Some(Kind::Word)
            }
            _ => {
                self.unexpected();
                None
            }
        }
    }

    fn error(&mut self, code: &'static str, range: Range<usize>, message: String) {
        // The parser stops after a few dozen errors; a text full of garbage need not be described
        // further.
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(Diagnostic::error(code, Place::Text(range), message));
        }
    }

    /// `%name`, `%12` or `%"name"`.
    fn name(&mut self, kind: Kind) -> Option<Kind> {
        let start = self.at;
        self.at += 1;
        match self.rest().first() {
            Some(b'"') => self.string(),
            Some(b'0'..=b'9') => self.take_while(|b| b.is_ascii_digit()),
            _ if bare_len(self.rest()) > 0 => self.at += bare_len(self.rest()),
            _ => {
                let sigil = if kind == Kind::Value { '%' } else { '@' };
                self.error("unexpected-character", start..self.at, format!("a name must follow `{sigil}`"));
                return None;
            }
        }
        Some(kind)
    }

    /// A string; an unclosed one ends with its line.
    fn string(&mut self) {
        let start = self.at;
        self.at += 1;
        loop {
            self.take_while(|b| !matches!(b, b'"' | b'\\' | b'\n'));
            match self.rest().first() {
                Some(b'"') => {
                    self.at += 1;
                    return;
                }
                Some(b'\\') => {
                    self.at += 1;
                    let escaped = self.text[self.at..].chars().next().filter(|c| *c != '\n');
                    self.at += escaped.map_or(0, char::len_utf8);
                }
                _ => {
                    self.error("unclosed-string", start..self.at, "the string does not end on its line".into());
                    return;
                }
            }
        }
    }

    fn number(&mut self) -> Kind {
        let mut kind = Kind::Int;
        self.take_while(|b| b.is_ascii_digit());
        // A second dot would make it a range: `0..`.
        if let [b'.', b'0'..=b'9', ..] = self.rest() {
            kind = Kind::Float;
            self.at += 1;
            self.take_while(|b| b.is_ascii_digit());
        }
        if let [b'e' | b'E', b'0'..=b'9', ..] | [b'e' | b'E', b'+' | b'-', b'0'..=b'9', ..] = self.rest() {
            kind = Kind::Float;
            self.at += 2;
            self.take_while(|b| b.is_ascii_digit());
        }
        kind
    }

    fn unexpected(&mut self) {
        let start = self.at;
        let first = self.text[start..].chars().next().unwrap_or(' ');
        // One report for a run of foreign characters.
        while let Some(c) = self.text[self.at..].chars().next() {
            if self.at > start && (c.is_ascii_graphic() || c.is_ascii_whitespace()) {
                break;
            }
            self.at += c.len_utf8();
        }
        self.error("unexpected-character", start..self.at, format!("unexpected character {first:?}"));
    }
}
