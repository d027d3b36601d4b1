//! Python's two ways of formatting: `"%s" % value` and `"{}".format(value)`.

use super::eval::{Given, Interpreter};
use super::value::{Heap, Str, Value};
use super::{Error, Result, call, ops, print};

/// Digits after the point, at most; Rust's formatter takes 16 bits.
const MOST_DIGITS: usize = 1000;

/// Width, alignment and form of one value.
#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    group: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Spec {
    /// `[[fill]align][sign][#][0][width][,][.precision][type]`
    fn parse(text: &str) -> Result<Spec> {
        let bad =
            || Error::runtime(format!("Invalid format specifier '{}'", text.chars().take(40).collect::<String>()));
        let mut spec = Spec::default();
        let mut chars = text.chars().peekable();
        let is_align = |c: char| matches!(c, '<' | '>' | '^' | '=');
        let mut two = text.chars();
        match (two.next(), two.next()) {
            (Some(fill), Some(align)) if is_align(align) => {
                (spec.fill, spec.align) = (Some(fill), Some(align));
                chars.next();
                chars.next();
            }
            (Some(align), _) if is_align(align) => spec.align = chars.next(),
            _ => {}
        }
        spec.sign = chars.next_if(|c| matches!(c, '+' | '-' | ' '));
        spec.alternate = chars.next_if_eq(&'#').is_some();
        spec.zero = chars.next_if_eq(&'0').is_some();
        let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut n = None;
            while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                n = Some(n.unwrap_or(0usize).saturating_mul(10).saturating_add(digit as usize));
                chars.next();
            }
            n
        };
        spec.width = number(&mut chars).unwrap_or(0);
        spec.group = chars.next_if(|c| matches!(c, ',' | '_'));
        if chars.next_if_eq(&'.').is_some() {
            spec.precision = Some(number(&mut chars).ok_or_else(bad)?);
        }
        spec.kind = chars.next();
        if chars.next().is_some() { Err(bad()) } else { Ok(spec) }
    }

    fn apply(&self, heap: &Heap, value: &Value) -> Result<String> {
        let numeric = !matches!(value, Value::Str(_)) && !matches!(self.kind, Some('s' | 'c'));
        let (sign, body) = match (value, self.kind) {
            (Value::Float(_), _) | (Value::Int(_) | Value::Bool(_), Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%')) => {
                self.float(value.as_float().unwrap_or_default())?
            }
            (Value::Bool(_), None | Some('s')) if self.kind == Some('s') || self.is_plain() => {
                ("", print::text(heap, value)?)
            }
            (Value::Int(_) | Value::Bool(_), kind) => {
                self.integer(value.as_int().unwrap_or_default(), kind.unwrap_or('d'))?
            }
            (Value::Str(text), None | Some('s')) => {
                heap.room(text.len())?;
                ("", text.chars().take(self.precision.unwrap_or(usize::MAX)).collect())
            }
            (_, None) if self.is_plain() => ("", print::text(heap, value)?),
            _ => return Err(Error::runtime(format!("unsupported format for a value of type {}", value.kind()))),
        };
        self.pad(heap, sign, &body, numeric)
    }

    fn is_plain(&self) -> bool {
        self.width == 0 && self.precision.is_none() && self.align.is_none() && self.sign.is_none()
    }

    fn sign(&self, negative: bool) -> &'static str {
        match self.sign {
            _ if negative => "-",
            Some('+') => "+",
            Some(' ') => " ",
            _ => "",
        }
    }

    fn integer(&self, n: i128, kind: char) -> Result<(&'static str, String)> {
        let abs = n.unsigned_abs();
        let prefix = if self.alternate { 2 } else { 0 };
        let body = match kind {
            'd' | 'n' | 'i' | 'u' => group(&abs.to_string(), self.group),
            'x' => "0x"[..prefix].to_owned() + &format!("{abs:x}"),
            'X' => "0X"[..prefix].to_owned() + &format!("{abs:X}"),
            'o' => "0o"[..prefix].to_owned() + &format!("{abs:o}"),
            'b' => "0b"[..prefix].to_owned() + &format!("{abs:b}"),
            'c' => return Ok(("", u32::try_from(n).ok().and_then(char::from_u32).unwrap_or('\u{fffd}').to_string())),
            _ => return Err(Error::runtime(format!("Unknown format code '{kind}' for an integer"))),
        };
        Ok((self.sign(n < 0), body))
    }

    fn float(&self, x: f64) -> Result<(&'static str, String)> {
        let precision = self.precision.unwrap_or(6);
        if precision > MOST_DIGITS {
            return Err(Error::limit(format!("a precision of more than {MOST_DIGITS} digits")));
        }
        let abs = x.abs();
        let body = match self.kind {
            _ if !abs.is_finite() => print::float(abs),
            Some('f' | 'F') => group(&format!("{abs:.precision$}"), self.group),
            Some('%') => format!("{:.precision$}%", abs * 100.0),
            Some('e') => scientific(abs, precision),
            Some('E') => scientific(abs, precision).to_uppercase(),
            Some('g' | 'G') => general(abs, precision.max(1)),
            None if self.precision.is_some() => {
                let text = general(abs, precision.max(1));
                if text.contains(['.', 'e']) { text } else { text + ".0" }
            }
            None => group(&print::float(abs), self.group),
            Some(kind) => return Err(Error::runtime(format!("Unknown format code '{kind}' for a float"))),
        };
        Ok((self.sign(x.is_sign_negative() && !x.is_nan()), body))
    }

    fn pad(&self, heap: &Heap, sign: &str, body: &str, numeric: bool) -> Result<String> {
        let len = sign.len() + body.chars().count();
        let missing = self.width.saturating_sub(len);
        let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
        heap.room(missing.saturating_mul(fill.len_utf8()).saturating_add(body.len()))?;
        let align = self.align.unwrap_or(match numeric {
            true if self.zero => '=',
            true => '>',
            false => '<',
        });
        let pad = |n: usize| std::iter::repeat_n(fill, n).collect::<String>();
        Ok(match align {
            '<' => format!("{sign}{body}{}", pad(missing)),
            '^' => format!("{}{sign}{body}{}", pad(missing / 2), pad(missing - missing / 2)),
            '=' => format!("{sign}{}{body}", pad(missing)),
            _ => format!("{}{sign}{body}", pad(missing)),
        })
    }
}

/// Thousands of the digits before the point.
fn group(digits: &str, separator: Option<char>) -> String {
    let Some(separator) = separator else { return digits.to_owned() };
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(separator);
        }
        out.push(c);
    }
    out + rest
}

fn scientific(x: f64, precision: usize) -> String {
    let text = format!("{x:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let e: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs())
}

/// `%g`
fn general(x: f64, precision: usize) -> String {
    let text = scientific(x, precision - 1);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let e: i32 = exponent.parse().unwrap_or(0);
    let trim =
        |s: &str| if s.contains('.') { s.trim_end_matches('0').trim_end_matches('.').to_owned() } else { s.to_owned() };
    if e < -4 || e >= precision as i32 {
        return format!("{}e{exponent}", trim(digits));
    }
    trim(&format!("{x:.*}", (precision as i32 - 1 - e).max(0) as usize))
}

/// `template % given`; `Markup` escapes inserted values.
pub fn percent(heap: &Heap, template: &Str, given: &Value) -> Result<Value> {
    let tuple = match given {
        Value::List(list) if list.tuple => list.items.clone(),
        other => vec![other.clone()],
    };
    let mut values = tuple.into_iter();
    let mut out = String::new();
    let mut charge = heap.no_charge();
    let mut rest: &str = template;
    while let Some(at) = rest.find('%') {
        heap.grow(&mut charge, at)?;
        out += &rest[..at];
        let (text, tail) = directive(heap, &rest[at + 1..], given, &mut values, template.safe())?;
        heap.grow(&mut charge, text.len())?;
        out += &text;
        rest = tail;
    }
    if values.next().is_some() && !matches!(given, Value::Map(_) | Value::Undefined(_)) {
        return Err(Error::runtime("not all arguments converted during string formatting"));
    }
    heap.room(rest.len())?;
    drop(charge);
    heap.marked(out + rest, template.safe())
}

/// The directive after a `%`: its text, and the rest of the template.
fn directive<'t>(
    heap: &Heap,
    rest: &'t str,
    given: &Value,
    values: &mut impl Iterator<Item = Value>,
    safe: bool,
) -> Result<(String, &'t str)> {
    let incomplete = || Error::runtime("incomplete format");
    let mut rest = rest;
    let mut key = None;
    if let Some(inner) = rest.strip_prefix('(') {
        let end = inner.find(')').ok_or_else(incomplete)?;
        (key, rest) = (Some(&inner[..end]), &inner[end + 1..]);
    }
    let mut spec = Spec { align: Some('>'), ..Spec::default() };
    let flags = rest.find(|c| !matches!(c, '-' | '+' | ' ' | '#' | '0')).ok_or_else(incomplete)?;
    for flag in rest[..flags].chars() {
        match flag {
            '-' => spec.align = Some('<'),
            '+' => spec.sign = Some('+'),
            ' ' => spec.sign = spec.sign.or(Some(' ')),
            '#' => spec.alternate = true,
            _ => spec.zero = true,
        }
    }
    rest = &rest[flags..];
    let number = |rest: &mut &'t str, values: &mut dyn Iterator<Item = Value>| -> Result<Option<i128>> {
        if let Some(tail) = rest.strip_prefix('*') {
            *rest = tail;
            let n = values.next().and_then(|v| v.as_int()).ok_or_else(|| Error::runtime("* wants int"))?;
            return Ok(Some(n));
        }
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let n = (digits > 0).then(|| rest[..digits].parse().unwrap_or(i128::MAX));
        *rest = &rest[digits..];
        Ok(n)
    };
    let size = |n: i128| usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX);
    if let Some(width) = number(&mut rest, values)? {
        spec.width = size(width);
        if width < 0 {
            spec.align = Some('<');
        }
    }
    if let Some(tail) = rest.strip_prefix('.') {
        rest = tail;
        spec.precision = Some(size(number(&mut rest, values)?.unwrap_or(0).max(0)));
    }
    let kind = rest.chars().next().ok_or_else(incomplete)?;
    rest = &rest[kind.len_utf8()..];
    if kind == '%' {
        return Ok(("%".into(), rest));
    }
    let value = match (key, given) {
        (Some(key), Value::Map(map)) => {
            map.get(heap, key)?.cloned().ok_or_else(|| Error::runtime(format!("KeyError: '{key}'")))?
        }
        (Some(_), _) => return Err(Error::runtime("format requires a mapping")),
        (None, _) => values.next().ok_or_else(|| Error::runtime("not enough arguments for format string"))?,
    };
    if spec.zero && spec.align == Some('>') && !matches!(kind, 's' | 'r' | 'a' | 'c') {
        spec.align = Some('=');
    } else {
        spec.zero = false;
    }
    spec.kind = Some(kind);
    let text = match kind {
        's' | 'r' | 'a' => {
            let text = if kind == 's' { print::text(heap, &value)? } else { print::repr_text(heap, &value)? };
            let text = if safe && !value.is_safe() { ops::escape(heap, &text)? } else { text };
            let text: String = text.chars().take(spec.precision.unwrap_or(usize::MAX)).collect();
            spec.pad(heap, "", &text, true)?
        }
        'd' | 'i' | 'u' => {
            let n = match value {
                Value::Float(x) if x.is_finite() => x.trunc() as i128,
                ref other => other.as_int().ok_or_else(|| {
                    Error::runtime(format!("%{kind} format: a real number is required, not {}", value.kind()))
                })?,
            };
            let (sign, body) = spec.integer(n, 'd')?;
            spec.pad(heap, sign, &body, true)?
        }
        'c' => match &value {
            Value::Str(text) if text.chars().count() == 1 => spec.pad(heap, "", text, true)?,
            other => {
                let n = other.as_int().ok_or_else(|| Error::runtime("%c requires int or char"))?;
                let (sign, body) = spec.integer(n, 'c')?;
                spec.pad(heap, sign, &body, true)?
            }
        },
        _ => {
            let numeric = value.as_float().is_some();
            if !numeric {
                return Err(Error::runtime(format!("%{kind} format: a number is required, not {}", value.kind())));
            }
            spec.apply(heap, &value)?
        }
    };
    Ok((text, rest))
}

/// `template.format(given)`
pub fn braces(interpreter: &Interpreter<'_>, template: &Str, given: Given) -> Result<Value> {
    let heap = &interpreter.heap;
    let mut out = String::new();
    let mut charge = heap.no_charge();
    let mut auto = 0;
    let mut rest: &str = template;
    while let Some(at) = rest.find(['{', '}']) {
        heap.grow(&mut charge, at + 1)?;
        out += &rest[..at];
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(tail) = rest.strip_prefix(brace) {
            out += brace;
            rest = tail;
            continue;
        }
        if brace == "}" {
            return Err(Error::runtime("Single '}' encountered in format string"));
        }
        let end = closing(rest).ok_or_else(|| Error::runtime("expected '}' before end of string"))?;
        let text = field(interpreter, &rest[..end], &given, &mut auto, template.safe())?;
        heap.grow(&mut charge, text.len())?;
        out += &text;
        rest = &rest[end + 1..];
    }
    heap.room(rest.len())?;
    drop(charge);
    heap.marked(out + rest, template.safe())
}

/// Where the field ends: braces inside, as in `{:{}}`, are counted.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0usize;
    text.char_indices().find_map(|(at, c)| match c {
        '{' => {
            open += 1;
            None
        }
        '}' if open == 0 => Some(at),
        '}' => {
            open -= 1;
            None
        }
        _ => None,
    })
}

/// `name[!conversion][:spec]`
fn field(interpreter: &Interpreter<'_>, text: &str, given: &Given, auto: &mut usize, safe: bool) -> Result<String> {
    let heap = &interpreter.heap;
    let end = text.find(['!', ':']).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    let mut value = argument(interpreter, name, given, auto)?;
    if let Some(tail) = rest.strip_prefix('!') {
        value = match tail.chars().next() {
            Some('s') => heap.string(print::text(heap, &value)?)?,
            Some('r' | 'a') => heap.string(print::repr_text(heap, &value)?)?,
            _ => return Err(Error::runtime("Unknown conversion specifier")),
        };
        rest = &tail[1..];
    }
    let spec = rest.strip_prefix(':').unwrap_or_default();
    let spec = if spec.contains('{') {
        // Widths from arguments: one level, as in Python.
        let mut out = String::new();
        let mut rest = spec;
        while let Some((before, tail)) = rest.split_once('{') {
            let (name, after) =
                tail.split_once('}').ok_or_else(|| Error::runtime("expected '}' before end of string"))?;
            let inner = argument(interpreter, name, given, auto)?;
            out = out + before + &print::text(heap, &inner)?;
            rest = after;
        }
        out + rest
    } else {
        spec.to_owned()
    };
    let text = Spec::parse(&spec)?.apply(heap, &value)?;
    if safe && !value.is_safe() { ops::escape(heap, &text) } else { Ok(text) }
}

/// The argument called `name`, `0`, or nothing, and its `.attributes` and `[items]`.
fn argument(interpreter: &Interpreter<'_>, name: &str, given: &Given, auto: &mut usize) -> Result<Value> {
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut rest) = name.split_at(end);
    let index = if first.is_empty() {
        *auto += 1;
        Some(*auto - 1)
    } else {
        first.parse().ok()
    };
    let found = match index {
        Some(i) => given.positional.get(i),
        None => given.named.iter().find(|(n, _)| n == first).map(|(_, v)| v),
    };
    let mut value = found.cloned().ok_or_else(|| Error::runtime("format: no such argument"))?;
    while !rest.is_empty() {
        interpreter.heap.work(16 + rest.len())?;
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            value = call::attribute(interpreter, &value, &tail[..end])?;
            rest = &tail[end..];
        } else {
            let tail = rest
                .strip_prefix('[')
                .ok_or_else(|| Error::runtime("Only '.' or '[' may follow ']' in format field specifier"))?;
            let (key, after) = tail.split_once(']').ok_or_else(|| Error::runtime("Missing ']' in format string"))?;
            let key = key.parse().map_or_else(|_| interpreter.heap.string(key), |n| Ok(Value::Int(n)))?;
            value = call::item(interpreter, &value, &key)?;
            rest = after;
        }
    }
    Ok(value)
}
