//! Rows that come with the tokens.

use super::of::GivenRows;
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Value};
use crate::graph::value::ValueType;
use crate::ty::{Dim, TensorType};

impl Rule for GivenRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        match a.activation(0)? {
            (Dim::Tokens, cols) => Ok(TensorType::rows(Dim::Tokens, cols).into()),
            _ => Err(format!("`{}` needs a row per token", a.name)),
        }
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let rows = a.tensor(0)?;
        if rows.cols() == 0 {
            return Err(EvalError::batch("the model takes a row with each token, and the batch has none"));
        }
        Ok(Value::tensor(rows.clone()))
    }
}
