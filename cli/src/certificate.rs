//! How exact the weights of an artifact are: its error, its budget, and the choices made within it.

use crate::lowered::{Lowered, Version};
use crate::options::CompileOptions;
use crate::shared::SharedWeights;
use llmcc_ir::plan::{Plan, Storage};
use llmcc_passes::Stored;
use llmcc_passes::measure::Measured;
use llmcc_passes::pack::{PackReport, TensorReport};
use serde::{Deserialize, Serialize};

/// An error budget and its use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// The budget; `None` where only the cache was to be chosen.
    pub error_budget: Option<f64>,
    /// Used of it, by samples.
    pub predicted_rms_error: Option<f64>,
    /// Used of it; `None` where nothing was packed.
    pub rms_error: Option<f64>,
    /// The choices.
    pub stored: Vec<StoredAs>,
}

/// A choice of a stored form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredAs {
    /// Function and parameter.
    pub what: String,
    /// Format or cache type.
    #[serde(rename = "as")]
    pub form: String,
    /// Its error.
    pub relative_rms_error: f64,
}

/// √(Σ nᵢ·eᵢ² / Σ nᵢ) over the matrices that products read, `n` being their elements and `e` the
/// relative error that packing measured.
pub fn rms_error(plan: &Plan, packed: &PackReport) -> f64 {
    llmcc_passes::budget::rms_error(plan, &|i| error(packed, i).unwrap_or(0.0))
}

/// [`rms_error`], where anything was packed.
pub fn measured_error(plan: &Plan, packed: &PackReport) -> Option<f64> {
    (!packed.tensors.is_empty()).then(|| rms_error(plan, packed))
}

/// The relative error of weight `i`, where packing was not exact.
fn error(packed: &PackReport, i: usize) -> Option<f64> {
    packed.tensors.get(i)?.error.map(|e| e.relative_rms)
}

/// The errors of all that was packed, if any version breaks the budget by them.
pub fn excess(
    l: &Lowered,
    options: &CompileOptions,
    shared: &SharedWeights,
    reports: &[PackReport],
) -> Option<Measured> {
    let budget = options.choose.error_budget?;
    let errors = shared.errors(reports);
    // Sums in another order differ by rounding.
    let keeps = |(v, errors): (&Version, &Vec<f64>)| {
        llmcc_passes::budget::keeps(&v.compiled.plan, budget * (1.0 + 1e-9), &|i| errors[i])
    };
    if reports.iter().all(|r| r.tensors.is_empty()) || l.versions.iter().zip(&errors).all(keeps) {
        return None;
    }
    let mut whole = Measured::new();
    for (list, report) in shared.lists.iter().zip(reports) {
        for (i, w) in list.weights.iter().enumerate() {
            if let Storage::Matrix { format, .. } = w.storage {
                whole.entry(w.expr.clone()).or_default().insert(format, error(report, i).unwrap_or(0.0));
            }
        }
    }
    Some(whole)
}

/// The tensors with the largest errors, for a message.
pub fn largest(reports: &[PackReport]) -> String {
    let of = |t: &TensorReport| Some((t.error?.relative_rms, t.name.clone()));
    let mut all: Vec<(f64, String)> = reports.iter().flat_map(|r| &r.tensors).filter_map(of).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.iter().take(3).map(|(e, name)| format!("{name} {:.2} %", e * 100.0)).collect::<Vec<_>>().join(", ")
}

/// The budget, the share a version uses, and the choices; `None` where there was no choice.
pub fn budget(v: &Version, options: &CompileOptions, packed: &PackReport) -> Option<Budget> {
    if v.compiled.stored.is_empty() {
        return None;
    }
    let stored = |s: &Stored| StoredAs {
        what: s.subject.clone(),
        form: s.form.clone(),
        relative_rms_error: stored_error(v, s, packed),
    };
    Some(Budget {
        error_budget: options.choose.error_budget,
        predicted_rms_error: v.compiled.error,
        rms_error: measured_error(&v.compiled.plan, packed),
        stored: v.compiled.stored.iter().map(stored).collect(),
    })
}

/// The error of a decision's subject as packed; the error on which it was decided where nothing was
/// packed, or a cache.
fn stored_error(v: &Version, stored: &Stored, packed: &PackReport) -> f64 {
    let of_packed = || llmcc_passes::budget::error_of(stored, &v.compiled.plan, &|i| error(packed, i).unwrap_or(0.0));
    (!packed.tensors.is_empty()).then(of_packed).flatten().unwrap_or(stored.error)
}

/// A line about the budget, for people; `None` where there was none.
pub fn describe(options: &CompileOptions, v: &Version, packed: &PackReport) -> Option<String> {
    let budget = options.choose.error_budget?;
    let (used, by) = match (measured_error(&v.compiled.plan, packed), v.compiled.error) {
        (Some(used), _) => (used, ""),
        (None, Some(predicted)) => (predicted, " by samples, no weights being packed,"),
        (None, None) => return None,
    };
    Some(format!("RMS error {:.3} %{by} of a budget of {:.3} %", used * 100.0, budget * 100.0))
}
