//! Which inputs the rows of a weight multiply.
//!
//! Moments are known for tensors of the checkpoint, as [`crate::module::tap`] shows them. A weight is an expression
//! over such tensors: gains may be folded into its columns, several tensors may be joined, columns may have other
//! places.
//! [`runs`] says what its rows multiply: where columns are multiplied by `g`, the inputs are divided by `g`.

use super::moments::{Inputs, Run};
use crate::pack::rows::{Rows, leaf_names};
use crate::pack::{PackError, WeightSource};
use llmcc_ir::graph::{BinaryOp, Module, Op, picked_row, places};
use llmcc_ir::plan::WeightExpr;
use std::sync::Arc;

/// The inputs of the rows of a weight, in runs. Rows whose inputs are not known are in runs, too, but for those at the
/// end.
///
/// # Errors
/// A missing or misshapen tensor.
pub fn runs<'a>(e: &WeightExpr, module: &'a Module, source: &'a dyn WeightSource) -> Result<Vec<Run<'a>>, PackError> {
    Finder { module, source }.find(e)
}

struct Finder<'a> {
    module: &'a Module,
    source: &'a dyn WeightSource,
}

impl<'a> Finder<'a> {
    fn find(&self, e: &WeightExpr) -> Result<Vec<Run<'a>>, PackError> {
        let (op, args) = match e {
            WeightExpr::Weight(i) => return Ok(self.tensor(*i, false)),
            WeightExpr::Op(op, args) => (op, &args[..]),
        };
        Ok(match (op, args) {
            (Op::Transpose, [WeightExpr::Weight(i)]) => self.tensor(*i, true),
            (Op::Flatten | Op::ScaleRows | Op::UnitRows | Op::StandardRows { .. }, [x, ..]) => self.find(x)?,
            (Op::ScaleCols, [x, g]) => scaled(self.find(x)?, &self.values(g)?, false),
            (Op::Binary(BinaryOp::Mul), [x, g]) if self.is_vector(g)? => scaled(self.find(x)?, &self.values(g)?, false),
            (Op::Binary(BinaryOp::Div), [x, g]) if self.is_vector(g)? => scaled(self.find(x)?, &self.values(g)?, true),
            // The sum of a tensor and an adapter's product multiplies the tensor's inputs.
            (Op::Binary(BinaryOp::Add | BinaryOp::Sub), [x, _]) => self.find(x)?,
            (Op::PlaceCols, [x, order]) => placed(self.find(x)?, &self.values(order)?),
            (Op::ConcatRows, parts) => {
                let mut all = vec![];
                for part in parts {
                    let rows = self.rows(part)?.shape().0;
                    all.extend(padded(self.find(part)?, rows));
                }
                all
            }
            (Op::SliceRows { start, len }, [x]) => by_row(&self.find(x)?, *len, |i| Some(start + i)),
            (Op::PickRows { run, start, len, pairs }, [x]) => {
                let n = self.rows(e)?.shape().0;
                by_row(&self.find(x)?, n, |i| Some(picked_row([*run, *start, *len, *pairs], i)))
            }
            (Op::FillRows { run, to }, [x]) => {
                let n = self.rows(e)?.shape().0;
                by_row(&self.find(x)?, n, |i| (i % to < *run).then(|| i / to * run + i % to))
            }
            (op, args) => unknown(op, args),
        })
    }

    /// A tensor of the checkpoint as it is, or transposed: its moments are by column of the product.
    fn tensor(&self, i: usize, transposed: bool) -> Vec<Run<'a>> {
        let Some(weight) = self.module.weights.get(i).filter(|w| w.data.is_none()) else { return vec![] };
        let dims: Option<Vec<usize>> = weight.ty.shape.iter().map(|d| d.known()).collect();
        let (Some(dims), Some(m)) = (dims, self.source.moments(&weight.name)) else { return vec![] };
        let (rows, columns) = match (dims[..].split_last_chunk::<2>(), transposed) {
            (Some((stack, [n, k])), false) => (stack.iter().product::<usize>() * n, *k),
            (Some((stack, [k, n])), true) => (stack.iter().product::<usize>() * n, *k),
            (None, _) => return vec![],
        };
        let experts = m.count.len().max(1);
        if m.squares.len() != experts * columns || !rows.is_multiple_of(experts) {
            return vec![];
        }
        let plain: Arc<[(usize, f64)]> = (0..columns).map(|j| (j, 1.0)).collect();
        let of_expert = |e: usize| Run {
            rows: rows / experts,
            inputs: Some(Inputs {
                count: m.count.get(e).copied().unwrap_or(0),
                squares: &m.squares[e * columns..(e + 1) * columns],
                min: m.min.get(e * columns..(e + 1) * columns).unwrap_or_default(),
                max: m.max.get(e * columns..(e + 1) * columns).unwrap_or_default(),
                products: m.products.get(e * columns * columns..(e + 1) * columns * columns).unwrap_or_default(),
                columns: Arc::clone(&plain),
            }),
        };
        (0..experts).map(of_expert).collect()
    }

    fn rows(&self, e: &WeightExpr) -> Result<Rows<'a>, PackError> {
        let name = leaf_names(e, self.module);
        Rows::new(e, self.module, self.source).map_err(|e| e.into_error(&name))
    }

    fn values(&self, e: &WeightExpr) -> Result<Vec<f32>, PackError> {
        Ok(self.rows(e)?.all())
    }

    fn is_vector(&self, e: &WeightExpr) -> Result<bool, PackError> {
        Ok(self.rows(e)?.shape().1 == 1)
    }
}

/// The runs of a matrix that is computed from others in another way: nothing is known of its inputs.
fn unknown<'a>(_op: &Op, _args: &[WeightExpr]) -> Vec<Run<'a>> {
    vec![]
}

/// Runs of rows whose columns were multiplied, or divided, by numbers that repeat along a row.
fn scaled<'a>(runs: Vec<Run<'a>>, by: &[f32], divided: bool) -> Vec<Run<'a>> {
    let change = |columns: &mut [(usize, f64)]| {
        let repeats = !by.is_empty() && columns.len().is_multiple_of(by.len());
        let factor = |j: usize| match (repeats, divided) {
            (true, false) => f64::from(by[j % by.len()]),
            (true, true) => 1.0 / f64::from(by[j % by.len()]),
            (false, _) => 1.0,
        };
        columns.iter().enumerate().map(|(j, (of, g))| (*of, g * factor(j))).collect()
    };
    changed(runs, change)
}

/// Runs of rows whose column `j` was brought to place `order[j]`.
fn placed<'a>(runs: Vec<Run<'a>>, order: &[f32]) -> Vec<Run<'a>> {
    let Ok(order) = places(order.iter().map(|v| f64::from(*v)), order.len()) else { return vec![] };
    let change = |columns: &mut [(usize, f64)]| {
        let mut out = columns.to_vec();
        order.iter().zip(columns.iter()).for_each(|(to, column)| {
            out.get_mut(*to).into_iter().for_each(|v| *v = *column);
        });
        out
    };
    changed(runs, change)
}

fn changed<'a>(runs: Vec<Run<'a>>, change: impl Fn(&mut [(usize, f64)]) -> Vec<(usize, f64)>) -> Vec<Run<'a>> {
    let of_run = |run: Run<'a>| Run { inputs: run.inputs.map(|i| i.with_columns(&change)), ..run };
    runs.into_iter().map(of_run).collect()
}

/// Runs with one more for the rows that none has.
fn padded(mut runs: Vec<Run<'_>>, rows: usize) -> Vec<Run<'_>> {
    let known: usize = runs.iter().map(|r| r.rows).sum();
    if known < rows {
        runs.push(Run { rows: rows - known, inputs: None });
    }
    runs
}

/// Runs of `n` rows, each of which is one of the others' rows.
fn by_row<'a>(runs: &[Run<'a>], n: usize, of: impl Fn(usize) -> Option<usize>) -> Vec<Run<'a>> {
    let ends: Vec<usize> = runs
        .iter()
        .scan(0, |end, run| {
            *end += run.rows;
            Some(*end)
        })
        .collect();
    let mut out: Vec<(Option<usize>, usize)> = vec![];
    for i in 0..n {
        let run = of(i).map(|row| ends.partition_point(|end| *end <= row)).filter(|run| *run < runs.len());
        match out.last_mut() {
            Some((last, rows)) if *last == run => *rows += 1,
            _ => out.push((run, 1)),
        }
    }
    out.into_iter().map(|(run, rows)| Run { rows, inputs: run.and_then(|r| runs[r].inputs.clone()) }).collect()
}
