//! Methods of strings, lists and mappings, as Python's.

use super::eval::{Given, Interpreter};
use super::value::{Heap, Str, Value};
use super::{Error, Result, format, ops};

const STRING: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
const LIST: &[&str] = &["copy", "count", "index"];
const MAP: &[&str] = &["copy", "get", "items", "keys", "values"];

/// Whether `value` has a method `name` that the sandbox allows: nothing that changes a value.
pub fn exists(value: &Value, name: &str) -> bool {
    match value {
        Value::Str(_) => STRING.contains(&name),
        Value::List(list) => LIST[usize::from(list.tuple)..].contains(&name),
        Value::Map(_) => MAP.contains(&name),
        _ => false,
    }
}

/// `on.name(given)`
pub fn call(interpreter: &Interpreter<'_>, on: &Value, name: &str, mut given: Given) -> Result<Value> {
    let heap = &interpreter.heap;
    heap.work(on.weight().min(1 << 20))?;
    match on {
        Value::Map(map) => {
            let value = match name {
                "get" => {
                    let key = given.take(0, "key").unwrap_or(Value::None);
                    let default = given.take(1, "default").unwrap_or(Value::None);
                    given.finish("get", 2)?;
                    let found = super::value::position(heap, &map.items, &key)?;
                    return Ok(found.map_or(default, |at| map.items[at].1.clone()));
                }
                "items" => {
                    let pairs = map.items.iter().map(|(k, v)| heap.sequence(vec![k.clone(), v.clone()], true));
                    heap.list(pairs.collect::<Result<_>>()?)?
                }
                "keys" => heap.list(map.items.iter().map(|(k, _)| k.clone()).collect())?,
                "values" => heap.list(map.items.iter().map(|(_, v)| v.clone()).collect())?,
                _ => on.clone(),
            };
            given.finish(name, 0)?;
            Ok(value)
        }
        Value::List(list) => {
            if name == "copy" {
                given.finish(name, 0)?;
                return Ok(on.clone());
            }
            let item = given.take(0, "value").unwrap_or(Value::None);
            given.finish(name, 1)?;
            let mut count = 0;
            for (at, x) in list.items.iter().enumerate() {
                if ops::equal(heap, x, &item)? {
                    if name == "index" {
                        return Ok(Value::Int(at as i128));
                    }
                    count += 1;
                }
            }
            if name == "index" { Err(Error::runtime("the value is not in the list")) } else { Ok(Value::Int(count)) }
        }
        Value::Str(text) => string_method(interpreter, text, name, given),
        _ => Err(Error::runtime(format!("'{}' object has no method '{name}'", on.kind()))),
    }
}

/// Python counts the separators U+001C to U+001F as white space too.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// A string argument; `Markup` escapes it.
fn argument(heap: &Heap, on: &Str, value: Option<Value>, what: &str) -> Result<String> {
    match value {
        Some(Value::Str(text)) if on.safe() && !text.safe() => ops::escape(heap, &text),
        Some(Value::Str(text)) => {
            heap.room(text.len())?;
            Ok(text.to_string())
        }
        Some(Value::Undefined(name)) => Err(Value::undefined_error(&name)),
        Some(other) => Err(Error::runtime(format!("{what} needs a string, not {}", other.kind()))),
        None => Err(Error::runtime(format!("{what} needs an argument"))),
    }
}

/// An optional integer argument.
fn number(value: Option<Value>, default: i128, what: &str) -> Result<i128> {
    match value {
        None => Ok(default),
        Some(value) => {
            value.as_int().ok_or_else(|| Error::runtime(format!("{what} needs an integer, not {}", value.kind())))
        }
    }
}

fn string_method(interpreter: &Interpreter<'_>, on: &Str, name: &str, mut given: Given) -> Result<Value> {
    let heap = &interpreter.heap;
    let text: &str = on;
    // The result of a method is at most a few times as long.
    heap.room(text.len().saturating_mul(4))?;
    let same = |text: String| heap.marked(text, on.safe());
    match name {
        "upper" | "lower" | "casefold" | "capitalize" | "title" | "swapcase" => {
            given.finish(name, 0)?;
            same(match name {
                "upper" => text.to_uppercase(),
                "capitalize" => capitalize(text),
                "title" => title(text),
                "swapcase" => text
                    .chars()
                    .flat_map(|c| {
                        if c.is_uppercase() { c.to_lowercase().collect::<Vec<_>>() } else { c.to_uppercase().collect() }
                    })
                    .collect(),
                "casefold" => text.to_lowercase().replace('ß', "ss").replace('ς', "σ"),
                _ => text.to_lowercase(),
            })
        }
        "strip" | "lstrip" | "rstrip" => {
            let chars = given.take(0, "chars").filter(|c| !matches!(c, Value::None));
            given.finish(name, 1)?;
            let chars = chars.map(|c| argument(heap, on, Some(c), name)).transpose()?;
            if let Some(chars) = &chars {
                heap.work(text.len().saturating_mul(chars.len()))?;
            }
            same(strip(text, chars.as_deref(), name).to_owned())
        }
        "split" | "rsplit" => {
            let separator = given.take(0, "sep").filter(|s| !matches!(s, Value::None));
            let most = number(given.take(1, "maxsplit"), -1, name)?;
            given.finish(name, 2)?;
            let separator = separator.map(|s| argument(heap, on, Some(s), name)).transpose()?;
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let parts = split(text, separator.as_deref(), most, name == "rsplit")?;
            let parts = parts.into_iter().map(|part| heap.marked(part, on.safe()));
            heap.list(parts.collect::<Result<_>>()?)
        }
        "splitlines" => {
            let keep = given.take(0, "keepends").is_some_and(|k| k.is_true());
            given.finish(name, 1)?;
            heap.list(lines(text, keep).into_iter().map(|line| heap.marked(line, on.safe())).collect::<Result<_>>()?)
        }
        "startswith" | "endswith" => {
            let what = given.take(0, "prefix").unwrap_or(Value::None);
            let (from, to) = (given.take(1, "start"), given.take(2, "end"));
            given.finish(name, 3)?;
            let part = part(text, from, to)?.1;
            let test = |what: &Value| match what {
                Value::Str(s) if name == "startswith" => Ok(part.starts_with(&**s)),
                Value::Str(s) => Ok(part.ends_with(&**s)),
                Value::Undefined(name) => Err(Value::undefined_error(name)),
                _ => Err(Error::runtime(format!("{name} needs a string or a tuple of them, not {}", what.kind()))),
            };
            match &what {
                Value::List(list) if list.tuple => {
                    heap.work(list.items.len())?;
                    Ok(Value::Bool(list.items.iter().map(test).collect::<Result<Vec<_>>>()?.contains(&true)))
                }
                one => test(one).map(Value::Bool),
            }
        }
        "find" | "rfind" | "index" | "rindex" | "count" => {
            let what = argument(heap, on, given.take(0, "sub"), name)?;
            let (from, to) = (given.take(1, "start"), given.take(2, "end"));
            given.finish(name, 3)?;
            let (start, part) = part(text, from, to)?;
            if name == "count" {
                let n = if what.is_empty() { part.chars().count() + 1 } else { part.matches(&what).count() };
                return Ok(Value::Int(n as i128));
            }
            let at = if name.starts_with('r') { part.rfind(&what) } else { part.find(&what) };
            match at {
                Some(at) => Ok(Value::Int((start + part[..at].chars().count()) as i128)),
                None if name.ends_with("find") => Ok(Value::Int(-1)),
                None => Err(Error::runtime("substring not found")),
            }
        }
        "replace" => {
            let (old, new) =
                (argument(heap, on, given.take(0, "old"), name)?, argument(heap, on, given.take(1, "new"), name)?);
            let count = number(given.take(2, "count"), -1, name)?;
            given.finish(name, 3)?;
            same(replace(heap, text, &old, &new, count)?)
        }
        "join" => {
            let items = interpreter.iterate(&given.take(0, "iterable").unwrap_or(Value::None))?;
            given.finish(name, 1)?;
            let parts: Vec<String> =
                items.into_iter().map(|item| argument(heap, on, Some(item), name)).collect::<Result<_>>()?;
            let sum = parts.iter().fold(0usize, |sum, p| sum.saturating_add(p.len() + text.len()));
            heap.room(sum)?;
            same(parts.join(text))
        }
        "center" | "ljust" | "rjust" | "zfill" => {
            let width = number(given.take(0, "width"), 0, name)?;
            let fill = given.take(1, "fillchar").map(|f| argument(heap, on, Some(f), name)).transpose()?;
            given.finish(name, if name == "zfill" { 1 } else { 2 })?;
            let mut fill = fill.as_deref().unwrap_or(if name == "zfill" { "0" } else { " " }).chars();
            match (fill.next(), fill.next()) {
                (Some(fill), None) => same(pad(heap, text, width, fill, name)?),
                _ => Err(Error::runtime("the fill character must be exactly one character long")),
            }
        }
        "removeprefix" | "removesuffix" => {
            let what = argument(heap, on, given.take(0, "prefix"), name)?;
            given.finish(name, 1)?;
            let cut = if name == "removeprefix" { text.strip_prefix(&*what) } else { text.strip_suffix(&*what) };
            same(cut.unwrap_or(text).to_owned())
        }
        "partition" | "rpartition" => {
            let what = argument(heap, on, given.take(0, "sep"), name)?;
            given.finish(name, 1)?;
            if what.is_empty() {
                return Err(Error::runtime("empty separator"));
            }
            let found = if name == "partition" { text.split_once(&*what) } else { text.rsplit_once(&*what) };
            let parts = match found {
                Some((a, b)) => [a, &what, b],
                None if name == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            heap.sequence(parts.into_iter().map(|p| heap.marked(p, on.safe())).collect::<Result<_>>()?, true)
        }
        "expandtabs" => {
            let size = number(given.take(0, "tabsize"), 8, name)?;
            given.finish(name, 1)?;
            same(expand_tabs(heap, text, usize::try_from(size).unwrap_or(0))?)
        }
        "format" => format::braces(interpreter, on, given),
        _ => {
            given.finish(name, 0)?;
            Ok(Value::Bool(is(text, name)))
        }
    }
}

fn is(text: &str, name: &str) -> bool {
    let all = |f: fn(char) -> bool| !text.is_empty() && text.chars().all(f);
    match name {
        "isalnum" => all(char::is_alphanumeric),
        "isalpha" => all(char::is_alphabetic),
        "isascii" => text.is_ascii(),
        "isdigit" | "isdecimal" => {
            all(|c| c.is_numeric() && (c.is_ascii_digit() || !c.is_ascii() && c.to_digit(10).is_none()))
        }
        "isnumeric" => all(char::is_numeric),
        "isspace" => all(is_space),
        "islower" => text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase),
        "isupper" => text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase),
        _ => text.chars().any(char::is_alphabetic) && title(text) == text,
    }
}

/// `str.capitalize`
pub fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().collect::<String>() + &chars.as_str().to_lowercase())
}

fn title(text: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphabetic();
    }
    out
}

/// `strip`, `lstrip`, `rstrip` of white space or `chars`.
pub fn strip<'t>(text: &'t str, chars: Option<&str>, name: &str) -> &'t str {
    let drop = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    match name {
        "strip" => text.trim_matches(drop),
        "lstrip" => text.trim_start_matches(drop),
        _ => text.trim_end_matches(drop),
    }
}

fn split<'t>(text: &'t str, separator: Option<&str>, most: usize, from_right: bool) -> Result<Vec<&'t str>> {
    match separator {
        Some("") => Err(Error::runtime("empty separator")),
        Some(s) if from_right => {
            let mut parts: Vec<_> = text.rsplitn(most.saturating_add(1), s).collect();
            parts.reverse();
            Ok(parts)
        }
        Some(s) => Ok(text.splitn(most.saturating_add(1), s).collect()),
        None => {
            let mut parts = Vec::new();
            let mut rest = text.trim_matches(is_space);
            while !rest.is_empty() && parts.len() < most {
                let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
                let Some(at) = cut else { break };
                let space = rest[at..].chars().next().map_or(1, char::len_utf8);
                let (part, left) = if from_right {
                    (&rest[at + space..], rest[..at].trim_end_matches(is_space))
                } else {
                    (&rest[..at], rest[at..].trim_start_matches(is_space))
                };
                parts.push(part);
                rest = left;
            }
            if !rest.is_empty() {
                // The remainder keeps the white space at its outer end.
                let whole = match (parts.len(), from_right) {
                    (n, _) if n < most => rest,
                    (_, true) => {
                        text.get(..text.len() - text.trim_start_matches(is_space).len() + rest.len()).unwrap_or(rest)
                    }
                    (_, false) => text.get(text.trim_end_matches(is_space).len() - rest.len()..).unwrap_or(rest),
                };
                parts.push(whole);
            }
            if from_right {
                parts.reverse();
            }
            Ok(parts)
        }
    }
}

/// `splitlines`
pub fn lines(text: &str, keep: bool) -> Vec<&str> {
    let ends =
        |c: char| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(ends).unwrap_or(rest.len());
        let end = match rest[at..].chars().next() {
            Some('\r') if rest[at + 1..].starts_with('\n') => at + 2,
            Some(c) => at + c.len_utf8(),
            None => at,
        };
        out.push(if keep { &rest[..end] } else { &rest[..at] });
        rest = &rest[end..];
    }
    out
}

/// `text[start:end]` and its start.
fn part(text: &str, start: Option<Value>, end: Option<Value>) -> Result<(usize, &str)> {
    if start.is_none() && end.is_none() {
        return Ok((0, text));
    }
    let len = text.chars().count();
    let bound = |value: Option<Value>, default: usize| match value {
        None | Some(Value::None) => Ok(default),
        Some(value) => {
            let n = number(Some(value), 0, "an index")?;
            Ok(usize::try_from(if n < 0 { (n + len as i128).max(0) } else { n.min(len as i128) }).unwrap_or(0))
        }
    };
    let (start, end) = (bound(start, 0)?, bound(end, len)?);
    let at = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    Ok((start, text.get(at(start)..at(end.max(start))).unwrap_or_default()))
}

/// `text.replace(old, new, count)`, its size known first.
pub fn replace(heap: &Heap, text: &str, old: &str, new: &str, count: i128) -> Result<String> {
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    heap.work(text.len())?;
    let n = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
    heap.room(text.len().saturating_add(n.min(most).saturating_mul(new.len())))?;
    Ok(text.replacen(old, new, most))
}

/// `center`, `ljust`, `rjust`, `zfill`.
pub fn pad(heap: &Heap, text: &str, width: i128, fill: char, name: &str) -> Result<String> {
    let len = text.chars().count();
    let missing = usize::try_from(width).unwrap_or(if width < 0 { 0 } else { usize::MAX }).saturating_sub(len);
    heap.room(missing.saturating_mul(fill.len_utf8()).saturating_add(text.len()))?;
    let left = match name {
        "ljust" => 0,
        // CPython puts the odd one left when the width is odd.
        "center" => missing / 2 + (missing & (len + missing) & 1),
        _ => missing,
    };
    let fill = |n: usize| std::iter::repeat_n(fill, n).collect::<String>();
    Ok(match text.strip_prefix(['-', '+']) {
        Some(digits) if name == "zfill" => text[..1].to_owned() + &fill(left) + digits,
        _ => fill(left) + text + &fill(missing - left),
    })
}

fn expand_tabs(heap: &Heap, text: &str, size: usize) -> Result<String> {
    let tabs = text.bytes().filter(|b| *b == b'\t').count();
    heap.room(tabs.saturating_mul(size))?;
    let (mut out, mut column) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '\t' => {
                let n = (size - column % size.max(1)) % (size + 1);
                out.extend(std::iter::repeat_n(' ', n));
                column += n;
            }
            c => {
                out.push(c);
                column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    Ok(out)
}
