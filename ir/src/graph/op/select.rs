//! The rows of a cache that an indexer selects, and attention over them.

use super::attention::{batch_at, latent_queries, latent_state, rows_of};
use super::of::{Select, SelectedAttention, SelectedLatentAttention};
use super::rule::{Operands, Rule, Types};
use crate::eval::{Attend, EvalError, Value, attention, select};
use crate::graph::value::ValueType;
use crate::kv::KvSpec;
use crate::ty::{Dim, TensorType};

impl Rule for Select {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let ((m, n), (w_rows, heads), spec) = (a.activation(0)?, a.activation(1)?, a.kv(2)?);
        a.index(3, Dim::Tokens)?;
        if let Some(what) = spec.misread() {
            return Err(format!("`select`: {what}"));
        }
        if heads != self.heads || self.heads == 0 {
            return Err(format!("`select`: {heads} weights for {} heads", self.heads));
        }
        a.same("query columns and heads × row size", n, self.heads.saturating_mul(spec.value_dim))?;
        if [m, w_rows] != [Dim::Tokens; 2] {
            return Err("`select`: queries and weights need a row per token".into());
        }
        if self.top == 0 {
            return Err("`select`: no rows are selected".into());
        }
        Ok(TensorType::rows(m, self.top).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (q, w, batch) = (a.tensor(0)?.to_rows(), a.tensor(1)?.to_rows(), batch_at(&a, 3)?);
        Ok(rows_of(select(a.kv(2)?.1, &batch, [&q, &w], self.top)?))
    }
}

/// The shape of a selection, and of sinks after it, as arguments from `at` on.
fn verify_selection(a: &Types<'_>, at: usize, heads: usize, spec: &KvSpec) -> Result<(), String> {
    if let Some(what) = spec.unselectable() {
        return Err(format!("`{}`: {what}", a.name));
    }
    if a.activation(at)?.0 != Dim::Tokens {
        return Err(format!("`{}`: selections need a row per token", a.name));
    }
    if a.len() > at + 1 {
        a.same("sinks and heads", a.vector(at + 1)?, heads)?;
    }
    a.multiple("number of KV heads", heads, spec.kv_heads)
}

/// Attention of queries over the selections that argument `at` has, before the sinks.
fn attend(a: &mut Operands<'_>, (kv, at): (usize, usize), q: &[Vec<f64>], of: Attend<'_>) -> Result<Value, EvalError> {
    let (batch, selection) = (batch_at(a, kv + 1)?, a.tensor(at)?.to_rows());
    let sinks = (a.args.len() > at + 1).then(|| a.tensor(at + 1)).transpose()?;
    let of = Attend { sinks: sinks.map(|t| &t.data[..]), selected: Some(&selection), ..of };
    Ok(rows_of(attention(a.kv(kv)?.1, &batch, q, &of)?))
}

impl Rule for SelectedAttention {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let ((m, n), spec) = (a.activation(0)?, a.kv(1)?);
        a.index(2, Dim::Tokens)?;
        if spec.latent && spec.own_dim() > 0 {
            return Err(format!("`{}`: {spec} is read by `selected_latent_attention`", a.name));
        }
        a.same("query columns and heads × head size", n, self.heads.saturating_mul(spec.key_dim))?;
        if m != Dim::Tokens {
            return Err(format!("`{}`: queries need a row per token", a.name));
        }
        verify_selection(a, 3, self.heads, &spec)?;
        if self.by_head {
            a.multiple("KV heads", a.activation(3)?.1, spec.kv_heads)?;
        }
        let of_head = spec.value_dim.saturating_add(if self.sums { 2 } else { 0 });
        Ok(TensorType::rows(m, self.heads.saturating_mul(of_head)).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let q = a.tensor(0)?.to_rows();
        let Self { heads, scale, sums, by_head } = *self;
        attend(&mut a, (1, 3), &q, Attend { sums, by_head, ..Attend::plain(heads, scale) })
    }
}

impl Rule for SelectedLatentAttention {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let spec = latent_state(a, self.heads)?;
        verify_selection(a, 4, self.heads, &spec)?;
        Ok(TensorType::rows(Dim::Tokens, self.heads.saturating_mul(spec.value_dim)).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let q = latent_queries(&mut a, self.heads)?;
        attend(&mut a, (2, 4), &q, Attend::plain(self.heads, self.scale))
    }
}
