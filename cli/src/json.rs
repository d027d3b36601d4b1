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
}
