//! Values that are not finite and that packing would hide: in rows that no packed weight has, and
//! where a function makes them finite again (`exp(-inf)`, `1/inf`).

use super::rows::Rows;
use super::{PackError, WeightSource, not_finite};
use llmcc_ir::graph::{BinaryOp, Module, Op};
use llmcc_ir::plan::{Plan, WeightExpr};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Elements that are looked at together.
const AT_ONCE: usize = 1 << 20;

/// The parts of tensors that plans read.
#[derive(Default)]
struct Read {
    /// Tensors read whole, where nothing hides non-finite values.
    whole: BTreeSet<usize>,
    /// Rows of these.
    rows: BTreeMap<usize, Vec<Range<usize>>>,
    /// Picked rows of each run of a tensor, by tensor and length of the run.
    picked: BTreeMap<(usize, usize), Vec<Range<usize>>>,
    /// Tensors with a function that may hide non-finite values.
    hidden: BTreeSet<usize>,
}

impl Read {
    fn add(&mut self, e: &WeightExpr) {
        match e {
            WeightExpr::Weight(i) => {
                self.whole.insert(*i);
            }
            WeightExpr::Op(op, args) => match (op, args.as_slice()) {
                (Op::SliceRows { start, len }, [WeightExpr::Weight(i)]) => {
                    self.rows.entry(*i).or_default().push(*start..start.saturating_add(*len));
                }
                (Op::PickRows { run, start, len, .. }, [WeightExpr::Weight(i)]) => {
                    self.picked.entry((*i, *run)).or_default().push(*start..start.saturating_add(*len));
                }
                (op, args) if hides(op) => args.iter().for_each(|e| {
                    e.leaves(&mut |i| {
                        self.hidden.insert(i);
                    });
                }),
                (_, args) => args.iter().for_each(|e| self.add(e)),
            },
        }
    }

    /// Tensors that may have values that nobody would see.
    fn suspects(self, module: &Module) -> BTreeSet<usize> {
        let Read { whole, rows, picked, mut hidden } = self;
        let height = |i: usize| module.weights.get(i).and_then(|w| w.ty.shape.first()?.known());
        let parts = rows.into_iter().map(|(i, parts)| (i, height(i), parts));
        let picked = picked.into_iter().map(|((i, run), parts)| (i, Some(run), parts));
        // Parts of one kind that cover a tensor are enough.
        let mut seen: BTreeMap<usize, bool> = BTreeMap::new();
        for (i, n, parts) in parts.chain(picked) {
            *seen.entry(i).or_default() |= whole.contains(&i) || n.is_some_and(|n| covered(parts) >= n);
        }
        hidden.extend(seen.into_iter().filter(|(_, seen)| !seen).map(|(i, _)| i));
        hidden
    }
}

/// End of the parts that cover rows from 0 without a gap.
fn covered(mut parts: Vec<Range<usize>>) -> usize {
    parts.sort_by_key(|part| part.start);
    parts.iter().fold(0, |end, part| if part.start <= end { end.max(part.end) } else { end })
}

/// Whether a finite number may result from a non-finite one.
fn hides(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_)
            | Op::Binary(BinaryOp::Div | BinaryOp::Min | BinaryOp::Max)
            | Op::SliceRows { .. }
            | Op::PickRows { .. }
            | Op::Row { .. }
            | Op::LookUp
    )
}

/// Refuses such values, with their place.
///
/// # Errors
/// [`PackError::Value`] names the tensor.
pub(super) fn check(plan: &Plan, module: &Module, source: &dyn WeightSource) -> Result<(), PackError> {
    let mut read = Read::default();
    plan.weights.iter().for_each(|w| read.add(&w.expr));
    for i in read.suspects(module) {
        let Some(weight) = module.weights.get(i).filter(|w| w.data.is_none()) else { continue };
        let rows = Rows::new(&WeightExpr::Weight(i), module, source).map_err(|e| e.into_error(&weight.name))?;
        let (n, k) = rows.shape();
        let step = (AT_ONCE / k.max(1)).max(1);
        let mut values = vec![];
        for first in (0..n).step_by(step) {
            values.resize(step.min(n - first) * k, 0.0);
            rows.fill(first, &mut values);
            if let Some(at) = values.iter().position(|v| !v.is_finite()) {
                let (row, col) = (first + at / k, at % k);
                let what = not_finite(&weight.name);
                return Err(PackError::Value { tensor: weight.name.clone(), row, col, value: values[at], what });
            }
        }
    }
    Ok(())
}
