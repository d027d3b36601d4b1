//! Counts of an engine since it was opened.

use std::time::Duration;

use super::disk::DiskCounts;

/// Counts, and times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Requests that take part in steps.
    pub running: usize,
    /// Requests that have not begun.
    pub waiting: usize,
    /// Sequences of ended requests that stay for others.
    pub kept_sequences: usize,
    /// Bytes of the pages that these refer to, each counted for every sequence that shares it.
    pub kept_bytes: usize,
    /// Requests taken.
    pub submitted: u64,
    /// Requests whose texts were finished.
    pub finished: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Requests whose deadlines passed.
    pub expired: u64,
    /// Steps.
    pub steps: u64,
    /// Tokens computed in them.
    pub step_tokens: u64,
    /// Tokens of the prompts of requests that began.
    pub prompt_tokens: u64,
    /// Tokens of these that other requests had computed.
    pub reused_tokens: u64,
    /// Generated tokens.
    pub generated_tokens: u64,
    /// Tokens that were guessed, by requests that ended.
    pub guessed: u64,
    /// Guesses that became part of texts.
    pub accepted: u64,
    /// Time in steps.
    pub busy: Duration,
    /// Tokens of prompts that were to come from files.
    pub disk_tokens: u64,
    /// Sequences that could not be written to files, or read from them.
    pub disk_errors: u64,
    /// The files, if there are any.
    pub disk: Option<DiskCounts>,
}

impl Counts {
    /// As JSON.
    pub fn json(&self) -> String {
        let all = [
            ("running", self.running as u64),
            ("waiting", self.waiting as u64),
            ("kept_sequences", self.kept_sequences as u64),
            ("kept_bytes", self.kept_bytes as u64),
            ("submitted", self.submitted),
            ("finished", self.finished),
            ("failed", self.failed),
            ("cancelled", self.cancelled),
            ("expired", self.expired),
            ("steps", self.steps),
            ("step_tokens", self.step_tokens),
            ("prompt_tokens", self.prompt_tokens),
            ("reused_tokens", self.reused_tokens),
            ("generated_tokens", self.generated_tokens),
            ("guessed", self.guessed),
            ("accepted", self.accepted),
            ("busy_ns", u64::try_from(self.busy.as_nanos()).unwrap_or(u64::MAX)),
        ];
        let mut members: Vec<String> = all.iter().map(|(name, count)| format!("\"{name}\": {count}")).collect();
        if let Some(disk) = &self.disk {
            let all = [
                ("disk_parts", disk.parts as u64),
                ("disk_bytes", disk.bytes),
                ("disk_written", disk.written),
                ("disk_tokens", self.disk_tokens),
                ("disk_errors", disk.failed + self.disk_errors),
            ];
            members.extend(all.iter().map(|(name, count)| format!("\"{name}\": {count}")));
            members.extend(disk.error.iter().map(|error| format!("\"disk_error\": {}", crate::json::string(error))));
        }
        format!("{{{}}}", members.join(", "))
    }
}
