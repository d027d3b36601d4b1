//! Operations that keep a state of fixed size: convolutions over time and recurrences.

use super::attr::words;
use super::of::{CausalConv, Recurrence, WindowMeans, Wkv};
use super::rule::{Operands, Rule, Types};
use super::{Attr, AttrKind, AttrType};
use crate::eval::{Each, EvalError, Inputs, Tensor, Value, convolve, means_of_windows, recur, weighted_means};
use crate::graph::value::ValueType;
use crate::state::FixedSpec;
use crate::ty::{Dim, TensorType};

pub use llmcc_abi::recur::Update;

/// Names of the updates in `.lir` text.
const UPDATES: &[&str] = &["plain", "delta", "erase", "bonus", "scan"];

words!(Update: UPDATES);

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
        let rows = x.to_rows();
        let out = convolve(a.fixed(2)?, seqs, &rows, &taps.data);
        Ok(Value::tensor(Tensor { shape: x.shape.clone(), data: out.concat() }))
    }
}

impl Rule for Recurrence {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let state = match a.args[5].state().as_ref().and_then(|s| s.fixed().copied()) {
            Some(state) => state,
            None => return Err(format!("argument 6 of `{}` must be a state of fixed size", a.name)),
        };
        let FixedSpec { heads, rows, cols } = state;
        let (q, k) = (each(a, 0)?, each(a, 1)?);
        let (m, v) = a.activation(2)?;
        tokens(a, m)?;
        a.same("columns of queries and keys", q, k)?;
        a.multiple("rows of the state", q, rows)?;
        a.multiple("heads of queries", heads, q / rows.max(1))?;
        a.same("value columns and heads × columns of the state", v, heads.saturating_mul(cols))?;
        let (decay, by_row) = (each(a, 3)?, heads.saturating_mul(rows));
        match self.update {
            Update::Scan => a.same("steps and columns of values", decay, v)?,
            Update::Plain | Update::Delta | Update::Erase | Update::Bonus if decay != heads && decay != by_row => {
                return Err(format!("`{}`: {decay} decays are neither one per head nor one per row of each", a.name));
            }
            Update::Plain | Update::Delta | Update::Erase | Update::Bonus => {}
        }
        match self.update {
            Update::Plain | Update::Delta => a.same("rates and heads", each(a, 4)?, heads)?,
            Update::Erase => a.same("columns of keys and of what is read", each(a, 4)?, k)?,
            Update::Bonus => a.same("bonuses and rows of the state", a.vector(4)?, by_row)?,
            Update::Scan if a.vector(4).is_ok() => {
                a.same("rates and numbers of the state", a.vector(4)?, by_row.saturating_mul(cols))?;
            }
            Update::Scan => {
                let (n, of_row) = a.weight_matrix(4)?;
                a.same("rows of the rates and of the state", n, by_row)?;
                a.same("columns of the rates and of the state", of_row, cols)?;
            }
        }
        match (self.update, a.len()) {
            (Update::Erase, 7) => a.same("columns of keys and of what is written", each(a, 6)?, k)?,
            (Update::Erase, _) => return Err(format!("`{}` needs what is erased", a.name)),
            (Update::Plain | Update::Delta | Update::Bonus | Update::Scan, 7) => {
                return Err(format!("`{}` erases nothing", a.name));
            }
            (Update::Plain | Update::Delta | Update::Bonus | Update::Scan, _) => {}
        }
        Ok(TensorType::rows(m, v).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let seqs = &a.batch.seqs;
        let each = |i: usize| {
            let x: &Tensor = a.tensor(i)?;
            Ok::<_, EvalError>(match (x.shape[..].len(), self.update, i) {
                // A matrix of rates.
                (_, Update::Scan, 4) | (1, _, _) => Each::Same(x.data.clone()),
                _ => Each::Rows(x.to_rows()),
            })
        };
        let write = if self.update == Update::Erase { each(6)? } else { Each::Same(vec![]) };
        let inputs = Inputs { q: each(0)?, k: each(1)?, v: each(2)?, decay: each(3)?, with: each(4)?, write };
        let shape = a.tensor(2)?.shape.clone();
        let out = recur(a.fixed(5)?, seqs, &inputs, self.update);
        Ok(Value::tensor(Tensor { shape, data: out.concat() }))
    }
}

impl Rule for Wkv {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let ((m, k), (of_values, v)) = (a.activation(0)?, a.activation(1)?);
        tokens(a, m)?;
        tokens(a, of_values)?;
        a.same("columns of keys and values", k, v)?;
        a.same("decays and columns", a.vector(2)?, k)?;
        a.same("bonuses and columns", a.vector(3)?, k)?;
        a.fixed(4, FixedSpec { heads: 1, rows: 3, cols: k })?;
        Ok(TensorType::rows(m, k).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (keys, values, decay, bonus) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.tensor(3)?);
        let [k, v] = [keys, values].map(Tensor::to_rows);
        let seqs = &a.batch.seqs;
        let out = weighted_means(a.fixed(4)?, seqs, [&k, &v], [&decay.data, &bonus.data]);
        Ok(Value::tensor(Tensor { shape: keys.shape.clone(), data: out.concat() }))
    }
}

impl Rule for WindowMeans {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let ((m, k), (of_values, v)) = (a.activation(0)?, a.activation(1)?);
        tokens(a, m)?;
        tokens(a, of_values)?;
        a.same("columns of keys and values", k, v)?;
        let (width, n) = a.weight_matrix(2)?;
        a.same("columns and places", k, n)?;
        if width < 2 {
            return Err(format!("`{}`: windows of {width} tokens have no mean", a.name));
        }
        a.index(3, Dim::Tokens)?;
        let state = a.args[4].state().and_then(|s| s.fixed().copied());
        let series = state.map_or(1, |s| s.rows / 3).clamp(1, 2);
        a.multiple("series", k, series)?;
        let channels = k / series;
        a.fixed(4, FixedSpec { heads: 1, rows: 3 * series, cols: channels })?;
        Ok(TensorType::rows(m, channels).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (keys, values, places, positions) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.tensor(3)?);
        let [k, v] = [keys, values].map(Tensor::to_rows);
        let positions: Vec<i32> = (0..positions.data.len()).map(|i| positions.int(i)).collect();
        let seqs = &a.batch.seqs;
        let state = a.fixed(4)?;
        let shape = vec![k.len(), state.spec.cols];
        let out = means_of_windows(state, (seqs, &positions), [&k, &v], &places.data);
        Ok(Value::tensor(Tensor { shape, data: out.concat() }))
    }
}

/// Columns of an argument that has a row per token, or is a vector that counts for all.
fn each(a: &Types<'_>, i: usize) -> Result<usize, String> {
    if let Ok(n) = a.vector(i) {
        return Ok(n);
    }
    let (rows, n) = a.activation(i)?;
    tokens(a, rows).map(|()| n)
}

fn tokens(a: &Types<'_>, rows: Dim) -> Result<(), String> {
    if rows == Dim::Tokens { Ok(()) } else { Err(format!("`{}` needs a row per token", a.name)) }
}
