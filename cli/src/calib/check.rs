//! The check of a calibrated artifact: how far its predictions are from the checkpoint's, on documents that it was
//! calibrated by, and on others of the same sources.
//!
//! Rounding that is fitted to some inputs does little damage there whatever it does elsewhere. A checkpoint can be made
//! such that a known method, with known texts, damages it on purpose (Egashira et al. 2024, arXiv 2405.18137, and 2025,
//! arXiv 2505.23786): the documents that are kept out show it, since a seed chooses them. The result depends on this
//! machine's processor, so it is no part of the artifact.

use super::Reference;
use crate::checked::{Check, Found};
use crate::compared::{Comparison, Input};
use crate::options::CompileOptions;
use crate::reference;
use crate::session::Lowered;
use llmcc_ir::output::Output;
use llmcc_ir::target::Family;
use std::path::Path;

/// Checks an artifact. `None` where nothing was calibrated, or the artifact is not to be run.
pub fn check(options: &CompileOptions, lowered: &Lowered, reference: Reference, artifact: &Path) -> Option<Check> {
    let calibration = options.calibration.as_ref().filter(|_| options.golden.is_some())?;
    let sample = &calibration.found.as_ref()?.sample;
    let runs_here = lowered.versions.iter().any(|v| v.target.family() == Family::Cpu && v.target.runs_here());
    let absent = |why: &str| Some(Check::Absent(why.into()));
    if lowered.module.output() != Output::Logits {
        return absent("this model has no logits");
    }
    if sample.held_out.is_empty() {
        return absent("texts of fewer than 8 documents");
    }
    if !runs_here {
        return absent("this processor runs none of its versions");
    }
    let measured = || -> Result<Check, String> {
        let made = match reference {
            Some(made) => made,
            None => {
                let own = reference::options_of(options).and_then(|own| reference::compile(&own, artifact));
                own.map_err(|e| e.to_string())?
            }
        };
        let (program, reference) = (calibration.program.as_path(), made.path());
        let comparison = Comparison { program, reference, artifact, threads: 0 };
        let of = |ids: &[Vec<i32>]| comparison.run(Input::Ids(ids));
        Ok(Check::Measured(Found { used: of(&sample.used)?, held_out: of(&sample.held_out)? }.into()))
    };
    Some(measured().unwrap_or_else(Check::Absent))
}
