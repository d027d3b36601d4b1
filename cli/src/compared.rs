//! Comparing two artifacts in a process of its own: generated code cannot take the compiler down.

use crate::builtin::SEPARATOR;
use crate::divergence::Divergence;
use crate::golden::inherit;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Tokens that the cache holds, and a window has at most.
const WINDOW: &str = "2048";

/// A comparison of an artifact with a reference.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// This command line.
    pub program: &'a Path,
    /// The artifact that is right.
    pub reference: &'a Path,
    /// The other one.
    pub artifact: &'a Path,
    /// Threads; 0: one per core. Results do not depend on it.
    pub threads: u32,
}

/// The tokens to predict.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Documents, with lines [`SEPARATOR`] between them.
    Text(&'a str),
    /// Sequences of ids.
    Ids(&'a [Vec<i32>]),
}

impl Comparison<'_> {
    /// Runs `llmcc eval kl`.
    ///
    /// # Errors
    /// The message of that command, where an artifact does not run here, or has no tokenizer or no logits.
    pub fn run(&self, input: Input<'_>) -> Result<Divergence, String> {
        let mut command = Command::new(self.program);
        command.args(["eval", "kl"]).args([self.reference, self.artifact]).args(["-", "--portable", "--json"]);
        let text = match input {
            Input::Text(text) => {
                command.args(["--separator", SEPARATOR]);
                text.to_owned()
            }
            Input::Ids(ids) => {
                command.arg("--ids");
                serde_json::to_string(ids).unwrap_or_default()
            }
        };
        command
            .args(["--threads", &self.threads.to_string(), "--cache-tokens", WINDOW])
            .env("LLMCC_DEVICE", "cpu")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        [self.reference, self.artifact].into_iter().for_each(|path| inherit(&mut command, path));
        let failed = |e| format!("{}: {e}", self.program.display());
        let mut child = command.spawn().map_err(failed)?;
        // It may end before it has read everything: its message says why.
        let _ = child.stdin.take().map(|mut pipe| pipe.write_all(text.as_bytes()));
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return serde_json::from_slice(&output.stdout)
                .map_err(|e| format!("internal error: measurements are unreadable: {e}"));
        }
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let message = said["error"]["message"]
            .as_str()
            .map_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned(), str::to_owned);
        Err(format!("{}: {message}", output.status))
    }
}
