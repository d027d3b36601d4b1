//! Tokens of PTX text, each with its line.

use crate::error::{Error, at};

/// One token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tok<'a> {
    /// A name, directive, register or opcode with its dots: `%tid.x`, `.reg`, `ld.global.nc.b32`,
    /// `shared::cta`.
    Word(&'a str),
    /// An integer literal (its sign is a token before it).
    Int(u64),
    /// `0f` literal, or the bits of a 64-bit one.
    F32(u32),
    /// `0d` literal or a decimal number.
    F64(u64),
    /// A string in quotes.
    Str(&'a str),
    /// Any other character.
    Punct(char),
}

/// A token and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub tok: Tok<'a>,
    pub line: u32,
    /// Byte offset of its start in the text.
    pub start: usize,
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'$' || c == b'.'
}

/// Length of the word that starts `s`; `::` belongs to words, a single colon (after a label) does
/// not.
fn word_len(s: &[u8]) -> usize {
    let mut i = 1;
    while i < s.len() {
        if is_word(s[i]) {
            i += 1;
        } else if s[i] == b':' && s.get(i + 1) == Some(&b':') {
            i += 2;
        } else {
            break;
        }
    }
    i
}

/// Skips blanks and comments from `i`; counts lines. Returns the offset of the next token.
fn skip(s: &[u8], mut i: usize, line: &mut u32) -> usize {
    loop {
        match (s.get(i), s.get(i + 1)) {
            (Some(b'\n'), _) => {
                *line += 1;
                i += 1;
            }
            (Some(b' ' | b'\t' | b'\r'), _) => i += 1,
            (Some(b'/'), Some(b'/')) => {
                while i < s.len() && s[i] != b'\n' {
                    i += 1;
                }
            }
            (Some(b'/'), Some(b'*')) => {
                i += 2;
                while i < s.len() && !(s[i] == b'*' && s.get(i + 1) == Some(&b'/')) {
                    *line += u32::from(s[i] == b'\n');
                    i += 1;
                }
                i = (i + 2).min(s.len());
            }
            _ => return i,
        }
    }
}

fn number(text: &str, line: u32) -> Result<(Tok<'_>, usize), Error> {
    let s = text.as_bytes();
    let bad = |what: &str| at(line, format!("{what}: {:?}", &text[..text.len().min(24)]));
    let hex = |from: usize| s[from..].iter().take_while(|c| c.is_ascii_hexdigit()).count();
    if s[0] == b'0' && s.len() > 1 {
        match s[1] {
            b'f' | b'F' if hex(2) >= 8 => {
                let v = u32::from_str_radix(&text[2..10], 16).map_err(|_| bad("not a 32-bit float"))?;
                return Ok((Tok::F32(v), 10));
            }
            b'd' | b'D' if hex(2) >= 16 => {
                let v = u64::from_str_radix(&text[2..18], 16).map_err(|_| bad("not a 64-bit float"))?;
                return Ok((Tok::F64(v), 18));
            }
            b'x' | b'X' => {
                let n = hex(2);
                let v = u64::from_str_radix(&text[2..2 + n], 16).map_err(|_| bad("not a hexadecimal number"))?;
                return Ok((Tok::Int(v), 2 + n + usize::from(s.get(2 + n) == Some(&b'U'))));
            }
            _ => {}
        }
    }
    let mut n = s.iter().take_while(|c| c.is_ascii_digit()).count();
    if s.get(n) == Some(&b'.') && s.get(n + 1).is_some_and(u8::is_ascii_digit) {
        n += 1 + s[n + 1..].iter().take_while(|c| c.is_ascii_digit()).count();
        let v: f64 = text[..n].parse().map_err(|_| bad("not a number"))?;
        return Ok((Tok::F64(v.to_bits()), n));
    }
    let v = text[..n].parse().map_err(|_| bad("not a 64-bit number"))?;
    n += usize::from(s.get(n) == Some(&b'U'));
    Ok((Tok::Int(v), n))
}

/// Splits `text` into tokens.
pub(crate) fn lex(text: &str) -> Result<Vec<Token<'_>>, Error> {
    if let Some(i) = text.find(|c: char| !c.is_ascii()) {
        let line = 1 + text[..i].bytes().filter(|c| *c == b'\n').count() as u32;
        return Err(at(line, "PTX is ASCII; this line has another character".into()));
    }
    let s = text.as_bytes();
    let (mut i, mut line, mut out) = (0, 1, Vec::new());
    loop {
        i = skip(s, i, &mut line);
        let Some(&c) = s.get(i) else { return Ok(out) };
        let rest = &text[i..];
        let (tok, len) = if c.is_ascii_digit() {
            number(rest, line)?
        } else if c == b'"' {
            let n = rest[1..].find('"').ok_or_else(|| at(line, "a string does not end".into()))?;
            (Tok::Str(&rest[1..=n]), n + 2)
        } else if c == b'%' || is_word(c) {
            let n = word_len(&s[i..]);
            (Tok::Word(&rest[..n]), n)
        } else {
            (Tok::Punct(c as char), 1)
        };
        out.push(Token { tok, line, start: i });
        i += len;
    }
}
