//! Weight expressions: what packing stores.

use super::EvalError;
use super::scalar::{binary, unary};
use crate::plan::WeightExpr;

/// A weight on its way from the checkpoint into a packed tensor: f32, row-major; rank 0, 1 or 2.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightTensor {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: Vec<f32>,
}

impl WeightTensor {
    /// A tensor from its parts; `None` if the shape does not hold as many elements.
    pub fn new(shape: impl Into<Vec<usize>>, data: Vec<f32>) -> Option<WeightTensor> {
        let shape = shape.into();
        (shape.iter().product::<usize>() == data.len()).then_some(WeightTensor { shape, data })
    }

    /// `(rows, elements per row)`: a vector is a column of rows of one element.
    fn by_rows(&self) -> Option<(usize, usize)> {
        match self.shape[..] {
            [n] => Some((n, 1)),
            [n, k] => Some((n, k)),
            _ => None,
        }
    }

    fn matrix(&self) -> Option<(usize, usize)> {
        match self.shape[..] {
            [n, k] => Some((n, k)),
            _ => None,
        }
    }
}

/// Evaluates a weight expression. `leaf(i)` is module weight `i` in f32 (exact for f16, bf16 and f32 tensors).
///
/// Every element of every operation is rounded to f32 once: packing, which streams, must store exactly these numbers.
///
/// # Errors
/// A shape does not fit its operation.
pub fn eval_weight(expr: &WeightExpr, leaf: &dyn Fn(usize) -> Result<WeightTensor, EvalError>) -> Result<WeightTensor, EvalError> {
    match expr {
        WeightExpr::Weight(i) => leaf(*i),
        WeightExpr::Transpose(x) => transpose(&eval_weight(x, leaf)?),
        WeightExpr::ScaleCols(w, g) => scale("scale_cols", eval_weight(w, leaf)?, &eval_weight(g, leaf)?, |_, j| j),
        WeightExpr::ScaleRows(w, g) => scale("scale_rows", eval_weight(w, leaf)?, &eval_weight(g, leaf)?, |i, _| i),
        WeightExpr::ConcatRows(xs) => {
            let parts: Result<Vec<_>, _> = xs.iter().map(|x| eval_weight(x, leaf)).collect();
            concat_rows(&parts?)
        }
        WeightExpr::SliceRows(start, len, x) => slice_rows(&eval_weight(x, leaf)?, *start, *len),
        WeightExpr::Binary(op, a, b) => {
            let (mut a, b) = (eval_weight(a, leaf)?, eval_weight(b, leaf)?);
            let tiled = matches!((a.shape.last(), &b.shape[..]), (Some(n), [w]) if *w > 0 && n.is_multiple_of(*w));
            if !(a.shape == b.shape || b.shape.is_empty() || tiled) {
                return Err(misfit(op.name(), format!("{:?} does not broadcast to {:?}", b.shape, a.shape)));
            }
            a.data.iter_mut().enumerate().for_each(|(i, v)| *v = binary(*op, (*v).into(), b.data[i % b.data.len()].into()) as f32);
            Ok(a)
        }
        WeightExpr::Unary(op, x) => {
            let mut x = eval_weight(x, leaf)?;
            x.data.iter_mut().for_each(|v| *v = unary(*op, (*v).into()) as f32);
            Ok(x)
        }
        WeightExpr::Const(c) => Ok(WeightTensor { shape: vec![], data: vec![c.get()] }),
    }
}

fn misfit(op: &str, message: String) -> EvalError {
    EvalError::malformed(format!("weight expression `{op}`"), message)
}

fn transpose(x: &WeightTensor) -> Result<WeightTensor, EvalError> {
    let (n, k) = x.matrix().ok_or_else(|| misfit("transpose", format!("{:?} is not a matrix", x.shape)))?;
    let data = (0..k).flat_map(|j| (0..n).map(move |i| x.data[i * k + j])).collect();
    Ok(WeightTensor { shape: vec![k, n], data })
}

/// Multiplies element `(i, j)` by element `which(i, j)` of `g`.
fn scale(op: &str, mut w: WeightTensor, g: &WeightTensor, which: fn(usize, usize) -> usize) -> Result<WeightTensor, EvalError> {
    let fit = w.matrix().filter(|(n, k)| g.shape == [which(*n, *k)]);
    let (_, k) = fit.ok_or_else(|| misfit(op, format!("{:?} does not scale {:?}", g.shape, w.shape)))?;
    w.data.iter_mut().enumerate().for_each(|(at, v)| *v *= g.data[which(at / k, at % k)]);
    Ok(w)
}

fn concat_rows(parts: &[WeightTensor]) -> Result<WeightTensor, EvalError> {
    let first = parts.first().ok_or_else(|| misfit("concat_rows", "no arguments".into()))?;
    let fits = |p: &WeightTensor| p.shape.len() == first.shape.len() && p.by_rows().map(|r| r.1) == first.by_rows().map(|r| r.1);
    if first.by_rows().is_none() || !parts.iter().all(fits) {
        return Err(misfit("concat_rows", format!("shapes differ: {:?}", parts.iter().map(|p| &p.shape).collect::<Vec<_>>())));
    }
    let mut shape = first.shape.clone();
    shape[0] = parts.iter().map(|p| p.shape[0]).sum();
    Ok(WeightTensor { shape, data: parts.iter().flat_map(|p| &p.data).copied().collect() })
}

fn slice_rows(x: &WeightTensor, start: usize, len: usize) -> Result<WeightTensor, EvalError> {
    let end = start.saturating_add(len);
    let fit = x.by_rows().filter(|(n, _)| end <= *n);
    let (_, k) = fit.ok_or_else(|| misfit("slice_rows", format!("{start}..{end} of {:?}", x.shape)))?;
    let mut shape = x.shape.clone();
    shape[0] = len;
    Ok(WeightTensor { shape, data: x.data[start * k..end * k].to_vec() })
}
