//! Calibration: statistics of the inputs of a model's products, by which rounding errors are weighed.
//!
//! The checkpoint is compiled in its own types with the entry `tap`, for this machine, to a file that has no name when
//! it is used; a child process runs texts through it (`llmcc tap`) and writes moments, which methods read while weights
//! are packed. Moments are the same on every processor and for any threads, so artifacts are, too.

mod statistics;
mod texts;

pub use statistics::Statistics;
pub use texts::{Chosen, TextSource, choose};

use crate::error::Error;
use crate::golden::inherit;
use crate::options::{Calibration, CompileOptions};
use crate::reference;
use llmcc_frontends::Checkpoint;
use llmcc_passes::method::Needs;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Chooses documents, and their order.
pub const SEED: u64 = 39;

/// The notes of a file of moments, and of a manifest, about the texts of calibration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Chose the documents.
    pub seed: u64,
    /// Tokens.
    pub tokens: usize,
    /// Sequences that they were cut into.
    pub sequences: usize,
    /// Tokens of documents that were kept out, to compare with.
    pub held_out_tokens: usize,
    /// The median and the largest difference of a product's mean squares on these: √(Σ(a − b)² / Σa²) over its columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<[f64; 2]>,
    /// By source.
    pub texts: Vec<TextRecord>,
}

/// A source of texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextRecord {
    /// `builtin`, or the name of the file or folder, without its path.
    pub name: String,
    /// Its share, beside those of the others.
    pub weight: f64,
    /// SHA-256 of the documents used, in their order.
    pub sha256: String,
    /// Documents used.
    pub documents: usize,
    /// Tokens used.
    pub tokens: usize,
}

/// The statistics that a compilation reads: those that are at hand, of a file, or made.
///
/// # Errors
/// Texts that cannot be read; a checkpoint that cannot be run here; a file of another checkpoint.
pub fn statistics(options: &CompileOptions, checkpoint: &Checkpoint) -> Result<Option<Arc<Statistics>>, Error> {
    let Some(calibration) = &options.calibration else { return Ok(None) };
    match &calibration.found {
        Some(found) => Ok(Some(Arc::clone(found))),
        None => collect(options, calibration, checkpoint).map(Arc::new).map(Some),
    }
}

/// Options of compilations that share their statistics, which are made now.
///
/// # Errors
/// As [`statistics`].
pub fn shared(options: &CompileOptions) -> Result<CompileOptions, Error> {
    let mut out = options.clone();
    if let Some(calibration) = &mut out.calibration {
        let checkpoint = Checkpoint::open_with(&options.checkpoint, &options.adapters)?;
        calibration.found = statistics(options, &checkpoint)?;
    }
    Ok(out)
}

fn collect(options: &CompileOptions, calibration: &Calibration, checkpoint: &Checkpoint) -> Result<Statistics, Error> {
    let full = options.method.needs == Needs::Products;
    if let [TextSource { path: Some(path), .. }] = &calibration.sources[..]
        && statistics::is_one(path)
    {
        let found = Statistics::open(path)?;
        found.check(path, checkpoint, full)?;
        return Ok(found);
    }
    calibration.sources.iter().try_for_each(TextSource::check)?;
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
    found
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
    child.args(["--calib-tokens", &calibration.tokens.to_string()]);
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
