//! A model's counts and times at a moment.

use super::Times;
use serde_json::Value;
use std::fmt::Write;
use std::sync::MutexGuard;

/// A model's state at the moment of the page.
pub(super) struct Snapshot<'a> {
    /// Its name, as labels have it.
    pub(super) name: String,
    pub(super) counts: Value,
    pub(super) used: Option<f64>,
    pub(super) times: MutexGuard<'a, Times>,
}

impl Snapshot<'_> {
    /// A count of the engine's, which has the tokens of requests that have not ended, too.
    pub(super) fn or(&self, member: &str, ended: u64) -> u64 {
        self.counts[member].as_u64().unwrap_or(ended)
    }
}

/// Writes the lines before those of a metric.
pub(super) fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
