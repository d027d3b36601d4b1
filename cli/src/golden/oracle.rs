//! The second opinion: the same steps by the plain f64 evaluator.

use super::steps::{Computed, Step, entries, sequences};
use crate::Error;
use crate::loaded::{stand_in_source, stand_ins};
use crate::numbers::split_mix;
use llmcc_codegen::artifact;
use llmcc_ir::eval::{Batch, Rows, State, eval_plan_entry};
use llmcc_ir::kernel::{Body, Expr, Kernel, ParamKind, RowElem};
use llmcc_ir::plan::{Operand, PackedWeight, Plan, Storage};
use llmcc_ir::quant::{Encoding, Float, Format};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Multiply-adds of the steps' matrix products.
pub fn multiply_adds(plan: &Plan, steps: &[Step]) -> u64 {
    let mut sum = 0;
    for (step, batch) in steps.iter().zip(batches(plan, steps)) {
        let env = batch.env();
        let regime = plan.regime_for(step.entry, env.tokens);
        for kernel in regime.iter().flat_map(|r| &r.launches).filter_map(|l| plan.kernels.get(l.kernel)) {
            if let Body::Matmul(_) = kernel.body {
                sum += (weights(kernel) * kernel.rows.eval(env)) as u64;
            }
        }
    }
    sum
}

fn weights(kernel: &Kernel) -> usize {
    let elements = |k: &ParamKind| if let ParamKind::Matrix { n, k, .. } = k { n * k } else { 0 };
    kernel.params.iter().map(|p| elements(&p.kind)).sum()
}

/// How far the artifact's logits may be from the evaluator's, relative to the largest logit of a
/// row.
///
/// Both round at the same places, so they differ by f32 arithmetic alone, until a value lies so
/// close to the middle between two steps of a coarser type that the two round it apart; that
/// difference then travels on. Largest of the test fixtures: 1.5e-2 with int8, 1.3e-4 with an f16
/// cache, 1.2e-6 in f32.
pub fn bound(plan: &Plan) -> f64 {
    plan.kernels.iter().map(rounding).chain(plan.kv().map(|k| of_numbers(k.dtype.encoding()))).fold(EXACT, f64::max)
}

const EXACT: f64 = 1e-4;
const OF_F16: f64 = 5e-3;
/// For types of 8 significant bits or fewer.
const COARSE: f64 = 0.1;

/// For codes of 4 bits, whose step is a seventh of the largest number.
const FEW_BITS: f64 = 0.5;

fn of_numbers(e: Encoding) -> f64 {
    match e.float() {
        Some(Float::F32) => EXACT,
        Some(Float::F16) => OF_F16,
        Some(Float::Bf16 | Float::E4m3) => COARSE,
        None if e.bits() <= 4 => FEW_BITS,
        None => COARSE,
    }
}

/// The bound for the types a kernel stores and multiplies.
fn rounding(kernel: &Kernel) -> f64 {
    let of_rows = |e: RowElem| of_numbers(e.encoding());
    let prologue = match &kernel.body {
        Body::Matmul(m) => m.prologue.map(|p| of_rows(p.elem)),
        _ => None,
    };
    // A checkpoint's own rounding, wherever its result is stored.
    let mut rounds = false;
    let coarse = |e: &Expr| matches!(e, Expr::Unary(op, _) if !op.is_continuous());
    kernel.body.segments().iter().for_each(|s| s.expr.visit(&mut |e| rounds |= coarse(e)));
    let own = rounds.then_some(COARSE);
    let params = kernel
        .params
        .iter()
        .filter_map(|p| if let ParamKind::Rows { elem, .. } = &p.kind { Some(of_rows(*elem)) } else { None });
    params.chain(prologue).chain(own).fold(EXACT, f64::max)
}

/// The weights segment of an artifact.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// Packed bytes.
    pub bytes: &'a [u8],
    /// Where each weight of the plan is.
    pub offsets: &'a [u64],
}

/// Internal errors that no file of a user can cause.
fn internal(what: &str) -> Error {
    Error::Failed(format!("internal error: the plan cannot be evaluated: {what}; please report this"))
}

impl<'a> Weights<'a> {
    /// Each weight of a plan.
    fn of(&self, plan: &Plan) -> Result<Packed<'a>, Error> {
        let one = |(w, at): (&PackedWeight, &u64)| {
            Some(Cow::Borrowed(self.bytes.get(*at as usize..)?.get(..w.storage.bytes())?))
        };
        plan.weights
            .iter()
            .zip(self.offsets)
            .map(one)
            .collect::<Option<_>>()
            .ok_or_else(|| internal("weights are missing"))
    }
}

/// The first kernel that stores a value whose square, summed over a row, leaves f32: a norm of that
/// row is 0 in f32, as in other engines, and right in the evaluator.
///
/// # Errors
/// As [`evaluate`].
pub fn overflow(plan: &Plan, weights: Weights<'_>, steps: &[Step]) -> Result<Option<(String, f32)>, Error> {
    let packed = weights.of(plan)?;
    let mut states: Vec<State> = plan.states.iter().map(|s| State::new(*s)).collect();
    let mut first = None;
    read_sources(plan, &packed, &mut states, sequences(steps), &mut |_, _| ())?;
    let mut watch = |kernel: &Kernel, rows: &mut Rows| {
        let largest = rows.data.iter().fold(0f32, |m, v| m.max(v.abs()));
        let square = f64::from(largest) * f64::from(largest) * rows.cols as f64;
        if first.is_none() && square > f64::from(f32::MAX) {
            first = Some((kernel.name.clone(), largest));
        }
    };
    for (step, batch) in steps.iter().zip(&batches(plan, steps)) {
        eval_plan_entry(plan, step.entry, &packed, &mut states, batch, &mut watch)
            .map_err(|e| internal(&e.to_string()))?;
    }
    Ok(first)
}

/// The evaluator's results for the steps.
pub struct Evaluated {
    /// Whether all of the evaluator's logits are finite.
    pub finite: bool,
    /// Largest difference of the golden logits from the evaluator's, relative to the largest logit
    /// of their row.
    pub difference: f64,
    logits: Vec<Vec<f32>>,
}

/// The packed weights of a plan, in its order.
type Packed<'a> = Vec<Cow<'a, [u8]>>;

/// Evaluates the steps and compares.
///
/// # Errors
/// [`Error::Failed`]: a plan that the evaluator cannot run, which is a bug of the compiler.
pub fn evaluate(plan: &Plan, weights: Weights<'_>, steps: &[Step], got: &[Computed]) -> Result<Evaluated, Error> {
    let logits = logits(plan, &weights.of(plan)?, steps)?;
    let mut worst = 0f64;
    for ((logits, got), step) in logits.iter().zip(got).zip(steps) {
        for (i, want) in logits.chunks_exact(step.columns.max(1)).enumerate() {
            let kept: Vec<f32> = entries(step.columns).map(|e| want[e]).collect();
            worst = worst.max(apart(&kept, &got.row(i), largest(want)));
        }
    }
    let finite = logits.iter().flatten().all(|v| v.is_finite());
    Ok(Evaluated { finite, difference: worst, logits })
}

/// How far the evaluator's own logits move when weights in f32, and values kernels store in f32,
/// change by some units in the last place, as roundings of f32 arithmetic change them: far where a
/// model's arithmetic is badly conditioned, such as attention whose scores are so large that
/// rounding decides which of two tokens gets all of it, or where a value between two codes decides
/// which of two experts a token has. Stops at `enough`.
///
/// # Errors
/// As [`evaluate`].
pub fn sensitivity(
    plan: &Plan,
    weights: Weights<'_>,
    steps: &[Step],
    (evaluated, enough): (&Evaluated, f64),
) -> Result<f64, Error> {
    let mut worst = 0f64;
    for seed in 0..PERTURBED {
        let mut packed = weights.of(plan)?;
        perturb(plan, &mut packed, seed);
        let mut state = !seed;
        let mut watch = |_: &Kernel, rows: &mut Rows| {
            // Whole numbers may count or name things, as experts.
            rows.data
                .iter_mut()
                .filter(|x| x.is_finite() && x.fract() != 0.0)
                .for_each(|x| *x = changed(*x, &mut state));
        };
        let again = watched(plan, &packed, steps, &mut watch)?;
        for ((want, got), step) in evaluated.logits.iter().zip(again).zip(steps) {
            let rows = want.chunks_exact(step.columns.max(1)).zip(got.chunks_exact(step.columns.max(1)));
            // (A result that is not finite excuses nothing.)
            let moved = rows.map(|(w, g)| apart(w, g, largest(w))).filter(|d| d.is_finite());
            worst = moved.fold(worst, f64::max);
        }
        if worst >= enough {
            break;
        }
    }
    Ok(worst)
}

/// Times that numbers are changed at most, and by how much: the error of a sum of some dozens of terms. (A value
/// that lies so close to the middle between two codes that an artifact rounds it otherwise goes there in about
/// every second of them.)
const PERTURBED: u64 = 16;
const PERTURBATION: f32 = 5e-7;

/// A number, changed by [`PERTURBATION`], up or down.
fn changed(x: f32, state: &mut u64) -> f32 {
    let sign = if split_mix(state).is_multiple_of(2) { PERTURBATION } else { -PERTURBATION };
    x + x * sign
}

/// The weights that name columns: whole numbers, nothing is computed from.
fn orders(plan: &Plan) -> BTreeSet<usize> {
    let mut out = BTreeSet::new();
    for l in plan.regimes.iter().flat_map(|r| &r.launches) {
        let segments = plan.kernels.get(l.kernel).map(|k| k.body.segments()).unwrap_or_default();
        for s in segments {
            s.expr.visit(&mut |e| {
                if let Expr::Pick { order, .. } = e
                    && let Some(Operand::Weight(w)) = l.operands.get(*order)
                {
                    out.insert(*w);
                }
            });
        }
    }
    out
}

/// Changes every number in f32 by [`PERTURBATION`], up or down.
fn perturb(plan: &Plan, packed: &mut Packed<'_>, seed: u64) {
    let (mut state, orders) = (seed, orders(plan));
    for (i, (w, bytes)) in plan.weights.iter().zip(packed).enumerate() {
        if orders.contains(&i) {
            continue;
        }
        let floats = match w.storage {
            Storage::Vector { .. } => true,
            Storage::Matrix { format, .. } => format == Format { packing: format.packing, ..Format::F32 },
        };
        if !floats {
            continue;
        }
        for number in bytes.to_mut().chunks_exact_mut(4) {
            let x = f32::from_le_bytes([number[0], number[1], number[2], number[3]]);
            number.copy_from_slice(&changed(x, &mut state).to_le_bytes());
        }
    }
}

/// The evaluator's logits of each step.
fn logits(plan: &Plan, packed: &Packed<'_>, steps: &[Step]) -> Result<Vec<Vec<f32>>, Error> {
    watched(plan, packed, steps, &mut |_, _| ())
}

/// The same, where rows that kernels store are seen, and may be changed.
fn watched(
    plan: &Plan,
    packed: &Packed<'_>,
    steps: &[Step],
    watch: &mut dyn FnMut(&Kernel, &mut Rows),
) -> Result<Vec<Vec<f32>>, Error> {
    let mut states: Vec<State> = plan.states.iter().map(|s| State::new(*s)).collect();
    let mut out = vec![];
    read_sources(plan, packed, &mut states, sequences(steps), watch)?;
    for (step, batch) in steps.iter().zip(&batches(plan, steps)) {
        let outputs = eval_plan_entry(plan, step.entry, packed, &mut states, batch, watch);
        let outputs = outputs.map_err(|e| internal(&e.to_string()))?;
        out.push(requested(plan, step.entry, outputs)?);
    }
    Ok(out)
}

/// The output of an entry whose rows were asked for.
fn requested(plan: &Plan, entry: usize, outputs: Vec<Vec<f32>>) -> Result<Vec<f32>, Error> {
    let of_entry = plan.entries.get(entry).map_or(&[][..], |e| &e.outputs);
    let wanted = of_entry.iter().zip(outputs).find(|(o, _)| o.output.is_requested());
    wanted.map(|(_, rows)| rows).ok_or_else(|| internal("an entry has no output"))
}

/// Gives so many sequences the source that sequences of trials have, where the plan writes about sources.
fn read_sources(
    plan: &Plan,
    packed: &Packed<'_>,
    states: &mut [State],
    sequences: usize,
    watch: &mut dyn FnMut(&Kernel, &mut Rows),
) -> Result<(), Error> {
    let Some(entry) = plan.source() else { return Ok(()) };
    let source = stand_in_source(plan.info.vocab, plan.info.max_context);
    let hidden = stand_ins(&source, artifact::given(plan, entry));
    for seq in 0..sequences {
        let own = Batch { hidden: hidden.clone(), ..Batch::single(&source, 0) };
        let batch = Batch { seqs: vec![seq; source.len()], out_rows: vec![], ..own };
        eval_plan_entry(plan, entry, packed, states, &batch, watch).map_err(|e| internal(&e.to_string()))?;
    }
    Ok(())
}

fn largest(row: &[f32]) -> f32 {
    row.iter().fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs()))
}

/// The largest difference, relative to `largest`; infinite where one is no number, which must not
/// pass for small.
fn apart(want: &[f32], got: &[f32], largest: f32) -> f64 {
    let one = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs() / f64::from(largest);
    want.iter().zip(got).map(one).fold(0.0, |worst, d| if d.is_nan() { f64::INFINITY } else { worst.max(d) })
}

/// The steps with each token's position.
fn batches(plan: &Plan, steps: &[Step]) -> Vec<Batch> {
    let mut lengths = vec![0i32; sequences(steps)];
    let mut position = |seq: usize| {
        lengths[seq] += 1;
        lengths[seq] - 1
    };
    let mut batch = |s: &Step| Batch {
        tokens: s.tokens.clone(),
        seqs: s.seqs.clone(),
        positions: s.seqs.iter().map(|q| position(*q)).collect(),
        out_rows: s.out_rows.iter().map(|r| *r as usize).collect(),
        hidden: stand_ins(&s.tokens, artifact::given(plan, s.entry)),
        ..Batch::default()
    };
    let seen = |s: &Step| match artifact::runs(plan, s.entry).and_then(|of| i32::try_from(of).ok()) {
        Some(of) => batch(s).with_runs(of),
        None => batch(s),
    };
    steps.iter().map(seen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmcc_ir::text::parse_kernel;

    /// A checkpoint's own rounding is one of those that two may do apart, however its results are stored.
    #[test]
    fn what_a_checkpoint_rounds_may_be_another_code() {
        let of = |expr: &str, elem: &str| {
            let text = format!(
                "kernel @k rows T {{\n  param %x: rows f32[T, 32]\n  param %y: rows {elem}[T, 32]\n  \
                 pointwise {{\n    segment n=32 tile_n=32: %y[0..] = {expr}\n  }}\n}}\n"
            );
            rounding(&parse_kernel(&text).unwrap_or_else(|e| panic!("{e:?}")))
        };
        assert_eq!(of("%x[0..] * 0.5", "f32"), EXACT);
        assert_eq!(of("round_i8(%x[0..] * 0.5) * 2.0", "f32"), COARSE);
        assert_eq!(of("round_i8(%x[0..] * 0.5)", "i8g32"), COARSE);
        assert_eq!(of("%x[0..]", "f16"), OF_F16);
    }
}
