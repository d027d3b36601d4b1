//! Values as text: Python's `str`, `repr` and `json.dumps`.

use super::value::{Heap, Value};
use super::{Error, Result};

/// `str(value)`
pub fn text(heap: &Heap, value: &Value) -> Result<String> {
    let mut out = String::new();
    write_text(heap, &mut out, value)?;
    Ok(out)
}

/// `repr(value)`
pub fn repr_text(heap: &Heap, value: &Value) -> Result<String> {
    heap.room(4usize.saturating_mul(value.weight()))?;
    let mut out = String::new();
    repr(&mut out, value);
    Ok(out)
}

/// Appends `str(value)`.
pub fn write_text(heap: &Heap, out: &mut String, value: &Value) -> Result<()> {
    match value {
        Value::Str(text) => {
            heap.room(text.len())?;
            out.push_str(text);
        }
        Value::Undefined(_) => {}
        _ => {
            // A byte takes at most four in a representation.
            heap.room(4usize.saturating_mul(value.weight()))?;
            repr(out, value);
        }
    }
    Ok(())
}

/// `repr(value)`; its cost has been counted. Recursion is bounded by the depth of values.
fn repr(out: &mut String, value: &Value) {
    match value {
        Value::Undefined(_) => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
        Value::Int(n) => out.push_str(&n.to_string()),
        Value::Float(x) => out.push_str(&float(*x)),
        Value::Str(text) => {
            if text.safe() {
                out.push_str("Markup(");
            }
            quote(out, text);
            if text.safe() {
                out.push(')');
            }
        }
        Value::List(list) => {
            out.push(if list.tuple { '(' } else { '[' });
            for (i, item) in list.items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(out, item);
            }
            if list.tuple && list.items.len() == 1 {
                out.push(',');
            }
            out.push(if list.tuple { ')' } else { ']' });
        }
        Value::Map(map) => {
            out.push('{');
            for (i, (key, value)) in map.items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(out, key);
                out.push_str(": ");
                repr(out, value);
            }
            out.push('}');
        }
        Value::Namespace(_) | Value::Call(_) | Value::Loop(_) => {
            out.push('<');
            out.push_str(value.kind());
            out.push('>');
        }
    }
}

/// A string literal as Python writes it.
fn quote(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if printable(c) => out.push(c),
            c => match c as u32 {
                n @ 0..=0xff => out.push_str(&format!("\\x{n:02x}")),
                n @ 0x100..=0xffff => out.push_str(&format!("\\u{n:04x}")),
                n => out.push_str(&format!("\\U{n:08x}")),
            },
        }
    }
    out.push(quote);
}

/// `str.isprintable`: Rust escapes the same categories; behind another character it leaves
/// combining ones.
pub fn printable(c: char) -> bool {
    let mut buffer = [b'a', 0, 0, 0, 0];
    let len = 1 + c.encode_utf8(&mut buffer[1..]).len();
    let text = std::str::from_utf8(&buffer[..len]).unwrap_or_default();
    matches!(c, '\'' | '"' | '\\') || text.escape_debug().count() == 2
}

/// `repr` of a float: the shortest digits, with an exponent below 1e-4 and from 1e16.
pub fn float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        -4..16 => {
            let plain = format!("{x}");
            if plain.contains('.') { plain } else { plain + ".0" }
        }
        e => format!("{digits}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs()),
    }
}

/// Settings of `json.dumps`.
pub struct JsonStyle {
    /// One level of indentation; `None`: all on one line.
    pub indent: Option<String>,
    /// Between items, and between keys and values.
    pub separators: (String, String),
    pub ensure_ascii: bool,
    pub sort_keys: bool,
}

/// `json.dumps(value)`
pub fn json(heap: &Heap, value: &Value, style: &JsonStyle) -> Result<String> {
    let per_item = style.separators.0.len() + style.separators.1.len();
    // Six bytes for an escaped one, separators per scalar.
    heap.room(value.weight().saturating_mul(6 + per_item))?;
    let mut out = String::new();
    write_json(heap, &mut out, value, style, 0)?;
    Ok(out)
}

fn write_json(heap: &Heap, out: &mut String, value: &Value, style: &JsonStyle, depth: usize) -> Result<()> {
    match value {
        Value::None => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(n) => out.push_str(&n.to_string()),
        Value::Float(x) if x.is_nan() => out.push_str("NaN"),
        Value::Float(x) if x.is_infinite() => out.push_str(if *x > 0.0 { "Infinity" } else { "-Infinity" }),
        Value::Float(x) => out.push_str(&float(*x)),
        Value::Str(text) => json_string(out, text, style.ensure_ascii),
        Value::List(list) => {
            out.push('[');
            for (i, item) in list.items.iter().enumerate() {
                separate(heap, out, style, i, depth)?;
                write_json(heap, out, item, style, depth + 1)?;
            }
            finish(heap, out, style, list.items.len(), depth, ']')?;
        }
        Value::Map(map) => {
            let mut items: Vec<&(Value, Value)> = map.items.iter().collect();
            if style.sort_keys {
                heap.work(items.len() * 64)?;
                items.sort_by(|a, b| a.0.as_str().cmp(&b.0.as_str()));
            }
            out.push('{');
            for (i, (key, value)) in items.into_iter().enumerate() {
                separate(heap, out, style, i, depth)?;
                match key {
                    Value::Str(text) => json_string(out, text, style.ensure_ascii),
                    Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                        out.push('"');
                        write_json(heap, out, key, style, depth)?;
                        out.push('"');
                    }
                    _ => {
                        return Err(Error::runtime(format!(
                            "keys must be str, int, float, bool or None, not {}",
                            key.kind()
                        )));
                    }
                }
                out.push_str(&style.separators.1);
                write_json(heap, out, value, style, depth + 1)?;
            }
            finish(heap, out, style, map.items.len(), depth, '}')?;
        }
        _ => return Err(Error::runtime(format!("Object of type {} is not JSON serializable", value.kind()))),
    }
    Ok(())
}

fn separate(heap: &Heap, out: &mut String, style: &JsonStyle, i: usize, depth: usize) -> Result<()> {
    if i > 0 {
        out.push_str(&style.separators.0);
    }
    newline(heap, out, style, depth + 1)
}

fn finish(heap: &Heap, out: &mut String, style: &JsonStyle, items: usize, depth: usize, close: char) -> Result<()> {
    if items > 0 {
        newline(heap, out, style, depth)?;
    }
    out.push(close);
    Ok(())
}

fn newline(heap: &Heap, out: &mut String, style: &JsonStyle, depth: usize) -> Result<()> {
    if let Some(indent) = &style.indent {
        let n = indent.len().saturating_mul(depth);
        heap.fits(out.len().saturating_add(n))?;
        heap.work(n)?;
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
    Ok(())
}

fn json_string(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c if ensure_ascii && (!c.is_ascii() || c == '\x7f') => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
