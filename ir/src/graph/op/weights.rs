//! Operations on weights alone, evaluated when packing.

use super::of::{ConcatRows, ScaleCols, ScaleRows, SliceRows, Transpose};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value};
use crate::graph::value::ValueType;
use crate::ty::{Dim, TensorType};

impl Rule for Transpose {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (n, k) = a.weight_matrix(0)?;
        Ok(TensorType::new(a.tensor(0)?.dtype, [k.into(), n.into()]).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        let (n, k) = (x.shape[0], x.shape[1]);
        let data = (0..k).flat_map(|j| (0..n).map(move |i| x.data[i * k + j])).collect();
        Ok(Value::tensor(Tensor { shape: vec![k, n], data }))
    }
}

impl Rule for ScaleCols {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (n, k) = a.weight_matrix(0)?;
        scaled(a, n, k, k)
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (w, g) = (a.tensor(0)?, a.tensor(1)?);
        Ok(Value::tensor(w.map_rows(w.cols(), |_, row| row.iter().zip(&g.data).map(|(a, b)| a * b).collect())))
    }
}

impl Rule for ScaleRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (n, k) = a.weight_matrix(0)?;
        scaled(a, n, k, n)
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (w, g) = (a.tensor(0)?, a.tensor(1)?);
        Ok(Value::tensor(w.map_rows(w.cols(), |i, row| row.iter().map(|a| a * g.data[i]).collect())))
    }
}

/// `[n, k]`, of which the dimension of `dim` is scaled by the vector.
fn scaled(a: &Types<'_>, n: usize, k: usize, dim: usize) -> Result<ValueType, String> {
    a.same("scaled dimension and vector", dim, a.vector(1)?)?;
    Ok(TensorType::rows(n.into(), k).into())
}

impl Rule for ConcatRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let first = a.tensor(0)?;
        let mut n = 0usize;
        for i in 0..a.len() {
            let t = a.tensor(i)?;
            if t.shape.len() != first.shape.len() || t.shape.get(1..) != first.shape.get(1..) || t.dtype != first.dtype
            {
                return Err(format!("`concat_rows`: {t} does not continue {first}"));
            }
            n = n.saturating_add(rows(t).ok_or("`concat_rows` needs weights")?);
        }
        Ok(with_rows(first, n))
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let mut x = Tensor::clone(a.tensor(0)?);
        for i in 1..a.args.len() {
            x.shape[0] += a.tensor(i)?.shape[0];
            x.data.extend_from_slice(&a.tensor(i)?.data);
        }
        Ok(Value::tensor(x))
    }
}

impl Rule for SliceRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let t = a.tensor(0)?;
        a.range(self.start, self.len, rows(t).ok_or("`slice_rows` needs a weight")?)?;
        Ok(with_rows(t, self.len))
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        let row: usize = x.shape[1..].iter().product();
        let mut shape = x.shape.clone();
        shape[0] = self.len;
        Ok(Value::tensor(Tensor { shape, data: x.data[self.start * row..(self.start + self.len) * row].to_vec() }))
    }
}

/// Rows of a weight; elements of a vector.
fn rows(t: &TensorType) -> Option<usize> {
    t.shape.first().and_then(|d| d.known())
}

/// `t` with `n` rows.
fn with_rows(t: &TensorType, n: usize) -> ValueType {
    let shape = std::iter::once(Dim::Static(n)).chain(t.shape.iter().skip(1).copied());
    TensorType::new(t.dtype, shape).into()
}
