//! Documents that commands print with `--json`: one on a line, errors included.

use crate::report::message;
use crate::{Error, stdout};
use serde_json::{Value, json};

/// Whether the command line asks for a document. It is asked before the command line is understood, so that errors in
/// it are documents, too.
pub fn wanted() -> bool {
    std::env::args_os().skip(1).take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// Prints a document on a line.
///
/// # Errors
/// As [`stdout::print`].
pub fn print(document: &Value) -> Result<(), Error> {
    stdout::print(&format!("{document}\n"))
}

/// Reads a document such that its numbers are the nearest ones to what is written: `serde_json` may give numbers a unit
/// in the last place away.
///
/// # Errors
/// As [`serde_json::from_slice`].
pub fn exact(text: &[u8]) -> serde_json::Result<Value> {
    let mut document: Value = serde_json::from_slice(text)?;
    let mut written = literals(text).into_iter();
    if !put_exact(&mut document, &mut written) || written.next().is_some() {
        // (Members that are no text of ours may stand in another order, or twice.)
        return serde_json::from_slice(text);
    }
    Ok(document)
}

/// The numbers of a sound document, as they are written.
fn literals(text: &[u8]) -> Vec<&str> {
    let of_literal = |b: u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
    let (mut out, mut at) = (vec![], 0);
    while let Some(b) = text.get(at) {
        match b {
            b'"' => {
                at += 1;
                while text.get(at).is_some_and(|b| *b != b'"') {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let len = text[at..].iter().take_while(|b| of_literal(**b)).count();
                out.extend(std::str::from_utf8(&text[at..at + len]));
                at += len;
            }
            _ => at += 1,
        }
    }
    out
}

/// Replaces the numbers of a document by those that are written, in order; `false` where they are others.
fn put_exact<'a>(value: &mut Value, written: &mut impl Iterator<Item = &'a str>) -> bool {
    match value {
        Value::Number(n) => {
            let (Some(now), Some(text)) = (n.as_f64(), written.next()) else { return false };
            let Ok(exact) = text.parse::<f64>() else { return false };
            if n.is_f64() {
                *value = exact.into();
            }
            (now - exact).abs() <= 1e-12 * exact.abs()
        }
        Value::Array(items) => items.iter_mut().all(|item| put_exact(item, written)),
        Value::Object(members) => members.iter_mut().all(|(_, member)| put_exact(member, written)),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// An error as a document: its kind, its message, what caused it, and the exit status of the process.
pub fn error(e: &Error) -> Value {
    let (said, causes) = chain(e);
    let causes: Vec<String> = causes.iter().map(|cause| message(cause)).collect();
    failure(kind(e), &message(&said), &causes, status(e))
}

/// An error in the command line itself.
pub fn usage(text: &str) -> Value {
    failure("usage", text.trim().trim_start_matches("error: "), &[], 2)
}

fn failure(kind: &str, message: &str, causes: &[String], status: u8) -> Value {
    json!({ "error": { "kind": kind, "message": message, "causes": causes, "status": status } })
}

/// An error's message, and its causes that this does not name already.
pub fn chain(e: &Error) -> (String, Vec<String>) {
    let first = e.to_string();
    let (mut said, mut causes) = (first.clone(), vec![]);
    let mut source = std::error::Error::source(e);
    while let Some(s) = source {
        let cause = s.to_string();
        if !said.contains(&cause) {
            causes.push(cause.clone());
        }
        said = cause;
        source = s.source();
    }
    (first, causes)
}

/// Exit status of the process: 2 for a command line that makes no sense.
pub fn status(e: &Error) -> u8 {
    match e {
        Error::Usage(_) => 2,
        Error::ClosedPipe => 0,
        _ => 1,
    }
}

/// The part of the work that failed.
fn kind(e: &Error) -> &'static str {
    match e {
        Error::Usage(_) => "usage",
        Error::Frontend(_) => "input",
        Error::Pass(_) | Error::Pack(_) | Error::Codegen(_) | Error::Link(_) => "compile",
        Error::Hub(_) | Error::Nowhere { .. } => "download",
        Error::Io { .. } => "io",
        Error::Artifact { .. } => "artifact",
        Error::Machine { .. } => "machine",
        Error::Failed(_) => "failed",
        Error::Findings(_) => "findings",
        Error::ClosedPipe => "closed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_kind_message_and_status() {
        let found = error(&Error::Usage("--stride 0: no".into()));
        let want = json!({ "kind": "usage", "message": "--stride 0: no", "causes": [], "status": 2 });
        assert_eq!(found["error"], want);
        let io = Error::io("read", "f", std::io::Error::other("gone"));
        assert_eq!(error(&io)["error"]["kind"], "io");
        assert_eq!(error(&io)["error"]["causes"], json!([]), "the message has it already");
    }

    /// Numbers of 17 digits come back as they were, whatever stands between them.
    #[test]
    fn documents_are_read_exactly() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / 1e16
        };
        let values: Vec<f64> = (0..2000).map(|_| random()).collect();
        let document =
            json!({ "a \"1\" \\": values, "b": [-1.5e-7, 3, -4, u64::MAX, true, null, "2.5", {}], "c": 0.1 });
        let text = document.to_string();
        assert_eq!(exact(text.as_bytes()).expect("a document").to_string(), text);
        // Documents that nobody here writes are read as they are elsewhere, and faults are faults.
        let twice = br#"{"a": 1.5, "a": 2.5}"#;
        assert_eq!(exact(twice).expect("a document"), json!({ "a": 2.5 }));
        assert!(exact(b"{\"a\": 1.}").is_err() && exact(b"\"\\").is_err() && exact(b"").is_err());
    }
}
