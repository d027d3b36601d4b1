//! Calibration: statistics of the inputs of a model's products, by which rounding errors are weighed.
//!
//! The checkpoint is compiled in its own types with the entry `tap`, for this machine, to a file that has no name when
//! it is used; a child process runs texts through it (`llmcc tap`) and writes moments, which methods read while weights
//! are packed. Moments are the same on every processor and for any threads, so artifacts are, too.

mod check;
mod texts;

pub use check::check;
pub use texts::{Chosen, Tokenize, choose, first_tokens};

use crate::error::Error;
use crate::golden::inherit;
use crate::options::{Calibration, CompileOptions, TextSource};
use crate::reference;
use crate::session::Unnamed;
use crate::statistics::{self, Statistics};
use llmcc_frontends::Checkpoint;
use llmcc_passes::method::Needs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The checkpoint in its own types, where it was compiled.
pub type Reference = Option<Unnamed>;

/// The same options with the statistics that they ask for: of a file, or made now.
///
/// # Errors
/// Texts that cannot be read; a checkpoint that cannot be run here; a file of another checkpoint.
pub fn collected(options: &CompileOptions) -> Result<(CompileOptions, Reference), Error> {
    let (mut out, mut reference) = (options.clone(), None);
    if let Some(calibration) = out.calibration.as_mut().filter(|c| c.found.is_none()) {
        let checkpoint = options.with_draft(Checkpoint::open_with(&options.checkpoint, &options.adapters)?)?;
        let found;
        (found, reference) = collect(options, calibration, &checkpoint)?;
        calibration.found = Some(Arc::new(found));
    }
    Ok((out, reference))
}

fn collect(
    options: &CompileOptions,
    calibration: &Calibration,
    checkpoint: &Checkpoint,
) -> Result<(Statistics, Reference), Error> {
    let full = options.needs() == Needs::Products;
    if let [TextSource { path: Some(path), .. }] = &calibration.sources[..]
        && statistics::is_one(path)
    {
        let found = Statistics::open(path)?;
        found.check(path, checkpoint, options.method, options.pruning)?;
        return Ok((found, None));
    }
    calibration.sources.iter().try_for_each(texts::check)?;
    let beside = |ending: &str| {
        let folder = calibration.save.as_ref().and_then(|p| p.parent()).filter(|p| !p.as_os_str().is_empty());
        let folder = folder.map_or_else(std::env::temp_dir, Path::to_owned);
        folder.join(format!(".llmcc-{}.{ending}", std::process::id()))
    };
    let own = CompileOptions { tap: true, embed: options.embed, ..reference::options_of(options)? };
    let artifact = reference::compile(&own, &beside("so"))?;
    let kept = calibration.save.is_some();
    let moments = calibration.save.clone().unwrap_or_else(|| beside("moments"));
    tap(artifact.path(), calibration, full, &moments)?;
    let found = Statistics::open(&moments);
    // (What is mapped stays readable.)
    if !kept {
        std::fs::remove_file(&moments).map_err(|e| Error::io("remove", &moments, e))?;
    }
    Ok((found?, Some(artifact)))
}

/// The median and the largest difference of mean squares, by product: √(Σ(a − b)² / Σa²) over its columns.
pub fn drift(own: &[Vec<f64>], other: &[Vec<f64>]) -> Option<[f64; 2]> {
    let of_product = |(a, b): (&Vec<f64>, &Vec<f64>)| {
        let signal: f64 = a.iter().map(|a| a * a).sum();
        let apart: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
        (signal > 0.0).then(|| (apart / signal).sqrt())
    };
    let mut all: Vec<f64> = own.iter().zip(other).filter_map(of_product).collect();
    all.sort_by(f64::total_cmp);
    Some([*all.get(all.len() / 2)?, *all.last()?])
}

/// Runs the texts through an artifact, in a process of its own.
fn tap(artifact: &Path, calibration: &Calibration, full: bool, out: &Path) -> Result<(), Error> {
    let mut child = Command::new(&calibration.program);
    child.arg("tap").arg(artifact).args(["--once", "--portable", "--output"]).arg(out);
    for source in &calibration.sources {
        child.arg("--calib").arg(source.option());
    }
    child.args(["--calib-tokens", &calibration.tokens.to_string(), "--calib-seed", &calibration.seed.to_string()]);
    if full {
        child.arg("--full");
    }
    inherit(&mut child, artifact);
    let done = child.stdout(Stdio::null()).stdin(Stdio::null()).status();
    match done.map_err(|e| Error::io("start", "llmcc tap", e))? {
        status if status.success() => Ok(()),
        status => Err(Error::Failed(format!("--calib: the model could not be run on the texts ({status})"))),
    }
}
