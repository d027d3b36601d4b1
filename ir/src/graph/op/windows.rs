//! Bounds of windows of keys, and the windows that queries select by them.

use super::attention::{batch_at, rows_of};
use super::of::{SelectWindows, WindowBounds};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value, bounds_of_windows, select_windows};
use crate::graph::value::ValueType;
use crate::kv::KvSpec;
use crate::state::FixedSpec;
use crate::ty::{Dim, TensorType};

/// Why so many heads cannot select windows by a cache of bounds, if so.
pub(crate) fn windows_misfit(bounds: &KvSpec, heads: usize, kv_heads: usize, windows: usize) -> Option<String> {
    if windows == 0 || bounds.every < 2 {
        return Some(format!("{windows} windows of {} tokens are no selection", bounds.every));
    }
    if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Some(format!("{heads} query heads cannot share {kv_heads} KV heads"));
    }
    let whole = bounds.value_dim.is_multiple_of(2 * kv_heads);
    (!whole).then(|| format!("{bounds} has no two bounds for each of {kv_heads} KV heads"))
}

impl Rule for WindowBounds {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, columns) = a.activation(0)?;
        if m != Dim::Tokens || self.width < 2 {
            return Err(format!("`{}` needs a row per token, and windows of at least 2", a.name));
        }
        a.index(1, Dim::Tokens)?;
        a.fixed(2, FixedSpec { heads: 1, rows: 2, cols: columns })?;
        Ok(TensorType::rows(m, columns.saturating_mul(2)).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, batch) = (a.tensor(0)?.to_rows(), batch_at(&a, 1)?);
        Ok(rows_of(bounds_of_windows(a.fixed(2)?, &batch, &x, self.width)))
    }
}

impl Rule for SelectWindows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let ((m, n), spec) = (a.activation(0)?, a.kv(1)?);
        a.index(2, Dim::Tokens)?;
        if m != Dim::Tokens {
            return Err(format!("`{}`: queries need a row per token", a.name));
        }
        if let Some(what) = spec.misread().or_else(|| windows_misfit(&spec, self.heads, self.kv_heads, self.windows)) {
            return Err(format!("`{}`: {what}", a.name));
        }
        let d = spec.value_dim / (2 * self.kv_heads);
        a.same("query columns and heads × elements of a key", n, self.heads.saturating_mul(d))?;
        let columns = self.kv_heads.saturating_mul((self.windows + 1).saturating_mul(spec.every));
        Ok(TensorType::rows(m, columns).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (q, batch): (Vec<Vec<f64>>, _) = (Tensor::to_rows(a.tensor(0)?), batch_at(&a, 2)?);
        let kv_heads = self.kv_heads;
        Ok(rows_of(select_windows(a.kv(1)?.1, &batch, &q, (kv_heads, self.windows))?))
    }
}
