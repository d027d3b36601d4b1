//! How exact the weights of an artifact are: its error, and what a budget for it led to.

use crate::session::{CompileOptions, Lowered, VersionRef};
use crate::versions::SharedWeights;
use llmcc_ir::plan::{Plan, Storage};
use llmcc_passes::Stored;
use llmcc_passes::measure::Measured;
use llmcc_passes::pack::{PackReport, TensorReport};
use serde_json::{Value, json};

/// √(Σ nᵢ·eᵢ² / Σ nᵢ) over the matrices that products read, `n` being their elements and `e` the relative error that packing measured.
pub fn rms_error(plan: &Plan, packed: &PackReport) -> f64 {
    llmcc_passes::budget::rms_error(plan, &|i| error(packed, i).unwrap_or(0.0))
}

/// The relative error of weight `i`, where packing was not exact.
fn error(packed: &PackReport, i: usize) -> Option<f64> {
    packed.tensors.get(i)?.error.map(|e| e.relative_rms)
}

/// The errors of all that was packed, if any version breaks the budget by them.
pub fn excess(l: &Lowered, options: &CompileOptions, shared: &SharedWeights, reports: &[PackReport]) -> Option<Measured> {
    let budget = options.choose.error_budget?;
    let (versions, errors) = (l.versions(options), shared.errors(reports));
    // Sums in another order differ by rounding.
    let keeps =
        |(v, errors): (&VersionRef<'_>, &Vec<f64>)| llmcc_passes::budget::keeps(&v.compiled.plan, budget * (1.0 + 1e-9), &|i| errors[i]);
    if reports.iter().all(|r| r.tensors.is_empty()) || versions.iter().zip(&errors).all(keeps) {
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

/// The budget, what of it was used, and what was chosen; null where nothing was to be chosen.
pub fn budget(l: &Lowered, options: &CompileOptions, packed: &PackReport) -> Value {
    if l.compiled.stored.is_empty() {
        return Value::Null;
    }
    json!({
        "error_budget": options.choose.error_budget,
        "predicted_rms_error": l.compiled.error,
        "rms_error": rms_error(&l.compiled.plan, packed),
        "stored": l.compiled.stored.iter().map(|s| json!({ "what": s.subject, "as": s.form, "relative_rms_error": stored_error(l, s, packed) })).collect::<Vec<_>>(),
    })
}

/// The error of what a decision was about, as packed; that by which it was decided where nothing was packed, or a cache.
fn stored_error(l: &Lowered, stored: &Stored, packed: &PackReport) -> f64 {
    let of_packed = || llmcc_passes::budget::error_of(stored, &l.compiled.plan, &|i| error(packed, i).unwrap_or(0.0));
    (!packed.tensors.is_empty()).then(of_packed).flatten().unwrap_or(stored.error)
}

/// A line about the budget, for people; `None` where there was none.
pub fn describe(options: &CompileOptions, l: &Lowered, packed: &PackReport) -> Option<String> {
    let budget = options.choose.error_budget?;
    let used = rms_error(&l.compiled.plan, packed);
    Some(format!("RMS error {:.3} % of a budget of {:.3} %", used * 100.0, budget * 100.0))
}
