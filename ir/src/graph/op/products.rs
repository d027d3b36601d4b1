//! Products with weight matrices.

use super::of::{AdapterMatMul, HeadMatMul, MatMul};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value, dot};
use crate::graph::value::ValueType;
use crate::state::{AdapterSpec, adapted};
use crate::ty::{Dim, TensorType};

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
            return Err(format!("`head_matmul`: {n} rows do not fit {heads} heads of {} columns", self.cols));
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

impl Rule for AdapterMatMul {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, cols) = a.activation(0)?;
        let AdapterSpec { n, k, .. } = a.adapter(1)?;
        if m != Dim::Tokens {
            return Err(format!("`{}` needs a row per token", a.name));
        }
        a.same("columns and parts × inner dimension", cols, self.parts.len().saturating_mul(k))?;
        let whole = self.parts.iter().all(|p| *p > 0 && p.is_multiple_of(AdapterSpec::BLOCK));
        if !whole || self.parts.iter().fold(0usize, |sum, p| sum.saturating_add(*p)) != n {
            let parts = &self.parts;
            return Err(format!("`{}`: parts of {parts:?} rows must be whole blocks of 16 and add up to {n}", a.name));
        }
        Ok(TensorType::rows(m, n).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, seqs) = (a.tensor(0)?, &a.batch.seqs);
        let state = a.adapter(1)?;
        let rows: Vec<Vec<f64>> = x.rows().zip(seqs).map(|(x, seq)| adapted(state, *seq, x, &self.parts)).collect();
        let shape = vec![rows.len(), state.spec.n];
        Ok(Value::tensor(Tensor { shape, data: rows.concat() }))
    }
}
