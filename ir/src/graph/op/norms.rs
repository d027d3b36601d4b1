//! Norms: functions of runs of columns.

use super::of::Normalize;
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value, normalize};
use crate::graph::value::ValueType;
use crate::ty::TensorType;

impl Rule for Normalize {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, n) = a.activation(0)?;
        a.multiple("width", n, self.width)?;
        Ok(TensorType::rows(m, n).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let mut x = Tensor::clone(a.tensor(0)?);
        normalize(&mut x.data, self.width, self.eps.get().into());
        Ok(Value::tensor(x))
    }
}
