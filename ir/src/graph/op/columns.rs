//! Columns: parts of them, side by side, and in another order.

use super::of::{ConcatCols, PickCols, PlaceCols, SliceCols};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value};
use crate::graph::value::ValueType;
use crate::ty::{DType, TensorType};

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

impl Rule for PickCols {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, _) = a.activation(0)?;
        Ok(TensorType::rows(m, a.vector(1)?).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, order) = (a.tensor(0)?, a.tensor(1)?);
        let order = order.data.iter().map(|j| column(*j, x.cols())).collect::<Result<Vec<usize>, _>>()?;
        Ok(Value::tensor(x.map_rows(order.len(), |_, row| order.iter().map(|j| row[*j]).collect())))
    }
}

impl Rule for PlaceCols {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (n, k) = a.weight_matrix(0)?;
        a.same("columns and their order", k, a.vector(1)?)?;
        // Codes that share scales are not side by side any more.
        let dtype = a.tensor(0)?.dtype;
        let dtype = if dtype.coded().is_some() { DType::F32 } else { dtype };
        Ok(TensorType::new(dtype, [n.into(), k.into()]).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (w, order) = (a.tensor(0)?, a.tensor(1)?);
        let order = places(order.data.iter().copied(), w.cols())?;
        let placed = |row: &[f64]| {
            let mut out = vec![0.0; row.len()];
            row.iter().zip(&order).for_each(|(v, j)| out[*j] = *v);
            out
        };
        Ok(Value::tensor(w.map_rows(order.len(), |_, row| placed(row))))
    }
}

fn no_column(j: f64, cols: usize) -> EvalError {
    EvalError::NoColumn { column: j.to_string(), cols }
}

/// The column that an element of an order names.
pub(crate) fn column(j: f64, cols: usize) -> Result<usize, EvalError> {
    let known = j >= 0.0 && j.fract() == 0.0 && j < cols as f64;
    known.then_some(j as usize).ok_or_else(|| no_column(j, cols))
}

/// The columns of an order, which must name each of them once.
///
/// # Errors
/// [`EvalError::NoColumn`] with the first that does not.
pub fn places(order: impl Iterator<Item = f64>, cols: usize) -> Result<Vec<usize>, EvalError> {
    let mut seen = vec![false; cols];
    let place = |j: f64| match column(j, cols)? {
        at if std::mem::replace(&mut seen[at], true) => Err(no_column(j, cols)),
        at => Ok(at),
    };
    order.map(place).collect()
}

#[cfg(test)]
mod tests {
    use crate::eval::{WeightTensor, eval_weight_op};
    use crate::graph::Op;

    #[test]
    fn columns_go_where_the_order_says() {
        let place = |order: &[f32]| {
            let w = WeightTensor { shape: vec![2, 3], data: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0] };
            let order = WeightTensor { shape: vec![order.len()], data: order.to_vec() };
            eval_weight_op(&Op::PlaceCols, vec![w, order]).map(|t| t.data)
        };
        assert_eq!(place(&[1.0, 2.0, 0.0]).unwrap(), [3.0, 1.0, 2.0, 6.0, 4.0, 5.0]);
        for (order, named) in
            [([0.0, 1.0, 1.0], "1"), ([0.0, 3.0, 1.0], "3"), ([0.5, 1.0, 2.0], "0.5"), ([-1.0, 1.0, 2.0], "-1")]
        {
            let error = place(&order).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{named} is not one of 3 columns")), "{error}");
        }
    }
}
