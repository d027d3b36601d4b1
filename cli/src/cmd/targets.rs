//! `llmcc targets`

use crate::Error;
use llmcc_ir::target::{TARGETS, find};
use std::fmt::Write;

/// Lists the targets.
///
/// # Errors
/// Output closed.
pub fn run() -> Result<(), Error> {
    let native = find("native").map_or("", |t| t.name);
    let mut out = String::new();
    for t in TARGETS {
        let mark = if t.name == native { "  (native)" } else { "" };
        let _ = writeln!(out, "{:<12} {}{mark}", t.name, t.about);
    }
    super::print(&out)
}
