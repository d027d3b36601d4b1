//! Products with weight matrices.

use super::of::MatMul;
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
