//! Columns of activations: parts of them, and side by side.

use super::of::{ConcatCols, SliceCols};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value};
use crate::graph::value::ValueType;
use crate::ty::TensorType;

impl Rule for SliceCols {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, n) = a.activation(0)?;
        a.range(self.start, self.len, n)?;
        Ok(TensorType::rows(m, self.len).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (start, len) = (self.start, self.len);
        Ok(Value::tensor(a.tensor(0)?.map_rows(len, |_, row| row[start..start + len].to_vec())))
    }
}

impl Rule for ConcatCols {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, mut n) = a.activation(0)?;
        for i in 1..a.len() {
            let (mi, ni) = a.activation(i)?;
            if mi != m {
                return Err("`concat_cols`: row counts differ".into());
            }
            n = n.saturating_add(ni);
        }
        Ok(TensorType::rows(m, n).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let parts: Vec<&Tensor> = (0..a.args.len()).map(|i| a.tensor(i)).collect::<Result<_, _>>()?;
        let cols = parts.iter().map(|p| p.cols()).sum();
        let row = |i: usize| parts.iter().flat_map(|p| p.data[i * p.cols()..][..p.cols()].to_vec()).collect();
        Ok(Value::tensor(a.tensor(0)?.map_rows(cols, |i, _| row(i))))
    }
}
