//! Rows that come with the tokens.

use super::of::{GivenRows, Substitute};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value};
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

impl Rule for Substitute {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let ((m, cols), (rows, given)) = (a.activation(0)?, a.activation(2)?);
        a.index(1, Dim::Tokens)?;
        a.same("columns and columns of given rows", cols, given)?;
        if [m, rows] != [Dim::Tokens; 2] {
            return Err(format!("`{}` needs a row per token", a.name));
        }
        Ok(TensorType::rows(m, cols).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, tokens, rows) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
        let mut data = Vec::with_capacity(x.data.len());
        for (i, own) in x.rows().enumerate() {
            let row = match substituted(tokens.int(i), self.token) {
                true => rows.data.get(i * x.cols()..(i + 1) * x.cols()).ok_or_else(|| without_row(self.token))?,
                false => own,
            };
            data.extend_from_slice(row);
        }
        Ok(Value::tensor(Tensor { shape: x.shape.clone(), data }))
    }
}

/// Whether a token is the one that rows are given for.
pub(crate) fn substituted(token: i32, of: usize) -> bool {
    usize::try_from(token).is_ok_and(|token| token == of)
}

/// A token that stands for a row has none.
pub(crate) fn without_row(token: usize) -> EvalError {
    EvalError::batch(format!("token {token} stands for a row that is given with it, and the batch has none"))
}
