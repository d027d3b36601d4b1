//! Measuring an artifact in a process of its own: generated code cannot take the compiler down.

use super::texts::{Text, hash, joined};
use crate::Error;
use crate::builtin::SEPARATOR;
use crate::divergence::Divergence;
use crate::golden::inherit;
use crate::measured::Domain;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Tokens that the cache holds, and a window has at most.
const WINDOW: &str = "2048";

/// Measures artifacts against a reference.
pub struct Meter<'a> {
    /// This command line.
    pub program: &'a Path,
    /// The reference.
    pub reference: &'a Path,
    /// Threads; 0: one per core. Measurements do not depend on it.
    pub threads: u32,
}

/// Which part of the texts is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Some documents of the part that the choice is made by.
    Trial,
    /// The part that the choice is made by.
    Choice,
    /// The part that is kept aside.
    Kept,
}

impl Meter<'_> {
    /// Measures an artifact on each text.
    ///
    /// # Errors
    /// The artifact does not run here, has no tokenizer or no logits.
    pub fn domains(&self, artifact: &Path, texts: &[Text], part: Part) -> Result<Vec<Domain>, Error> {
        texts.iter().map(|text| self.domain(artifact, text, part)).collect()
    }

    fn domain(&self, artifact: &Path, text: &Text, part: Part) -> Result<Domain, Error> {
        let documents = match part {
            Part::Trial => text.trial(),
            Part::Choice => text.choice.clone(),
            Part::Kept => text.kept.clone(),
        };
        let joined = joined(&documents);
        let found = self.compare(artifact, &joined)?;
        Ok(Domain { name: text.name.clone(), sha256: hash(&documents), bytes: joined.len(), found })
    }

    /// Runs `llmcc eval kl` on a text.
    fn compare(&self, artifact: &Path, text: &str) -> Result<Divergence, Error> {
        let mut command = Command::new(self.program);
        command
            .args(["eval", "kl"])
            .args([self.reference, artifact])
            .args(["-", "--separator", SEPARATOR, "--portable", "--json"])
            .args(["--threads", &self.threads.to_string(), "--cache-tokens", WINDOW])
            .env("LLMCC_DEVICE", "cpu")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        [self.reference, artifact].into_iter().for_each(|path| inherit(&mut command, path));
        let failed = |e| Error::io("run", self.program, e);
        let mut child = command.spawn().map_err(failed)?;
        // It may end before it has read everything: its message says why.
        let _ = child.stdin.take().map(|mut pipe| pipe.write_all(text.as_bytes()));
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return serde_json::from_slice(&output.stdout)
                .map_err(|e| Error::Failed(format!("internal error: measurements are unreadable: {e}")));
        }
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let message = said["error"]["message"]
            .as_str()
            .map_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned(), str::to_owned);
        Err(Error::Failed(format!(
            "--budget: the artifact cannot be measured, so nothing was written ({}: {message})",
            output.status
        )))
    }
}
