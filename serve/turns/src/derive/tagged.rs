//! Calls whose arguments stand between marks.

use super::core::Core;
use super::pieces::split;
use crate::boundary::shared_end;
use crate::format::{Mid, Nested, Piece, Span, ValueKind};
use crate::probe::{KEYS, Known, Probe, Turn, VALUES};
use serde_json::{Value, json};

/// Marks of arguments.
pub(crate) struct Tags {
    pub(crate) key: String,
    pub(crate) mids: Vec<Mid>,
    pub(crate) end: Vec<Piece>,
    /// The end of the first argument's value.
    pub(crate) end_text: String,
    /// Marks around texts with characters of marks.
    pub(crate) escape: Option<Span>,
    pub(crate) nested: Option<Nested>,
}

/// The text after the value of a third argument.
const THIRD: &str = "valthreez";

/// Derives the marks of arguments. `one`: a turn with one call with one argument.
pub(crate) fn derive(probe: &Probe, one: &Turn, first: &Core) -> Result<Tags, String> {
    let unknown = || "arguments of calls are printed in a manner that is not recognised".to_owned();
    let head = one.body.get(first.start..first.arguments).unwrap_or_default();
    let call = probe.known(0, json!({ KEYS[0]: VALUES[0], KEYS[2]: THIRD }));
    let turn = probe.calling(&[call], "", None)?;
    let texts = gaps(&turn.body, &[KEYS[0], VALUES[0], KEYS[2], THIRD]).ok_or_else(unknown)?;
    let [_, mid, gap, _, _] = &texts[..] else { return Err(unknown()) };
    // After a key that is repeated, the next one begins.
    let key = shared_end(head, gap).to_owned();
    let end_text = gap.strip_suffix(key.as_str()).unwrap_or_default().to_owned();
    if end_text.trim().is_empty() || key.trim().is_empty() {
        return Err(unknown());
    }
    let end = split(&end_text, &[(KEYS[0], Piece::Key)]);
    let mut mids = vec![Mid { text: mid.clone(), kind: ValueKind::Any }];
    for (value, printed) in [(json!(12), "12"), (json!(1.5), "1.5"), (json!(true), "rue"), (json!({ "q": 7 }), "{")] {
        let found = other(probe, value, printed);
        if let Some(text) = found.filter(|text| mids.iter().all(|mid| mid.text != *text)) {
            mids.push(Mid { text, kind: ValueKind::Json });
        }
    }
    let quoted = mids.iter().skip(1).any(|other| format!("{}\"", other.text) == *mid);
    if quoted {
        mids.remove(0);
    } else if let [text, _, ..] = &mut mids[..] {
        text.kind = ValueKind::Text;
    }
    let (nested, escape) = (nested(probe), escape(probe, mid, &end_text));
    Ok(Tags { key, mids, end, end_text, escape, nested })
}

/// Marks around a text that has characters of marks.
fn escape(probe: &Probe, mid: &str, end: &str) -> Option<Span> {
    const TEXT: &str = "<valq>\nz";
    let call = probe.known(0, json!({ KEYS[0]: TEXT }));
    let turn = probe.calling(&[call], "", None).ok()?;
    let (_, rest) = turn.body.split_once(KEYS[0])?;
    let (before, after) = rest.split_once(TEXT)?;
    let (start, end) = (before.strip_prefix(mid)?, after.split_once(end)?.0);
    (!start.is_empty() && !end.is_empty()).then(|| Span::new(start, end))
}

/// The text between the name of an argument and a value that is no text.
fn other(probe: &Probe, value: Value, printed: &str) -> Option<String> {
    let call = probe.known(0, json!({ KEYS[1]: value }));
    let turn = probe.calling(&[call], "", None).ok()?;
    let (_, rest) = turn.body.split_once(KEYS[1])?;
    // (`true` and Python's `True`.)
    let at = rest.find(printed)?;
    let at = if printed == "rue" { at.checked_sub(1)? } else { at };
    rest.get(..at).map(str::to_owned)
}

/// The name of items of lists, if lists have marks of their own.
fn nested(probe: &Probe) -> Option<Nested> {
    let call: Known = probe.known(0, json!({ KEYS[1]: { "innz": ["itemz"] } }));
    let turn = probe.calling(&[call], "", None).ok()?;
    let (_, rest) = turn.body.split_once("innz")?;
    let (between, rest) = rest.split_once("itemz")?;
    // A mark of the member's name closes it, and another one the item.
    if !rest.contains("innz") {
        return None;
    }
    let (_, item) = between.rsplit_once('<')?;
    Some(Nested { item: item.trim_end_matches('>').to_owned() })
}

/// The texts before, between and after words that follow each other.
fn gaps(text: &str, words: &[&str]) -> Option<Vec<String>> {
    let (mut rest, mut all) = (text, vec![]);
    for word in words {
        let (before, after) = rest.split_once(word)?;
        all.push(before.to_owned());
        rest = after;
    }
    all.push(rest.to_owned());
    Some(all)
}
