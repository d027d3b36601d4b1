//! How names, strings and numbers are written.

use std::fmt;

/// Length of the longest bare name at the start of `text`: a letter, `_` or `$`, then letters,
/// digits, `_`, `$` and single inner dots.
pub(super) fn bare_len(text: &[u8]) -> usize {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'$';
    if !text.first().is_some_and(|b| word(*b) && !b.is_ascii_digit()) {
        return 0;
    }
    let mut n = 1;
    while let Some(b) = text.get(n) {
        // A dot belongs to the name only before another character of it, so that `%x..` ends after
        // `x`.
        let inner_dot = *b == b'.' && text.get(n + 1).is_some_and(|next| word(*next));
        if !word(*b) && !inner_dot {
            break;
        }
        n += 1;
    }
    n
}

/// A name after `%` or `@`: bare where possible, else quoted.
pub(super) struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() && bare_len(self.0.as_bytes()) == self.0.len() {
            f.write_str(self.0)
        } else {
            Quoted(self.0).fmt(f)
        }
    }
}

/// A string literal.
pub(super) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                // Control characters, and those that reorder or hide text on a screen.
                c if c.is_control()
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}') =>
                {
                    write!(f, "\\u{{{:x}}}", u32::from(c))?;
                }
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

/// The value of the inside of a string literal.
///
/// # Errors
/// Byte offset and length in `inside` of the first bad escape.
pub(super) fn unescape(inside: &str) -> Result<String, (usize, usize)> {
    let mut out = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let esc = &rest[at..];
        let from = inside.len() - esc.len();
        let (c, len) = escape(esc).ok_or((from, esc.chars().take(2).map(char::len_utf8).sum()))?;
        out.push(c);
        rest = &esc[len..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The character of the escape at the start of `esc`, and its length in bytes.
fn escape(esc: &str) -> Option<(char, usize)> {
    let c = match esc.as_bytes().get(1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let hex = esc[2..].strip_prefix('{')?;
            let hex = &hex[..hex.find('}').filter(|n| (1..=6).contains(n))?];
            let code = u32::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with('+'))?;
            return Some((char::from_u32(code)?, hex.len() + 4));
        }
        _ => return None,
    };
    Some((c, 2))
}

/// An f32: the shortest decimal that reads back to the same bits, or `#` and the bits in
/// hexadecimal if it is not finite.
pub(super) struct Float(pub f32);

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_finite() { write!(f, "{:?}", self.0) } else { write!(f, "#{:08x}", self.0.to_bits()) }
    }
}

/// `a, b, c`.
pub(super) struct List<T>(pub T);

impl<T: Iterator<Item: fmt::Display> + Clone> fmt::Display for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, x) in self.0.clone().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            x.fmt(f)?;
        }
        Ok(())
    }
}
