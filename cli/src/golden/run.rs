//! Running an artifact's golden steps in a child process: generated code cannot take this one down, and each kind of machine gets its turn.

use super::{Computed, Distance, compute, engine_options};
use crate::Error;
use crate::loaded::Model;
use llmcc_ir::target::Family;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

/// What a version of the model computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// The version: its instruction-set level (`llmcc_abi::isa`).
    pub isa: u32,
    /// Name of the machine: `CPU`, or the GPU's.
    pub device: String,
    /// Columns of the logits.
    pub vocab: usize,
    /// Longest sequence.
    pub max_context: usize,
    /// Golden steps.
    pub steps: Vec<Computed>,
    /// Tokens that were computed in one step and one by one, and how far the logits were apart. Not for `compile`.
    pub batching: Option<(usize, Distance)>,
}

/// The answer of a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It computed.
    Ran(Ran),
    /// This machine runs no version of that kind, and why.
    Refused(String),
}

impl Answer {
    /// What was computed.
    ///
    /// # Errors
    /// [`Error::Failed`] with the reason why nothing was.
    pub fn ran(self) -> Result<Ran, Error> {
        match self {
            Answer::Ran(ran) => Ok(ran),
            Answer::Refused(why) => Err(Error::Failed(why)),
        }
    }

    /// Computes in this process: the child's part.
    ///
    /// # Errors
    /// Not an artifact, or it fails.
    pub fn here(path: &Path, seed: u64, threads: u32, batching: bool) -> Result<Answer, Error> {
        let model = match Model::open(path, engine_options(threads)) {
            Err(Error::Machine { message, .. }) => return Ok(Answer::Refused(message)),
            other => other?,
        };
        let info = model.info();
        Ok(Answer::Ran(Ran {
            isa: info.isa,
            device: model.device()?,
            vocab: info.vocab,
            max_context: info.max_context,
            steps: compute(&model, seed)?,
            batching: if batching { Some(together_and_apart(&model)?) } else { None },
        }))
    }
}

/// The same tokens in one step and one by one: their number, and how far the logits are apart.
fn together_and_apart(model: &Model) -> Result<(usize, Distance), Error> {
    let info = model.info();
    let n = 24.min(info.max_context);
    let ids: Vec<i32> = (0..n).map(|i| ((i * 7919 + 13) % info.vocab) as i32).collect();
    let rows: Vec<u32> = (0..n as u32).collect();
    let seq = model.seq_new()?;
    let together = model.step(&ids, &vec![seq; n], &rows)?;
    model.seq_free(seq)?;
    let seq = model.seq_new()?;
    let mut apart = vec![];
    for id in &ids {
        apart.extend(model.step(&[*id], &[seq], &[0])?);
    }
    model.seq_free(seq)?;
    Ok((n, Distance::of(&together, &apart)))
}

/// Runs the golden steps of the artifact at `path` in a child process, on this machine's processor or its GPU: `program` is this command line. `batching`: also whether results depend
/// on what is computed together.
///
/// # Errors
/// [`Error::Failed`] with what the child said or how it ended.
pub fn compute_in_child(program: &Path, path: &Path, seed: u64, on: Family, threads: u32, batching: bool) -> Result<Answer, Error> {
    let output = Command::new(program)
        .arg("golden")
        .arg(path)
        .args([seed.to_string(), threads.to_string()])
        .args(batching.then_some("--batching"))
        .env("LLMCC_DEVICE", if on == Family::Cpu { "cpu" } else { "gpu" })
        .output()
        .map_err(|e| Error::io("run", program, e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Failed(format!("{}: {}", output.status, said.trim().trim_start_matches("error: "))));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| Error::Failed(format!("internal error: golden vectors unreadable: {e}")))
}
