//! The vocabulary of a `tokenizer.json`'s model, and the place of its added tokens, read without the
//! rest.

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

/// Ids by text.
#[derive(Debug, Default)]
pub(super) struct Words {
    ids: HashMap<String, u64>,
    /// Length of a list that may have a text twice.
    len: usize,
}

impl Words {
    /// The id of a text.
    pub fn id(&self, text: &str) -> Option<u64> {
        self.ids.get(text).copied()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }
}

struct Read;

impl<'de> Visitor<'de> for Read {
    type Value = Words;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vocabulary")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Words, A::Error> {
        let mut words = HashMap::new();
        while let Some((text, id)) = map.next_entry::<String, Value>()? {
            let id = id.as_u64().ok_or_else(|| A::Error::custom(format!("the id of {text:?} is {id}")))?;
            words.insert(text, id);
        }
        Ok(Words { len: words.len(), ids: words })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Words, A::Error> {
        let mut words = HashMap::new();
        let mut len = 0;
        while let Some((text, _)) = list.next_element::<(String, IgnoredAny)>()? {
            words.insert(text, len as u64);
            len += 1;
        }
        Ok(Words { ids: words, len })
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Words, D::Error> {
        d.deserialize_any(Read)
    }
}

/// The needed parts of a `tokenizer.json`.
#[derive(serde::Deserialize)]
pub(super) struct File {
    /// As they are there.
    #[serde(default)]
    pub added_tokens: Option<Vec<Value>>,
    /// Its vocabulary.
    pub model: Model,
}

/// A model.
#[derive(serde::Deserialize)]
pub(super) struct Model {
    /// Ids by text.
    pub vocab: Words,
}

/// The vocabulary of a model.
///
/// # Errors
/// It is none.
pub(super) fn of(vocab: &Value) -> Result<Words, String> {
    Words::deserialize(vocab).map_err(|e| format!("no vocabulary: {e}"))
}

/// The same JSON with another list of added tokens; the rest stays as it is to the byte. `None`: it is no
/// object.
pub(super) fn with_added(json: &[u8], list: &[Value]) -> Option<Vec<u8>> {
    let list = serde_json::to_vec(list).ok()?;
    let (range, missing) = match member(json, b"added_tokens") {
        Some(range) => (range, false),
        None => {
            let at = json.iter().position(|b| *b == b'{')? + 1;
            (at..at, true)
        }
    };
    let mut out = Vec::with_capacity(json.len() + list.len() + 20);
    out.extend_from_slice(json.get(..range.start)?);
    if missing {
        out.extend_from_slice(b"\"added_tokens\":");
    }
    out.extend(list);
    if missing {
        out.push(b',');
    }
    out.extend_from_slice(json.get(range.end..)?);
    Some(out)
}

/// Where the value of a key of the outermost object is.
fn member(json: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let (mut depth, mut at, mut start) = (0usize, 0usize, None);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => {
                let end = string_end(json, at)?;
                let colon = json.get(end..)?.iter().position(|b| !b.is_ascii_whitespace())? + end;
                if depth == 1 && start.is_none() && json.get(at + 1..end - 1)? == key && json.get(colon) == Some(&b':')
                {
                    start = Some(colon + 1);
                }
                at = end;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return start.map(|start| start..at);
                }
            }
            b',' if depth == 1 => {
                if let Some(start) = start {
                    return Some(start..at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The end of a string that begins here.
fn string_end(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match json.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn other_added_tokens_leave_the_rest() {
        let set = |text: &str| with_added(text.as_bytes(), &[json!(1)]).map(|b| String::from_utf8(b).unwrap());
        let of = |text: &str| set(text).unwrap();
        assert_eq!(
            of(r#"{"a": 1.50, "added_tokens" : [ {"b": "]}"} ] , "c": "x"}"#),
            r#"{"a": 1.50, "added_tokens" :[1], "c": "x"}"#
        );
        assert_eq!(of(r#"{"added_tokens": null}"#), r#"{"added_tokens":[1]}"#);
        assert_eq!(
            of(r#"{"m": {"added_tokens": [2]}, "s": "added_tokens"}"#),
            r#"{"added_tokens":[1],"m": {"added_tokens": [2]}, "s": "added_tokens"}"#
        );
        assert_eq!(of(r#"{"q\"": "\\", "added_tokens": []}"#), r#"{"q\"": "\\", "added_tokens":[1]}"#);
        assert_eq!(set("[]"), None);
    }
}
