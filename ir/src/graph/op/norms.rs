//! Norms: functions of runs of columns.

use super::of::{Normalize, Standardize};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value, normalize, subtract_mean};
use crate::graph::value::ValueType;
use crate::ty::TensorType;

impl Rule for Normalize {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        runs(a, self.width)
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let mut x = Tensor::clone(a.tensor(0)?);
        normalize(&mut x.data, self.width, self.eps.get().into());
        Ok(Value::tensor(x))
    }
}

impl Rule for Standardize {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        runs(a, self.width)
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let mut x = Tensor::clone(a.tensor(0)?);
        subtract_mean(&mut x.data, self.width);
        normalize(&mut x.data, self.width, self.eps.get().into());
        Ok(Value::tensor(x))
    }
}

/// Rows of whole runs.
fn runs(a: &Types<'_>, width: usize) -> Result<ValueType, String> {
    let (m, n) = a.activation(0)?;
    a.multiple("width", n, width)?;
    Ok(TensorType::rows(m, n).into())
}
