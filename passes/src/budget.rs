//! Keeping an error budget for the stored weights, not for samples of them.
//!
//! A choice is made by samples. Packing measures every tensor whole, so whoever packs knows whether
//! the budget is kept; where it is not, [`compile_exactly`] chooses again with the errors found.
//! Each round knows the exact error of at least one more form of a weight, and there are finitely
//! many.

use crate::measure::{Measured, measure_whole};
use crate::pack::WeightSource;
use crate::pipeline::{self, Known};
use crate::{Compiled, Options, PassError, Stored};
use llmcc_ir::graph::Module;
use llmcc_ir::kernel::Body;
use llmcc_ir::plan::{Operand, PackedWeight, Plan, Storage};

/// √(Σ nᵢ·eᵢ² / Σ nᵢ) over the matrices that products read, `n` being their elements and `e` the
/// relative error of weight `i` of the plan.
pub fn rms_error(plan: &Plan, error: &dyn Fn(usize) -> f64) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for (i, (w, read)) in plan.weights.iter().zip(multiplied(plan)).enumerate() {
        let Storage::Matrix { n, k, .. } = w.storage else { continue };
        if !read {
            continue;
        }
        let e = error(i);
        sum += (n * k) as f64 * e * e;
        count += (n * k) as f64;
    }
    if count > 0.0 { (sum / count).sqrt() } else { 0.0 }
}

/// Whether a plan keeps to a budget: its matrices together, and each table that is only looked up
/// by itself.
pub fn keeps(plan: &Plan, budget: f64, error: &dyn Fn(usize) -> f64) -> bool {
    let tables = multiplied(plan).into_iter().enumerate().filter(|(_, read)| !read).map(|(i, _)| error(i));
    tables.fold(rms_error(plan, error), f64::max) <= budget
}

/// For each weight of a plan whether a product reads it.
fn multiplied(plan: &Plan) -> Vec<bool> {
    let mut read = vec![false; plan.weights.len()];
    for l in plan.regimes.iter().flat_map(|r| &r.launches) {
        if !matches!(plan.kernels[l.kernel].body, Body::Matmul(_) | Body::ExpertMatmul(_)) {
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

/// Compiles a module such that the budget is kept by the errors of whole weights. `whole` has those
/// known before, and gets those measured.
///
/// # Errors
/// As [`crate::compile_measured`].
pub fn compile_exactly(
    module: &Module,
    opts: &Options,
    source: &dyn WeightSource,
    whole: &mut Measured,
) -> Result<Compiled, PassError> {
    loop {
        let mut compiled = pipeline::run(module, opts, Some(Known { source, whole }))?;
        let mut news = false;
        for w in &compiled.plan.weights {
            news |= learn(w, (module, opts), source, whole)?;
        }
        let plan = &compiled.plan;
        let error = |i: usize| known(whole, &plan.weights[i]).unwrap_or(0.0);
        if news && opts.error_budget.is_some_and(|most| !keeps(plan, most, &error)) {
            continue;
        }
        // A measured error is no longer a prediction.
        let total = rms_error(plan, &error);
        for s in &mut compiled.stored {
            s.error = error_of(s, plan, &error).unwrap_or(s.error);
        }
        compiled.error = compiled.error.map(|_| total);
        return Ok(compiled);
    }
}

/// The error of a decision's weights: root mean square over those weights of the plan. `None` for a
/// cache.
pub fn error_of(stored: &Stored, plan: &Plan, error: &dyn Fn(usize) -> f64) -> Option<f64> {
    let ours = |w: &PackedWeight| matches!(w.storage, Storage::Matrix { .. }) && stored.weights.contains(&w.expr);
    let squares: Vec<f64> =
        plan.weights.iter().enumerate().filter(|(_, w)| ours(w)).map(|(i, _)| error(i).powi(2)).collect();
    (!squares.is_empty()).then(|| (squares.iter().sum::<f64>() / squares.len() as f64).sqrt())
}

/// Measures a weight as it is stored, if it is a matrix whose error is not known; whether that was
/// so. A format that does not hold all of its values, where others may, has an infinite error.
fn learn(
    w: &PackedWeight,
    (module, opts): (&Module, &Options),
    source: &dyn WeightSource,
    whole: &mut Measured,
) -> Result<bool, PassError> {
    let Storage::Matrix { format, .. } = w.storage else { return Ok(false) };
    if known(whole, w).is_some() {
        return Ok(false);
    }
    let error = match measure_whole(&w.expr, format, module, source) {
        Err(e) if e.too_large() && opts.formats.len() > 1 => f64::INFINITY,
        found => found.map_err(|e| PassError::Weights(e.to_string()))?,
    };
    whole.entry(w.expr.clone()).or_default().insert(format, error);
    Ok(true)
}

fn known(whole: &Measured, w: &PackedWeight) -> Option<f64> {
    let Storage::Matrix { format, .. } = w.storage else { return None };
    whole.get(&w.expr)?.get(&format).copied()
}
