//! `llmcc check`: `.lir` text of any level, read and verified, every finding in its place.

use crate::args::CheckArgs;
use crate::report::count;
use crate::{Error, json, texts};
use llmcc_ir::diag::{Diagnostic, Place, Severity};
use llmcc_ir::text::{Item, Source, line_and_column, render};
use serde_json::{Value, json};
use std::path::Path;

/// Checks files, and says what is in them.
///
/// # Errors
/// A file that cannot be read; [`Error::Findings`] where there are errors in the text.
pub fn run(args: &CheckArgs) -> Result<(), Error> {
    let checked: Vec<Checked> = args.files.iter().map(|f| Checked::read(f)).collect::<Result<_, _>>()?;
    if args.json {
        let files: Vec<Value> = checked.iter().map(Checked::document).collect();
        let errors: usize = checked.iter().map(Checked::errors).sum();
        json::print(&json!({ "files": files, "errors": errors }))?;
    } else {
        for file in &checked {
            eprint!("{}", file.shown());
            super::print(&file.summary())?;
        }
    }
    let wrong: Vec<&str> = checked.iter().filter(|c| c.errors() > 0).map(|c| c.name.as_str()).collect();
    if wrong.is_empty() { Ok(()) } else { Err(Error::Findings(format!("errors in {}", wrong.join(", ")))) }
}

/// A `.lir` text that was read.
pub(super) struct Checked {
    pub name: String,
    text: String,
    /// Its items, if it could be parsed.
    pub items: Vec<Item>,
    findings: Vec<Diagnostic>,
}

impl Checked {
    /// Reads and verifies a file, or standard input.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<Checked, Error> {
        let text = texts::read(path)?;
        let name = if path == Path::new("-") { "<stdin>".into() } else { path.display().to_string() };
        let (items, findings) = match Source::parse(&text) {
            Ok(source) => {
                let findings = source.findings();
                (source.items, findings)
            }
            Err(findings) => (vec![], findings),
        };
        Ok(Checked { name, text, items, findings })
    }

    /// How many findings are errors.
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|d| d.severity == Severity::Error).count()
    }

    /// All findings, each with its line.
    pub fn shown(&self) -> String {
        self.findings.iter().map(|d| render(d, &self.text, &self.name) + "\n").collect()
    }

    /// A line about items and findings.
    fn summary(&self) -> String {
        let items: Vec<String> =
            counts(&self.items).into_iter().filter(|(_, n)| *n > 0).map(|(what, n)| count(n, what)).collect();
        let errors = self.errors();
        let found = match (errors, self.findings.len() - errors) {
            (0, 0) => "no findings".into(),
            (0, warnings) => count(warnings, "warning"),
            (errors, 0) => count(errors, "error"),
            (errors, warnings) => format!("{}, {}", count(errors, "error"), count(warnings, "warning")),
        };
        let what = if items.is_empty() { String::new() } else { format!("{}; ", items.join(", ")) };
        format!("{}: {what}{found}\n", self.name)
    }

    fn document(&self) -> Value {
        let items: serde_json::Map<String, Value> =
            counts(&self.items).into_iter().map(|(what, n)| (format!("{what}s"), n.into())).collect();
        let findings: Vec<Value> = self.findings.iter().map(|d| self.finding(d)).collect();
        json!({ "file": self.name, "items": items, "findings": findings })
    }

    fn finding(&self, d: &Diagnostic) -> Value {
        let (line, column) = match &d.place {
            Place::Text(range) => {
                let (line, column) = line_and_column(&self.text, range.start);
                (Some(line), Some(column))
            }
            _ => (None, None),
        };
        let place = line.is_none().then(|| d.place.to_string());
        json!({
            "severity": d.severity.name(),
            "code": d.code, "message": d.message, "line": line, "column": column, "place": place, "help": d.help,
        })
    }
}

/// How many items there are of each level.
fn counts(items: &[Item]) -> [(&'static str, usize); 4] {
    let mut counts = [("module", 0), ("function", 0), ("kernel", 0), ("plan", 0)];
    for item in items {
        let at = match item {
            Item::Module(_) => 0,
            Item::Func(_) => 1,
            Item::Kernel(_) => 2,
            Item::Plan(_) => 3,
        };
        counts[at].1 += 1;
    }
    counts
}
