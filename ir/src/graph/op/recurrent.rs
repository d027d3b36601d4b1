//! What keeps a state of fixed size: convolutions over time and linear recurrences.

use super::of::{CausalConv, Recurrence};
use super::rule::{Operands, Rule, Types};
use crate::eval::{Delta, EvalError, Tensor, Value, convolve, recur};
use crate::graph::value::ValueType;
use crate::state::FixedSpec;
use crate::ty::{Dim, TensorType};

impl Rule for CausalConv {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, channels) = a.activation(0)?;
        tokens(a, m)?;
        let (width, n) = a.weight_matrix(1)?;
        a.same("columns and channels of the taps", channels, n)?;
        if width < 2 {
            return Err(format!("`{}`: a convolution over {width} tokens keeps none", a.name));
        }
        a.fixed(2, FixedSpec { heads: 1, rows: width - 1, cols: channels })?;
        Ok(TensorType::rows(m, channels).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, taps, seqs) = (a.tensor(0)?, a.tensor(1)?, &a.batch.seqs);
        let rows: Vec<Vec<f64>> = x.rows().map(<[f64]>::to_vec).collect();
        let out = convolve(a.fixed(2)?, seqs, &rows, &taps.data);
        Ok(Value::tensor(Tensor { shape: x.shape.clone(), data: out.concat() }))
    }
}

impl Rule for Recurrence {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, q) = a.activation(0)?;
        tokens(a, m)?;
        let state = match a.args[5].state().as_ref().and_then(|s| s.fixed().copied()) {
            Some(state) => state,
            None => return Err(format!("argument 6 of `{}` must be a state of fixed size", a.name)),
        };
        let FixedSpec { heads, rows, cols } = state;
        let columns = |i: usize| a.activation(i).and_then(|(rows, n)| tokens(a, rows).map(|()| n));
        let (k, v, decay, rate) = (columns(1)?, columns(2)?, columns(3)?, columns(4)?);
        a.same("columns of queries and keys", q, k)?;
        a.multiple("rows of the state", q, rows)?;
        a.multiple("heads of queries", heads, q / rows.max(1))?;
        a.same("value columns and heads × columns of the state", v, heads.saturating_mul(cols))?;
        if decay != heads && decay != heads.saturating_mul(rows) {
            return Err(format!("`{}`: {decay} decays are neither one per head nor one per row of each", a.name));
        }
        a.same("rates and heads", rate, heads)?;
        Ok(TensorType::rows(m, v).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let rows = |i: usize| Ok::<_, EvalError>(a.tensor(i)?.rows().map(<[f64]>::to_vec).collect::<Vec<_>>());
        let inputs = [rows(0)?, rows(1)?, rows(2)?, rows(3)?, rows(4)?];
        let (shape, seqs) = (a.tensor(2)?.shape.clone(), &a.batch.seqs);
        let delta = if self.delta { Delta::Rule } else { Delta::Plain };
        let out = recur(a.fixed(5)?, seqs, &inputs, delta);
        Ok(Value::tensor(Tensor { shape, data: out.concat() }))
    }
}

fn tokens(a: &Types<'_>, rows: Dim) -> Result<(), String> {
    if rows == Dim::Tokens { Ok(()) } else { Err(format!("`{}` needs a row per token", a.name)) }
}
