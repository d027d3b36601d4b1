//! Members of a JSON object and elements of a list as ranges of its text, which stays as the client wrote it.

use serde::de::IgnoredAny;
use std::ops::Range;

/// A member of an object: its name, and where it stands in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Name, colon and value.
    pub(crate) whole: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// The members of the object that a text is; `None`: it is none, or no JSON.
pub(crate) fn members(text: &[u8]) -> Option<Vec<Member>> {
    serde_json::from_slice::<IgnoredAny>(text).ok()?;
    let (inner, from) = inside(text, 0..text.len(), (b'{', b'}'))?;
    let mut all = vec![];
    for part in parts(inner, from) {
        let whole = trimmed(text, part);
        let name = string_end(text, whole.start)?;
        let colon = text[name..whole.end].iter().position(|b| *b == b':')?;
        let value = trimmed(text, name + colon + 1..whole.end);
        all.push(Member { name: serde_json::from_slice(&text[whole.start..name]).ok()?, whole, value });
    }
    Some(all)
}

/// The elements of the list at a place of a text that is JSON; none where there is no list.
pub(crate) fn elements(text: &[u8], at: Range<usize>) -> Vec<Range<usize>> {
    let Some((inner, from)) = inside(text, at, (b'[', b']')) else { return vec![] };
    parts(inner, from).into_iter().map(|part| trimmed(text, part)).collect()
}

/// Text between two brackets, and where it begins.
fn inside(text: &[u8], at: Range<usize>, (open, close): (u8, u8)) -> Option<(&[u8], usize)> {
    let at = trimmed(text, at);
    let inner = text[at.clone()].strip_prefix(&[open])?.strip_suffix(&[close])?;
    Some((inner, at.start + 1))
}

fn trimmed(text: &[u8], at: Range<usize>) -> Range<usize> {
    let part = &text[at.clone()];
    let start = at.start + (part.len() - part.trim_ascii_start().len());
    start..start + part.trim_ascii().len()
}

/// The end of the string that begins at a place.
fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Parts between commas that are in no brackets and no string; none of a text of spaces.
fn parts(inner: &[u8], from: usize) -> Vec<Range<usize>> {
    let (mut all, mut start, mut depth, mut at) = (vec![], 0, 0usize, 0);
    while let Some(byte) = inner.get(at) {
        match byte {
            b'"' => {
                at = string_end(inner, at).unwrap_or(inner.len());
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                all.push(from + start..from + at);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    if !inner[start.min(inner.len())..].trim_ascii().is_empty() {
        all.push(from + start..from + inner.len());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<Vec<(String, &str)>> {
        let all = members(text.as_bytes())?;
        Some(all.into_iter().map(|member| (member.name, &text[member.value])).collect())
    }

    #[test]
    fn members_are_found_as_they_are_written() {
        let of = |text| found(text).unwrap();
        assert_eq!(of("{}"), []);
        assert_eq!(of(" { } "), []);
        assert_eq!(of(r#"{"a":1}"#), [("a".to_owned(), "1")]);
        let text = r#" {"a" : [1, {"x": "}"}], "b\"," : "q\\", "s\u0065ed":null } "#;
        let want = [("a", r#"[1, {"x": "}"}]"#), ("b\",", r#""q\\""#), ("seed", "null")];
        assert_eq!(of(text), want.map(|(name, value)| (name.to_owned(), value)));
        for text in ["", "[]", "1", "{", r#"{"a"}"#, r#"{"a":1,}"#, "{} {}"] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn elements_are_found() {
        let text = br#"[ {"a": [1,2]}, "x,]" ,3 ]"#;
        let all: Vec<&[u8]> = elements(text, 0..text.len()).into_iter().map(|at| &text[at]).collect();
        assert_eq!(all, [&br#"{"a": [1,2]}"#[..], br#""x,]""#, b"3"]);
        assert!(elements(b"{}", 0..2).is_empty() && elements(b"[]", 0..2).is_empty());
    }
}
