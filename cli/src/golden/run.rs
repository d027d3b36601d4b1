//! Running an artifact's golden steps in a child process: generated code cannot take this one down,
//! and each kind of machine gets its turn.

use super::steps::{Computed, Distance, Sizes, compute, engine_options};
use crate::Error;
use crate::loaded::{EngineOptions, Model};
use llmcc_codegen::artifact::isa;
use llmcc_ir::target::{Family, TargetSpec};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The results of a version of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// The version: its instruction-set level (`llmcc_abi::isa`).
    pub isa: u32,
    /// Name of the machine: `CPU`, or the GPU's.
    pub device: String,
    /// The model's sizes.
    pub sizes: Sizes,
    /// Golden steps.
    pub steps: Vec<Computed>,
    /// Whether logits depend on the other tokens of a step. Not for `compile`.
    pub batching: Option<Batching>,
}

/// The same tokens in one step and one by one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batching {
    /// Tokens.
    pub tokens: usize,
    /// How far the logits of the two are apart; on processors, in the portable order of sums.
    pub apart: Distance,
    /// In the processor's own order of sums, where that gives other logits.
    pub own: Option<OwnOrder>,
}

/// A processor's result when it need not give the bits of all others (without
/// `LLMCC_OPEN_PORTABLE`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnOrder {
    /// How far the logits of one step and of single tokens are apart.
    pub apart: Distance,
    /// How far the step's logits are from portable order.
    pub from_portable: Distance,
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
    /// The results.
    ///
    /// # Errors
    /// [`Error::Failed`] with the reason why there are none.
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
        let (device, sizes, steps) = (model.device()?, Sizes::of_model(&model)?, compute(&model, seed)?);
        let batching = if batching { Some(Batching::of(model, path, threads)?) } else { None };
        Ok(Answer::Ran(Ran { isa: info.isa, device, sizes, steps, batching }))
    }
}

impl Batching {
    /// Compares with the artifact at `path`, which is open as `portable`. A processor's version is
    /// opened again, to sum in its own order.
    fn of(portable: Model, path: &Path, threads: u32) -> Result<Batching, Error> {
        let processor = portable.info().isa < llmcc_abi::isa::SM;
        let ours = TwoWays::compute(&portable)?;
        drop(portable);
        let own = match processor {
            true => Some(TwoWays::compute(&Model::open(
                path,
                EngineOptions { portable: false, ..engine_options(threads) },
            )?)?),
            false => None,
        };
        let own = own
            .filter(|own| !own.same_bits(&ours))
            .map(|own| OwnOrder { apart: own.apart(), from_portable: Distance::of(&ours.together, &own.together) });
        Ok(Batching { tokens: ours.tokens, apart: ours.apart(), own })
    }
}

/// Output of the same tokens, `[tokens, columns]`.
struct TwoWays {
    tokens: usize,
    /// Logits of one step.
    together: Vec<f32>,
    /// Logits of a step for each token.
    singly: Vec<f32>,
}

impl TwoWays {
    fn compute(model: &Model) -> Result<TwoWays, Error> {
        let info = model.info();
        let tokens = 24.min(info.max_context);
        let ids: Vec<i32> = (0..tokens).map(|i| ((i * 7919 + 13) % info.vocab) as i32).collect();
        let rows: Vec<u32> = (0..tokens as u32).collect();
        // Where a sequence is computed in one step, there are several of them, each by itself.
        let run = if info.whole { tokens.div_ceil(3) } else { tokens };
        let seqs = |n: usize| (0..n).map(|_| model.trial_seq()).collect::<Result<Vec<i32>, Error>>();
        let free = |seqs: Vec<i32>| seqs.into_iter().try_for_each(|seq| model.seq_free(seq));
        let all = seqs(tokens.div_ceil(run))?;
        let of_tokens: Vec<i32> = (0..tokens).map(|i| all[i / run]).collect();
        let together = model.trial(0, &ids, &of_tokens, &rows)?;
        free(all)?;
        let all = seqs(tokens.div_ceil(run))?;
        let mut singly = vec![];
        let step = if info.whole { run } else { 1 };
        for (i, ids) in ids.chunks(step).enumerate() {
            singly.extend(model.trial(0, ids, &vec![all[i * step / run]; ids.len()], &rows[..ids.len()])?);
        }
        free(all)?;
        Ok(TwoWays { tokens, together, singly })
    }

    fn apart(&self) -> Distance {
        Distance::of(&self.together, &self.singly)
    }

    fn same_bits(&self, other: &TwoWays) -> bool {
        Distance::of(&self.together, &other.together).same_bits && Distance::of(&self.singly, &other.singly).same_bits
    }
}

/// The value of `LLMCC_DEVICE` that selects the version for a target on a machine that runs
/// several.
pub fn device_of(target: &TargetSpec) -> &'static str {
    match target.family() {
        Family::Cpu => {
            llmcc_abi::isa::CPU_NAMES.iter().find(|(level, _)| *level == isa(target)).map_or("cpu", |(_, name)| *name)
        }
        Family::Nvidia => "gpu",
    }
}

/// The variable of the environment that chooses among an artifact's versions.
const DEVICE: &str = "LLMCC_DEVICE";

/// Leaves the child the descriptor by which an artifact without a name can be opened.
pub fn inherit(command: &mut Command, path: &Path) {
    let number = path.to_str().and_then(|p| p.strip_prefix("/proc/self/fd/")).and_then(|n| n.parse::<i32>().ok());
    let Some(descriptor) = number else { return };
    // SAFETY: between `fork` and `exec` only a system call is made.
    unsafe {
        command.pre_exec(move || match libc::fcntl(descriptor, libc::F_SETFD, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        })
    };
}

fn in_this_process(path: &Path, seed: u64, device: &str, threads: u32, batching: bool) -> Result<Answer, Error> {
    let before = std::env::var_os(DEVICE);
    // SAFETY: the other threads of this process, if there are any, pack weights or wait, and do not read
    // the environment.
    unsafe { std::env::set_var(DEVICE, device) };
    let answer = Answer::here(path, seed, threads, batching);
    // SAFETY: as above.
    unsafe {
        match before {
            Some(device) => std::env::set_var(DEVICE, device),
            None => std::env::remove_var(DEVICE),
        }
    }
    answer
}

/// Runs the golden steps of the artifact at `path` in a child process, on the device that
/// `LLMCC_DEVICE` calls so: `program` is this command line. `batching`: also whether results depend
/// on the other tokens of a step. Where the system has no further process, in this one.
///
/// # Errors
/// [`Error::Failed`] with the child's message or its end.
pub fn compute_in_child(
    program: &Path,
    path: &Path,
    seed: u64,
    device: &str,
    threads: u32,
    batching: bool,
) -> Result<Answer, Error> {
    let mut command = Command::new(program);
    command
        .arg("golden")
        .arg(path)
        .args([seed.to_string(), threads.to_string()])
        .args(batching.then_some("--batching"))
        .env(DEVICE, device);
    inherit(&mut command, path);
    let output = match command.output() {
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory) => {
            return in_this_process(path, seed, device, threads, batching);
        }
        other => other.map_err(|e| Error::io("run", program, e))?,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Failed(format!("{}: {}", output.status, said.trim().trim_start_matches("error: "))));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| Error::Failed(format!("internal error: golden vectors unreadable: {e}")))
}
