//! Rows by number: of a table of embeddings, of activations.

use super::of::{Embed, EmbedPositions, EmbedTypes, GatherRows};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value, row_of_position};
use crate::graph::value::ValueType;
use crate::ty::{Dim, TensorType};

impl Rule for Embed {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        looked_up(a)
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        gather(a.tensor(0)?, a.tensor(1)?, "token")
    }
}

impl Rule for EmbedPositions {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        if self.every == 0 {
            return Err("`embed_positions`: a row is for one position or more".into());
        }
        looked_up(a)
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let rows = a.tensor(1)?.map(|p| row_of_position(p as i32, self.every, self.shift) as f64);
        gather(a.tensor(0)?, &rows, "position")
    }
}

impl Rule for EmbedTypes {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        looked_up(a)
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        gather(a.tensor(0)?, a.tensor(1)?, "type")
    }
}

/// A row of a weight matrix per token.
fn looked_up(a: &Types<'_>) -> Result<ValueType, String> {
    let (_, h) = a.weight_matrix(0)?;
    a.index(1, Dim::Tokens)?;
    Ok(TensorType::rows(Dim::Tokens, h).into())
}

impl Rule for GatherRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (_, n) = a.activation(0)?;
        a.index(1, Dim::Rows)?;
        Ok(TensorType::rows(Dim::Rows, n).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        gather(a.tensor(0)?, a.tensor(1)?, "row")
    }
}

/// Rows of `x` by number.
fn gather(x: &Tensor, numbers: &Tensor, what: &str) -> Result<Value, EvalError> {
    let mut data = vec![];
    for i in 0..numbers.data.len() {
        let n = numbers.int(i);
        let row = usize::try_from(n).ok().and_then(|r| x.rows().nth(r));
        data.extend_from_slice(row.ok_or_else(|| EvalError::batch(format!("{what} {n} of {}", x.shape[0])))?);
    }
    Ok(Value::tensor(Tensor { shape: vec![numbers.data.len(), x.cols()], data }))
}
