//! `llmcc diff`: how two artifacts differ, by their manifests and the hashes of their parts.
//!
//! None of their code runs. Manifests are compared member by member, lists of named things by their names. Positions of
//! tensors and the cost model's tables by kernel follow from the rest and are left out.

use crate::Error;
use crate::args::DiffArgs;
use crate::digest::hex;
use crate::report::plain;
use llmcc_abi::tree::{Hash, part};
use llmcc_codegen::locate;
use llmcc_codegen::sealed::Sealed;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// Members by which the things of a list are told apart.
const NAMES: [&str; 6] = ["file", "target", "what", "bound", "kernel", "name"];
/// Ends of the paths of members that follow from others.
const LEFT_OUT: [&str; 2] = ["/offset", "/predicted/kernels"];
/// Members that are compared as a whole.
const WHOLE: [&str; 1] = ["golden/steps"];
/// Longest value that is shown.
const SHOWN: usize = 60;

/// The manifest of an artifact, and the hashes of its parts.
struct Side {
    root: Hash,
    parts: BTreeMap<&'static str, Vec<Hash>>,
    bytes: u64,
    manifest: Value,
}

/// A member that differs: its path and both values, null where it is missing.
type Difference = (String, Value, Value);

/// `llmcc diff`: prints the differences.
///
/// # Errors
/// No artifacts; [`Error::Findings`] where they differ.
pub fn run(args: &DiffArgs) -> Result<(), Error> {
    let (a, b) = (Side::read(&args.first)?, Side::read(&args.second)?);
    let (parts, members) = (different_parts(&a, &b), differences(&a.manifest, &b.manifest));
    if args.json {
        let pair = |(path, a, b): &Difference| json!({ "member": path, "first": a, "second": b });
        crate::json::print(&json!({
            "same": a.root == b.root,
            "roots": [hex(&a.root), hex(&b.root)],
            "bytes": [a.bytes, b.bytes],
            "parts": parts,
            "members": members.iter().map(pair).collect::<Vec<_>>(),
        }))?;
    } else if a.root != b.root {
        super::print(&plain(&text((&args.first, &a), (&args.second, &b), &parts, &members)))?;
    }
    match a.root == b.root {
        true => Ok(()),
        false => Err(Error::Findings(format!("{} and {} differ", args.first.display(), args.second.display()))),
    }
}

impl Side {
    fn read(path: &Path) -> Result<Side, Error> {
        let sealed = Sealed::open(path)?;
        let text = locate::manifest(path)?;
        let manifest = serde_json::from_slice(&text).map_err(|e| Error::Artifact {
            path: path.to_owned(),
            message: format!("its manifest is not JSON: {e}"),
        })?;
        let mut parts: BTreeMap<&'static str, Vec<Hash>> = BTreeMap::new();
        for p in sealed.parts.iter().filter(|p| !matches!(p.kind, part::PADDING | part::IMAGE | part::LABEL)) {
            parts.entry(part::name(p.kind)).or_default().push(p.hash);
        }
        let bytes = sealed.parts.iter().map(|p| p.len).sum();
        Ok(Side { root: sealed.root(), parts, bytes, manifest })
    }
}

/// Kinds of parts with other bytes.
fn different_parts(a: &Side, b: &Side) -> Vec<&'static str> {
    let kinds: BTreeSet<&'static str> = a.parts.keys().chain(b.parts.keys()).copied().collect();
    kinds.into_iter().filter(|kind| a.parts.get(kind) != b.parts.get(kind)).collect()
}

/// The members of two manifests that differ, in order.
fn differences(a: &Value, b: &Value) -> Vec<Difference> {
    let mut found = vec![];
    compare("", a, b, &mut found);
    found
}

fn compare(path: &str, a: &Value, b: &Value, found: &mut Vec<Difference>) {
    if a == b {
        return;
    }
    let (left, right) = match (members(a), members(b)) {
        (Some(left), Some(right)) if !WHOLE.contains(&path) => (left, right),
        _ => return found.push((path.to_owned(), a.clone(), b.clone())),
    };
    let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for key in keys {
        let at = if path.is_empty() { key.clone() } else { format!("{path}/{key}") };
        if LEFT_OUT.iter().any(|end| at.ends_with(end)) {
            continue;
        }
        compare(&at, left.get(key).unwrap_or(&Value::Null), right.get(key).unwrap_or(&Value::Null), found);
    }
}

/// The members of an object, or of a list: by name where all have one that no other has, else by position.
fn members(v: &Value) -> Option<Map<String, Value>> {
    match v {
        Value::Object(all) => Some(all.clone()),
        Value::Array(all) => {
            let named = NAMES.iter().find_map(|name| by_name(all, name));
            Some(named.unwrap_or_else(|| all.iter().enumerate().map(|(i, v)| (i.to_string(), v.clone())).collect()))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn by_name(all: &[Value], name: &str) -> Option<Map<String, Value>> {
    let named: Option<Map<String, Value>> =
        all.iter().map(|v| Some((v.get(name)?.as_str()?.to_owned(), v.clone()))).collect();
    named.filter(|named| named.len() == all.len() && !all.is_empty())
}

/// The differences in words.
fn text(a: (&Path, &Side), b: (&Path, &Side), parts: &[&str], members: &[Difference]) -> String {
    let mut s = String::new();
    for (path, side) in [a, b] {
        let _ = writeln!(s, "{}: {} bytes, root {}", path.display(), side.bytes, hex(&side.root));
    }
    let _ = writeln!(s, "bytes differ in: {}", if parts.is_empty() { "headers".into() } else { parts.join(", ") });
    if members.is_empty() {
        let _ = writeln!(s, "the manifests say the same");
    }
    for (member, a, b) in members {
        let _ = writeln!(s, "  {member}: {} | {}", shown(a), shown(b));
    }
    s
}

/// A value in few words.
fn shown(v: &Value) -> String {
    let text = match v {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => v.to_string(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists of named things in another order, with a thing more, and with positions that do not count.
    #[test]
    fn lists_are_compared_by_name() {
        let tensor =
            |name: &str, storage: &str, offset: u64| json!({ "name": name, "storage": storage, "offset": offset });
        let a = json!({ "w": [tensor("a", "w4", 0), tensor("b", "w4", 9)], "n": [1, 2], "x": 1, "same": {} });
        let other = [tensor("b", "w8", 0), tensor("a", "w4", 3), tensor("c", "f32", 5)];
        let b = json!({ "w": other, "n": [1, 3], "same": {} });
        let found = differences(&a, &b);
        let want = [
            ("n/1", json!(2), json!(3)),
            ("w/b/storage", json!("w4"), json!("w8")),
            ("w/c", Value::Null, tensor("c", "f32", 5)),
            ("x", json!(1), Value::Null),
        ];
        assert_eq!(found, want.map(|(path, a, b)| (path.to_owned(), a, b)));
        assert_eq!(differences(&a, &a), []);
        // Names that are not unique are positions.
        let twice = json!([{ "name": "a" }, { "name": "a", "x": 1 }]);
        assert_eq!(differences(&twice, &json!([{ "name": "a" }, { "name": "a" }])).len(), 1);
        assert_eq!(shown(&json!("é".repeat(70))), format!("{}...", "é".repeat(60)));
    }
}
