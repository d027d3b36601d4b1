//! Source to tokens, with Jinja's rules for white space around tags.

use super::{Error, Kind, Result};

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Text(String),
    VarBegin,
    VarEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    Str(String),
    Int(i128),
    Float(f64),
    Op(&'static str),
    End,
}

/// Longer operators first.
const OPERATORS: [&str; 27] = [
    "**", "//", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".",
    ":", "|", ",", ";", "!",
];

/// Tokens with their lines.
pub fn lex(source: &str) -> Result<Vec<(Token, u32)>> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { rest: source, line: 1, line_start: true, out: Vec::new() };
    lexer.root()?;
    let line = lexer.line;
    lexer.out.push((Token::End, line));
    Ok(lexer.out)
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    /// Whether `rest` begins a line.
    line_start: bool,
    out: Vec<(Token, u32)>,
}

impl<'a> Lexer<'a> {
    fn error<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(Error::new(Kind::Syntax, what).at(self.line))
    }

    /// Takes `n` bytes.
    fn take(&mut self, n: usize) -> &'a str {
        let (head, tail) = self.rest.split_at(n);
        self.line += head.bytes().filter(|b| *b == b'\n').count() as u32;
        if let Some(last) = head.bytes().last() {
            self.line_start = last == b'\n';
        }
        self.rest = tail;
        head
    }

    fn push(&mut self, token: Token) {
        self.out.push((token, self.line));
    }

    fn text(&mut self, text: &str, line: u32) {
        if !text.is_empty() {
            self.out.push((Token::Text(text.into()), line));
        }
    }

    fn root(&mut self) -> Result<()> {
        while !self.rest.is_empty() {
            let tag = self
                .rest
                .match_indices('{')
                .map(|(at, _)| at)
                .find(|&at| matches!(self.rest.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')));
            let (line, starts) = (self.line, self.line_start);
            let Some(at) = tag else {
                let text = self.take(self.rest.len());
                self.text(text, line);
                break;
            };
            let text = self.take(at);
            let kind = self.rest.as_bytes()[1];
            self.take(2);
            let sign = self.rest.bytes().next().filter(|b| matches!(b, b'-' | b'+'));
            self.take(usize::from(sign.is_some()));
            let text = match sign {
                Some(b'-') => text.trim_end(),
                None if kind != b'{' => without_indent(text, starts),
                _ => text,
            };
            self.text(text, line);
            match kind {
                b'{' => self.tag(Token::VarBegin)?,
                b'#' => self.comment()?,
                _ => match self.raw_begin() {
                    Some(end) => self.raw(end)?,
                    None => self.tag(Token::BlockBegin)?,
                },
            }
        }
        Ok(())
    }

    fn comment(&mut self) -> Result<()> {
        let Some(end) = self.rest.find("#}") else { return self.error("a comment has no end") };
        let sign = self.rest[..end].bytes().last();
        self.take(end + 2);
        self.after_block(sign);
        Ok(())
    }

    /// White space after the end of a block or comment whose last character before the bracket is
    /// `sign`.
    fn after_block(&mut self, sign: Option<u8>) {
        let n = match sign {
            Some(b'-') => self.rest.len() - self.rest.trim_start().len(),
            Some(b'+') => 0,
            _ => usize::from(self.rest.starts_with('\n')),
        };
        self.take(n);
    }

    /// After `{%`: the length of `raw %}` and the sign before its bracket.
    fn raw_begin(&self) -> Option<(usize, Option<u8>)> {
        let after = self.rest.trim_start().strip_prefix("raw")?.trim_start();
        let sign = after.bytes().next().filter(|b| matches!(b, b'-' | b'+'));
        let after = after[usize::from(sign.is_some())..].strip_prefix("%}")?;
        Some((self.rest.len() - after.len(), sign))
    }

    fn raw(&mut self, (len, sign): (usize, Option<u8>)) -> Result<()> {
        self.take(len);
        self.after_block(sign);
        let (line, starts) = (self.line, self.line_start);
        let mut from = 0;
        while let Some(at) = self.rest[from..].find("{%").map(|at| from + at) {
            let tag = &self.rest[at + 2..];
            let sign = tag.bytes().next().filter(|b| matches!(b, b'-' | b'+'));
            let inner = tag[usize::from(sign.is_some())..].trim_start().strip_prefix("endraw").map(str::trim_start);
            let end = inner.and_then(|x| {
                let last = x.bytes().next().filter(|b| matches!(b, b'-' | b'+'));
                Some((x[usize::from(last.is_some())..].strip_prefix("%}")?.len(), last))
            });
            let Some((left, last)) = end else {
                from = at + 2;
                continue;
            };
            let text = match sign {
                Some(b'-') => self.rest[..at].trim_end(),
                None => without_indent(&self.rest[..at], starts),
                _ => &self.rest[..at],
            };
            self.text(text, line);
            self.take(self.rest.len() - left);
            self.after_block(last);
            return Ok(());
        }
        self.error("`raw` has no `endraw`")
    }

    /// Tokens up to the end of a tag.
    fn tag(&mut self, begin: Token) -> Result<()> {
        let block = begin == Token::BlockBegin;
        let close = if block { "%}" } else { "}}" };
        self.push(begin);
        let mut open = Vec::new();
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.take(blank);
            if self.rest.is_empty() {
                return self.error(format!("a tag has no `{close}`"));
            }
            if open.is_empty() {
                let sign = self.rest.bytes().next().filter(|b| *b == b'-' || block && *b == b'+');
                let after = &self.rest[usize::from(sign.is_some())..];
                if after.starts_with(close) {
                    self.push(if block { Token::BlockEnd } else { Token::VarEnd });
                    self.take(2 + usize::from(sign.is_some()));
                    match (block, sign) {
                        (true, sign) => self.after_block(sign),
                        (false, Some(_)) => self.after_block(sign),
                        (false, None) => {}
                    }
                    return Ok(());
                }
            }
            self.token(&mut open)?;
        }
    }

    fn token(&mut self, open: &mut Vec<&'static str>) -> Result<()> {
        let Some(c) = self.rest.chars().next() else { return Ok(()) };
        if c.is_ascii_digit() {
            return self.number();
        }
        if c.is_alphabetic() || c == '_' {
            let len = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
            let name = self.take(len).to_owned();
            self.push(Token::Name(name));
            return Ok(());
        }
        if c == '"' || c == '\'' {
            return self.string(c);
        }
        let Some(op) = OPERATORS.into_iter().find(|op| self.rest.starts_with(op)) else {
            return self.error(format!("unexpected character {c:?}"));
        };
        match op {
            "(" => open.push(")"),
            "[" => open.push("]"),
            "{" => open.push("}"),
            ")" | "]" | "}" if open.pop() != Some(op) => return self.error(format!("unexpected `{op}`")),
            _ => {}
        }
        self.push(Token::Op(op));
        self.take(op.len());
        Ok(())
    }

    fn number(&mut self) -> Result<()> {
        let digits = |s: &str| s.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(s.len());
        let plain = |s: &str| s.replace('_', "");
        let lower = self.rest.get(..2).map(str::to_ascii_lowercase);
        let radix = match lower.as_deref() {
            Some("0x") => 16,
            Some("0o") => 8,
            Some("0b") => 2,
            _ => 10,
        };
        if radix != 10 {
            let len = self.rest[2..]
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .map_or(self.rest.len(), |n| n + 2);
            let Ok(value) = i128::from_str_radix(&plain(&self.rest[2..len]), radix) else {
                return self.error("a malformed number");
            };
            self.take(len);
            self.push(Token::Int(value));
            return Ok(());
        }
        let mut len = digits(self.rest);
        let mut float = false;
        let fraction = self.rest[len..].strip_prefix('.').filter(|f| f.starts_with(|c: char| c.is_ascii_digit()));
        if let Some(fraction) = fraction {
            (len, float) = (len + 1 + digits(fraction), true);
        }
        if let Some(exponent) = self.rest[len..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            if exponent[sign..].starts_with(|c: char| c.is_ascii_digit()) {
                (len, float) = (len + 1 + sign + digits(&exponent[sign..]), true);
            }
        }
        let text = plain(&self.rest[..len]);
        let token = if float { text.parse().map(Token::Float).ok() } else { text.parse().map(Token::Int).ok() };
        let Some(token) = token else { return self.error(format!("the number {text} is too large")) };
        self.take(len);
        self.push(token);
        Ok(())
    }

    fn string(&mut self, quote: char) -> Result<()> {
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|&(_, c)| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some((end, _)) = end else { return self.error("a string has no end") };
        let Some(text) = unescape(&self.rest[1..end]) else { return self.error("a malformed escape in a string") };
        self.push(Token::Str(text));
        self.take(end + 1);
        Ok(())
    }
}

/// `lstrip_blocks`: without white space that begins the line of a tag.
fn without_indent(text: &str, starts: bool) -> &str {
    let line = text.rfind('\n').map(|at| at + 1);
    match line.or(starts.then_some(0)) {
        Some(line) if text[line..].trim().is_empty() => &text[..line],
        _ => text,
    }
}

/// Python's escapes; unknown ones stay.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out += &rest[..at];
        let mut chars = rest[at + 1..].chars();
        let c = chars.next()?;
        rest = chars.as_str();
        let mut code = |digits: usize, radix: u32| {
            let head = rest.get(..digits)?;
            rest = &rest[digits..];
            char::from_u32(u32::from_str_radix(head, radix).ok()?)
        };
        let c = match c {
            '\n' => continue,
            '\\' | '\'' | '"' => c,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'v' => '\x0b',
            'x' => code(2, 16)?,
            'u' => code(4, 16)?,
            'U' => code(8, 16)?,
            '0'..='7' => {
                let more = rest.bytes().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
                let (digits, tail) = rest.split_at(more);
                rest = tail;
                char::from_u32(u32::from_str_radix(&format!("{c}{digits}"), 8).ok()?)?
            }
            c => {
                out.push('\\');
                c
            }
        };
        out.push(c);
    }
    Some(out + rest)
}
