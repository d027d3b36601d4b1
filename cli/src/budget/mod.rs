//! `compile --budget`: forms of weights by measured damage, until the bounds hold for the whole artifact.
//!
//! 1. The checkpoint is compiled in its own types: the reference.
//! 2. Each group of matrices is rounded by itself, and the divergence measured (`sensitivity.rs`).
//! 3. The exact program of the passes takes the fastest forms whose predicted damages add up to the bound.
//! 4. The whole artifact is measured. Where it breaks a bound, or leaves much of it, the prediction is scaled by the
//!    measurement and the choice made again, a few times.
//! 5. The last choice is measured on text that was kept aside. That is its certificate.
//!
//! Trials are files without names, and are measured in processes of their own. Nothing depends on time or threads.

mod certify;
pub mod frontier;
mod measure;
mod search;
mod sensitivity;
pub mod texts;
mod trials;

pub use certify::Chosen;
pub use measure::{Meter, Part};
pub use search::value;
pub use texts::Text;
pub use trials::Job;

use crate::options::CompileOptions;
use crate::{Error, reference};
use llmcc_codegen::link::WeightsPlace;
use llmcc_ir::target::{Family, TargetSpec};
use trials::Trials;

/// Chooses forms such that the bounds hold.
///
/// # Errors
/// No target that this machine's processor runs; a text that is too short; bounds that cannot be kept, with how close
/// the compiler came; errors of the checkpoint.
pub fn choose(job: &Job<'_>) -> Result<Chosen, Error> {
    let target = measured_target(job.options)?;
    (job.say)("budget: compiling the reference");
    let reference = reference::compile(&reference::options_of(job.options)?, job.out)?;
    let meter = Meter { program: job.program, reference: reference.path(), threads: 0 };
    let mut trials = Trials::start(job, meter, target)?;
    search::check_resources(&mut trials)?;
    trials.measure_groups()?;
    let found = search::search(&mut trials)?;
    certify::certify(trials, found, target)
}

/// The target whose version this machine's processor takes.
fn measured_target(options: &CompileOptions) -> Result<&'static TargetSpec, Error> {
    if options.place == WeightsPlace::Absent {
        return Err(Error::Usage(
            "--budget measures the artifact, which --weights absent leaves without weights".into(),
        ));
    }
    let here = options.targets.iter().copied().filter(|t| t.family() == Family::Cpu && t.runs_here());
    here.max_by_key(|t| t.cpu()).ok_or_else(|| {
        let names: Vec<&str> = options.targets.iter().map(|t| t.name).collect();
        Error::Usage(format!(
            "--budget measures the artifact on this machine's processor, which runs none of its versions ({}): add one \
             (--target {},native)",
            names.join(", "),
            names.join(",")
        ))
    })
}
