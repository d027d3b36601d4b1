//! Products with weight matrices.

use super::of::{HeadMatMul, MatMul};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Value, dot};
use crate::graph::value::ValueType;
use crate::ty::TensorType;

impl Rule for MatMul {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, k) = a.activation(0)?;
        let (n, wk) = a.weight_matrix(1)?;
        a.same("inner dimensions", k, wk)?;
        Ok(TensorType::rows(m, n).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, w) = (a.tensor(0)?, a.tensor(1)?);
        Ok(Value::tensor(x.map_rows(w.shape[0], |_, row| w.rows().map(|w| dot(row, w)).collect())))
    }
}

impl Rule for HeadMatMul {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, have) = a.activation(0)?;
        let (n, k) = a.weight_matrix(1)?;
        let heads = self.heads;
        if heads == 0 || !n.is_multiple_of(heads) || self.cols == 0 || n / heads < self.cols {
            return Err(format!("`head_matmul`: {n} rows are not those of {heads} heads of {} columns", self.cols));
        }
        a.same("columns and heads × inner dimension", have, heads.saturating_mul(k))?;
        Ok(TensorType::rows(m, heads.saturating_mul(self.cols)).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, w) = (a.tensor(0)?, a.tensor(1)?);
        let (n, k) = (w.shape[0] / self.heads, w.cols());
        let head =
            |(h, x): (usize, &[f64])| -> Vec<f64> { w.rows().skip(h * n).take(self.cols).map(|w| dot(x, w)).collect() };
        let row = |_: usize, x: &[f64]| x.chunks(k).enumerate().flat_map(head).collect();
        Ok(Value::tensor(x.map_rows(self.heads * self.cols, row)))
    }
}
