//! Lines about the server and its requests on the standard error stream, as text or JSON. A thread writes them, so that
//! nobody waits for whoever reads them; lines that find no room are counted.

use serde_json::{Map, Value, json};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

/// The form of lines about requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogForm {
    /// There are none; messages about the server are text.
    #[default]
    Off,
    /// `time method path status ...`
    Text,
    /// A JSON object on each line.
    Json,
}

/// Lines that wait to be written.
const WAITING: usize = 1024;

/// Writes lines.
pub(crate) struct Log {
    form: LogForm,
    lines: SyncSender<String>,
    lost: AtomicU64,
}

impl Log {
    /// A log, and its thread.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn start(form: LogForm) -> std::io::Result<Log> {
        let (lines, written) = sync_channel::<String>(WAITING);
        // It ends with the last sender.
        std::thread::Builder::new().name("llmcc-log".into()).spawn(move || {
            for line in written {
                // Nobody may want to know.
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
        })?;
        Ok(Log { form, lines, lost: AtomicU64::new(0) })
    }

    /// Says something about the server.
    pub(crate) fn say(&self, message: &str) {
        let line = match self.form {
            LogForm::Json => line(self.form, [("level", json!("info")), ("message", json!(message))]),
            LogForm::Text | LogForm::Off => format!("{message}\n"),
        };
        self.write(line);
    }

    fn write(&self, line: String) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes a line about a request, if there are any.
    pub(crate) fn request(&self, mut members: Vec<(&'static str, Value)>) {
        if self.form == LogForm::Off {
            return;
        }
        let lost = self.lost.swap(0, Ordering::Relaxed);
        members.extend((lost > 0).then_some(("lost_lines", json!(lost))));
        self.write(line(self.form, members));
    }
}

/// A line of members.
fn line(form: LogForm, members: impl IntoIterator<Item = (&'static str, Value)>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let time = [("time", json!(rounded(now)))];
    let all = time.into_iter().chain(members);
    if form == LogForm::Json {
        let all: Map<String, Value> = all.map(|(name, value)| (name.to_owned(), value)).collect();
        return format!("{}\n", Value::Object(all));
    }
    let shown = all.filter(|(name, _)| *name != "level").map(|(name, value)| match value {
        Value::String(text) => format!("{name}={}", text.escape_debug()),
        other => format!("{name}={other}"),
    });
    shown.collect::<Vec<_>>().join(" ") + "\n"
}

/// Seconds with milliseconds.
pub(crate) fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_one_line() {
        let members = || [("path", json!("/a\nb")), ("status", json!(200))];
        let json = line(LogForm::Json, members());
        let document: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&document["path"], &document["status"]), (&json!("/a\nb"), &json!(200)));
        for text in [json, line(LogForm::Text, members())] {
            assert_eq!(text.matches('\n').count(), 1, "{text}");
        }
    }
}
