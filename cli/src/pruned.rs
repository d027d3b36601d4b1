//! Weights that became zero: how many, and the error that this and rounding make.

use crate::Error;
use crate::options::CompileOptions;
use llmcc_ir::plan::{PackedWeight, Plan, Storage};
use llmcc_ir::quant::FORMATS;
use llmcc_passes::method::has_zero;
use llmcc_passes::pack::{PackReport, TensorReport};
use serde::{Deserialize, Serialize};

/// How weights were pruned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pruned {
    /// The choice of the weights, by the name of the option.
    pub by: String,
    /// The part of a row that was asked for: `50%`, `2:4`.
    pub sparsity: String,
}

/// Zeros among the weights of the matrices that were pruned, as they are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Zeros {
    /// Matrices.
    pub matrices: usize,
    /// Their weights.
    pub weights: usize,
    /// Share of these that are zero, pruned or rounded to it.
    pub share: f64,
    /// √(Σ nᵢ·eᵢ² / Σ nᵢ) over these matrices, `n` being their weights and `e` their relative root mean square error.
    pub rms_error: f64,
}

/// How weights were pruned, if they were.
pub fn options(options: &CompileOptions) -> Option<Pruned> {
    let pruning = options.pruning?;
    Some(Pruned { by: pruning.pruner.name.into(), sparsity: pruning.sparsity.to_string() })
}

/// The zeros of matrices that were pruned; `None` where none was.
pub fn zeros(plan: &Plan, packed: &PackReport) -> Option<Zeros> {
    let (mut out, mut zeros, mut squares) = (Zeros::default(), 0.0, 0.0);
    let all = plan.weights.iter().zip(&packed.tensors);
    let pruned = |(w, t): (&PackedWeight, &TensorReport)| match w.storage {
        Storage::Matrix { n, k, .. } => Some((n * k, t.zeros?, t.error?.relative_rms)),
        Storage::Vector { .. } => None,
    };
    for (count, share, error) in all.filter_map(pruned) {
        out.matrices += 1;
        out.weights += count;
        zeros += share * count as f64;
        squares += error * error * count as f64;
    }
    let weights = out.weights as f64;
    (out.matrices > 0).then(|| Zeros { share: zeros / weights, rms_error: (squares / weights).sqrt(), ..out })
}

impl Zeros {
    /// The zeros in words.
    pub fn line(&self, pruned: &Pruned) -> String {
        format!(
            "{:.2} % of {:.1} M weights of {} matrices of the layers are zero ({} by {}), RMS error {:.2} %",
            self.share * 100.0,
            self.weights as f64 / 1e6,
            self.matrices,
            pruned.sparsity,
            pruned.by,
            self.rms_error * 100.0
        )
    }
}

/// Refuses to prune weights that are not rounded to codes of one format with a code of zero.
///
/// # Errors
/// [`Error::Usage`] with the formats that have one.
pub fn check(options: &CompileOptions) -> Result<(), Error> {
    let Some(pruning) = options.pruning else { return Ok(()) };
    let name = pruning.pruner.name;
    match options.weights {
        Some(format) if format.dense() != format && !pruning.sparsity.leaves_pairs() => Err(Error::Usage(format!(
            "--prune {name}: {format} stores two of each four columns: give --sparsity 2:4, or --w4 for {}",
            pruning.sparsity
        ))),
        Some(format) if has_zero(&format.encoding()) => Ok(()),
        Some(format) if format.is_quantized() => {
            let names = FORMATS.iter().filter(|d| has_zero(&d.encoding)).map(|d| d.name);
            Err(Error::Usage(format!(
                "--prune {name}: {format} has no code of zero: give --w4, --w8, --fp8, or --format with one of {}",
                names.collect::<Vec<_>>().join(", ")
            )))
        }
        Some(_) | None => Err(Error::Usage(format!(
            "--prune {name} is for weights that are rounded to codes: give --w4, --w8, --fp8 or --format, too"
        ))),
    }
}
