//! Rows of tensors that no weight of a plan is made of: numbers in them compute nothing, but what is no number says
//! that a file is damaged.

use super::rows::Rows;
use super::{PackError, WeightSource, not_finite};
use llmcc_ir::graph::{Module, Op};
use llmcc_ir::plan::{Plan, WeightExpr};
use std::collections::BTreeMap;

/// Elements that are looked at together.
const ELEMENTS: usize = 1 << 18;

/// Runs of rows, by weight.
type Spans = BTreeMap<usize, Vec<[usize; 2]>>;

/// The rows that an expression reads of each weight: all, unless it takes a slice of it.
fn spans(e: &WeightExpr, out: &mut Spans) {
    match e {
        WeightExpr::Weight(w) => out.entry(*w).or_default().push([0, usize::MAX]),
        WeightExpr::Op(Op::SliceRows { start, len }, args) if let [WeightExpr::Weight(w)] = &args[..] => {
            out.entry(*w).or_default().push([*start, start.saturating_add(*len)]);
        }
        WeightExpr::Op(_, args) => args.iter().for_each(|arg| spans(arg, out)),
    }
}

/// What lies between runs, up to a number of rows.
fn gaps(mut read: Vec<[usize; 2]>, rows: usize) -> Vec<[usize; 2]> {
    let (mut out, mut next) = (vec![], 0);
    read.sort_unstable();
    for [from, to] in read {
        if from > next {
            out.push([next, from.min(rows)]);
        }
        next = next.max(to);
    }
    if next < rows {
        out.push([next, rows]);
    }
    out
}

/// Refuses what is no number in rows that are not read.
///
/// # Errors
/// [`PackError::Value`].
pub(super) fn check(plan: &Plan, module: &Module, source: &dyn WeightSource) -> Result<(), PackError> {
    let mut all = Spans::new();
    plan.weights.iter().for_each(|w| spans(&w.expr, &mut all));
    for (w, read) in all {
        let Some(weight) = module.weights.get(w).filter(|_| read.iter().all(|[_, to]| *to < usize::MAX)) else {
            continue;
        };
        let name = &weight.name;
        let rows = Rows::new(&WeightExpr::Weight(w), module, source).map_err(|e| e.into_error(name))?;
        let (n, k) = rows.shape();
        let step = (ELEMENTS / k.max(1)).max(1);
        for [from, to] in gaps(read, n) {
            for first in (from..to).step_by(step) {
                let mut values = vec![0f32; step.min(to - first) * k];
                rows.fill(first, &mut values);
                if let Some(i) = values.iter().position(|v| !v.is_finite()) {
                    let (row, col, value) = (first + i / k, i % k, values[i]);
                    return Err(PackError::Value { tensor: name.clone(), row, col, value, what: not_finite(name) });
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_between_runs() {
        assert_eq!(gaps(vec![[4, 6], [0, 2]], 8), [[2, 4], [6, 8]]);
        assert_eq!(gaps(vec![[0, 5], [3, 8]], 8), [[0usize; 2]; 0]);
        assert_eq!(gaps(vec![[1, 9]], 8), [[0, 1]]);
    }
}
