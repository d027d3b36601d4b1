//! How exact the weights of an artifact are: its error, and what a budget for it led to.

use crate::session::{CompileOptions, Lowered};
use llmcc_ir::kernel::Body;
use llmcc_ir::plan::{Operand, Plan, Storage};
use llmcc_passes::pack::PackReport;
use serde_json::{Value, json};

/// √(Σ nᵢ·eᵢ² / Σ nᵢ) over the matrices that products read, `n` being their elements and `e` the relative error that packing measured.
pub fn rms_error(plan: &Plan, packed: &PackReport) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for (i, (w, read)) in plan.weights.iter().zip(multiplied(plan)).enumerate() {
        let Storage::Matrix { n, k, .. } = w.storage else { continue };
        if !read {
            continue;
        }
        let e = packed.tensors.get(i).and_then(|t| t.error).map_or(0.0, |e| e.relative_rms);
        sum += (n * k) as f64 * e * e;
        count += (n * k) as f64;
    }
    if count > 0.0 { (sum / count).sqrt() } else { 0.0 }
}

/// For each weight of a plan whether a product reads it.
fn multiplied(plan: &Plan) -> Vec<bool> {
    let mut read = vec![false; plan.weights.len()];
    for l in plan.regimes.iter().flat_map(|r| &r.launches) {
        if !matches!(plan.kernels[l.kernel].body, Body::Matmul(_)) {
            continue;
        }
        for o in &l.operands {
            if let Operand::Weight(w) = o {
                read[*w] = true;
            }
        }
    }
    read
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
        "stored": l.compiled.stored.iter().map(|s| json!({ "what": s.subject, "as": s.form, "relative_rms_error": s.error })).collect::<Vec<_>>(),
    })
}

/// A line about the budget, for people; `None` where there was none.
pub fn describe(options: &CompileOptions, l: &Lowered, packed: &PackReport) -> Option<String> {
    let budget = options.choose.error_budget?;
    let used = rms_error(&l.compiled.plan, packed);
    // The choice is made on a sample of each large matrix.
    let over = if used > budget { "; more than the budget: the sample it was chosen on was more exact than the whole" } else { "" };
    Some(format!("RMS error {:.3} % of a budget of {:.3} %{over}", used * 100.0, budget * 100.0))
}
