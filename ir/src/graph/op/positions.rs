//! Rotary positions.

use super::of::{Rope, RopeAxes, RopeTable};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value, nearest, rope, rope_row, rope_row_of, rope_set};
use crate::graph::Input;
use crate::graph::value::ValueType;
use crate::ty::{Dim, TensorType};
use llmcc_abi::AXES;

impl Rule for RopeTable {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        a.index(0, Dim::Tokens)?;
        let n = a.vector(1)?;
        if self.border == 0 {
            return Ok(TensorType::rows(Dim::Tokens, n.saturating_mul(2)).into());
        }
        if n % 2 != 0 {
            return Err(format!("`rope_table`: {n} frequencies do not make two sets"));
        }
        Ok(TensorType::rows(Dim::Tokens, n).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (positions, freq) = (a.tensor(0)?, a.tensor(1)?);
        let freq: Vec<f32> = freq.data.iter().map(|v| *v as f32).collect();
        let n = positions.data.len();
        let border = (self.border != 0).then_some(self.border);
        let most = (self.most != 0).then_some(self.most);
        let row = |i| {
            let position = nearest(positions.int(i), most);
            rope_row(position, rope_set(&freq, border, position), self.scale.get().into())
        };
        let data: Vec<f64> = (0..n).flat_map(row).collect();
        Ok(Value::tensor(Tensor { shape: vec![n, if border.is_some() { 1 } else { 2 } * freq.len()], data }))
    }
}

impl Rule for RopeAxes {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (have, want) = (a.tensor(0)?, Input::Axes.ty(0));
        if *have != want {
            return Err(format!("argument 1 of `rope_axes` must be {want}, not {have}"));
        }
        let n = a.vector(1)?;
        if !n.is_multiple_of(AXES) {
            return Err(format!("`rope_axes`: {n} frequencies do not make {AXES} sets"));
        }
        Ok(TensorType::rows(Dim::Tokens, (n / AXES).saturating_mul(2)).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (positions, freq) = (a.tensor(0)?, a.tensor(1)?);
        let freq: Vec<f32> = freq.data.iter().map(|v| *v as f32).collect();
        let row = |of: &[f64]| {
            let of: Vec<i32> = of.iter().map(|p| *p as i32).collect();
            rope_row_of(&of, &freq, self.scale.get().into())
        };
        let data: Vec<f64> = positions.rows().flat_map(row).collect();
        Ok(Value::tensor(Tensor { shape: vec![positions.shape[0], 2 * (freq.len() / AXES)], data }))
    }
}

impl Rule for Rope {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, n) = a.activation(0)?;
        let (tm, d) = a.activation(1)?;
        a.multiple("head size", n, self.head_dim)?;
        if tm != m || d > self.head_dim || d % 2 != 0 {
            return Err(format!(
                "`rope`: table {} does not fit {} with head size {}",
                a.args[1], a.args[0], self.head_dim
            ));
        }
        Ok(TensorType::rows(m, n).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, table) = (a.tensor(0)?, a.tensor(1)?);
        Ok(Value::tensor(x.map_rows(x.cols(), |i, row| {
            let mut row = row.to_vec();
            rope(&mut row, self.head_dim, &table.data[i * table.cols()..][..table.cols()]);
            row
        })))
    }
}
