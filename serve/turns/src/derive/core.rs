//! Where a call stands in a text: its name, its identifier, its arguments.

use crate::probe::Known;
use serde_json::{Deserializer, Value};

/// The form of a call that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A JSON object, with the ways to its name, arguments and identifier.
    Object { name: Vec<String>, arguments: Vec<String>, id: Vec<String>, text: bool },
    /// A JSON object whose member has the tool's name.
    Keyed,
    /// A name and a JSON object.
    Named,
    /// `name(key=value)`.
    Python,
    /// `name{key:value}`.
    Notation,
    /// A name, keys and values.
    Tagged,
}

/// The place of a call within a text, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) start: usize,
    /// Where the arguments start.
    pub(crate) arguments: usize,
    pub(crate) end: usize,
    pub(crate) found: Found,
}

/// Finds a call in a text from byte `from` on. `key` and `value`: of its last argument.
pub(crate) fn find(body: &str, from: usize, call: &Known, last: Option<(&str, &str)>) -> Option<Core> {
    let name = from + body.get(from..)?.find(call.name)?;
    object(body, from, name, call).or_else(|| bare(body, from, name, call, last))
}

/// Forms without an object around the name.
fn bare(body: &str, from: usize, name: usize, call: &Known, last: Option<(&str, &str)>) -> Option<Core> {
    // The identifier may stand before the name, or have it.
    let id = body.get(from..).and_then(|rest| rest.find(&call.id)).map(|at| from + at);
    let after = name + call.name.len();
    let start = id.filter(|id| *id <= name).unwrap_or(name);
    let rest = body.get(after..)?;
    if let Some((at, end)) = json_of(body, after, &call.arguments) {
        return Some(Core { start, arguments: at, end, found: Found::Named });
    }
    let closed = |close: char, from: usize| {
        let value = last.map_or(Some(from), |(_, value)| Some(from + body.get(from..)?.find(value)? + value.len()))?;
        Some(value + body.get(value..)?.find(close)? + close.len_utf8())
    };
    if rest.starts_with('(') {
        return Some(Core { start, arguments: after, end: closed(')', after)?, found: Found::Python });
    }
    if rest.starts_with('{') {
        return Some(Core { start, arguments: after, end: closed('}', after)?, found: Found::Notation });
    }
    let (key, value) = last?;
    let at = after + rest.find(key)?;
    let end = at + body.get(at..)?.find(value)? + value.len();
    Some(Core { start, arguments: at, end, found: Found::Tagged })
}

/// A JSON object around a name, the smallest that has the arguments, too.
fn object(body: &str, from: usize, name: usize, call: &Known) -> Option<Core> {
    let opens = body.get(from..name)?.rmatch_indices('{').take(6);
    opens.map(|(at, _)| from + at).find_map(|start| {
        let (value, end) = json_at(body, start)?;
        if end <= name {
            return None;
        }
        if value.as_object().is_some_and(|o| o.len() == 1 && o.get(call.name) == Some(&call.arguments)) {
            let (arguments, _) = json_of(body, name, &call.arguments)?;
            return Some(Core { start, arguments, end, found: Found::Keyed });
        }
        let way = |wanted: &Value| path(&value, wanted);
        let as_text = Value::from(call.arguments.to_string());
        let plain = way(&call.arguments);
        let text = plain.is_none();
        let arguments = plain.or_else(|| text_path(&value, &call.arguments)).or_else(|| way(&as_text))?;
        let name = way(&call.name.into())?;
        let id = way(&call.id.as_str().into()).unwrap_or_default();
        Some(Core { start, arguments: start, end, found: Found::Object { name, arguments, id, text } })
    })
}

/// The JSON value at a place, and its end.
fn json_at(body: &str, start: usize) -> Option<(Value, usize)> {
    let mut stream = Deserializer::from_str(body.get(start..)?).into_iter::<Value>();
    let value = stream.next()?.ok()?;
    Some((value, start + stream.byte_offset()))
}

/// Where an object with this value begins and ends, at most some hundred bytes after `from`.
pub(crate) fn json_of(body: &str, from: usize, wanted: &Value) -> Option<(usize, usize)> {
    let near = body.get(from..)?.match_indices('{').take_while(|(at, _)| *at < 300);
    near.map(|(at, _)| from + at).find_map(|at| {
        let (value, end) = json_at(body, at)?;
        (value == *wanted).then_some((at, end))
    })
}

/// The way to a member with this value.
fn path(value: &Value, wanted: &Value) -> Option<Vec<String>> {
    let members = value.as_object()?;
    members.iter().find_map(|(name, inner)| {
        if inner == wanted {
            return Some(vec![name.clone()]);
        }
        let mut rest = path(inner, wanted)?;
        rest.insert(0, name.clone());
        Some(rest)
    })
}

/// The way to a text that is this value as JSON.
fn text_path(value: &Value, wanted: &Value) -> Option<Vec<String>> {
    let members = value.as_object()?;
    members.iter().find_map(|(name, inner)| {
        let read = inner.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        if read.as_ref() == Some(wanted) {
            return Some(vec![name.clone()]);
        }
        let mut rest = text_path(inner, wanted)?;
        rest.insert(0, name.clone());
        Some(rest)
    })
}
