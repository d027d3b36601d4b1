//! Attention and its state.

use super::of::{Attention, KvAppend, LatentAttention, RelativeAttention};
use super::rule::{Operands, Rule, Types};
use crate::eval::{Attend, Batch, EvalError, ScoreBias, Tensor, Value, attention, relative_reach, whole_queries};
use crate::graph::value::ValueType;
use crate::kv::KvSpec;
use crate::ty::{Dim, TensorType};

impl Rule for KvAppend {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let spec = a.kv(0)?;
        for (i, key) in [(1, true), (2, false)] {
            let (m, n) = a.activation(i)?;
            // A key that is the value is stored as the value.
            a.same("columns and KV width", n, spec.width(key && spec.own_dim() > 0))?;
            if m != Dim::Tokens {
                return Err("`kv_append`: keys and values need a row per token".into());
            }
        }
        a.index(3, Dim::Tokens)?;
        Ok(ValueType::State(spec.into()))
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (k, v, positions) = (a.tensor(1)?, a.tensor(2)?, a.tensor(3)?);
        let seqs = &a.batch.seqs;
        let (at, kv) = a.kv(0)?;
        for (i, (k, v)) in k.rows().zip(v.rows()).enumerate() {
            let position = positions.int(i).max(0) as usize;
            if kv.spec.own_dim() > 0 {
                kv.store_key(seqs[i], position, k);
            }
            kv.store_value(seqs[i], position, v);
        }
        Ok(Value::State(at))
    }
}

impl Rule for Attention {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, n) = a.activation(0)?;
        let spec = a.kv(1)?;
        a.index(2, Dim::Tokens)?;
        if spec.latent && spec.own_dim() > 0 {
            return Err(format!("`attention`: {spec} is read by `latent_attention`"));
        }
        if let Some(what) = spec.misfit(self.causal && !self.biased) {
            return Err(format!("`attention`: {what}"));
        }
        a.same("query columns and heads × head size", n, self.heads.saturating_mul(spec.key_dim))?;
        if m != Dim::Tokens {
            return Err("`attention`: queries need a row per token".into());
        }
        a.multiple("number of KV heads", self.heads, spec.kv_heads)?;
        if self.chunked && (spec.window.is_none() || !self.causal) {
            return Err("`attention`: chunks are causal windows".into());
        }
        if self.softcap.get() < 0.0 {
            return Err(format!("`attention`: softcap {} is negative", self.softcap));
        }
        let Extras { sinks, bias } = self.extras(a.len())?;
        if let Some(sinks) = sinks {
            a.same("sinks and heads", a.vector(sinks)?, self.heads)?;
        }
        if let Some(bias) = bias {
            ScoreBias::of(a.vector(bias)?, self.heads)?;
        }
        let of_head = spec.value_dim.saturating_add(if self.sums { 2 } else { 0 });
        Ok(TensorType::rows(m, self.heads.saturating_mul(of_head)).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (q, batch) = (a.tensor(0)?, batch_at(&a, 2)?);
        let Extras { sinks, bias } = self.extras(a.args.len()).map_err(|e| EvalError::malformed("", e))?;
        let extra = |at: Option<usize>| at.map(|at| a.tensor(at).map(|t| &t.data[..])).transpose();
        let (sinks, bias) = (extra(sinks)?, extra(bias)?);
        let softcap = (self.softcap.get() != 0.0).then_some(self.softcap);
        let Attention { heads, scale, causal, chunked, sums, .. } = *self;
        let of = Attend { softcap, sinks, bias, causal, chunked, sums, ..Attend::plain(heads, scale) };
        let out = attention(a.kv(1)?.1, &batch, &q.to_rows(), &of)?;
        Ok(rows_of(out))
    }
}

/// Which arguments the optional ones are.
struct Extras {
    sinks: Option<usize>,
    bias: Option<usize>,
}

impl Attention {
    fn extras(&self, args: usize) -> Result<Extras, String> {
        let bias = self.biased.then(|| args.saturating_sub(1)).filter(|at| *at >= 3);
        if bias.is_some() != self.biased || args > 4 + usize::from(self.biased) {
            return Err("`attention` has a bias, the last operand, if and only if it is `biased`".into());
        }
        Ok(Extras { sinks: (args > 3 + usize::from(self.biased)).then_some(3), bias })
    }
}

/// The tokens of the step, at the positions that argument `at` says.
pub(super) fn batch_at(a: &Operands<'_>, at: usize) -> Result<Batch, EvalError> {
    let positions = a.tensor(at)?;
    let positions = (0..positions.data.len()).map(|i| positions.int(i)).collect();
    Ok(Batch { positions, ..a.batch.clone() })
}

/// Rows of one length.
pub(super) fn rows_of(rows: Vec<Vec<f64>>) -> Value {
    let shape = vec![rows.len(), rows.first().map_or(0, Vec::len)];
    Value::tensor(Tensor { shape, data: rows.concat() })
}

/// The latent state that is argument 2, between queries for the two parts of its keys and positions.
pub(super) fn latent_state(a: &Types<'_>, heads: usize) -> Result<KvSpec, String> {
    let spec = a.kv(2)?;
    if !spec.latent {
        return Err(format!("`{}`: {spec} is not a latent state", a.name));
    }
    for (i, dim) in [(0, spec.value_dim), (1, spec.own_dim())] {
        let (m, n) = a.activation(i)?;
        a.same("query columns and heads × head size", n, heads.saturating_mul(dim))?;
        if m != Dim::Tokens {
            return Err(format!("`{}`: queries need a row per token", a.name));
        }
    }
    a.index(3, Dim::Tokens)?;
    Ok(spec)
}

/// The queries of such a state, those for both parts of a key together.
pub(super) fn latent_queries(a: &mut Operands<'_>, heads: usize) -> Result<Vec<Vec<f64>>, EvalError> {
    let (q, own) = (a.tensor(0)?, a.tensor(1)?);
    let spec = a.kv(2)?.1.spec;
    Ok(q.rows().zip(own.rows()).map(|(q, own)| whole_queries(&spec, heads, own, q)).collect())
}

/// Where sinks are among the arguments, if there are any.
const LATENT_SINKS: usize = 4;

impl Rule for LatentAttention {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let spec = latent_state(a, self.heads)?;
        a.multiple("number of KV heads", self.heads, spec.kv_heads)?;
        if a.len() > LATENT_SINKS {
            a.same("sinks and heads", a.vector(LATENT_SINKS)?, self.heads)?;
        }
        Ok(TensorType::rows(Dim::Tokens, self.heads.saturating_mul(spec.value_dim)).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (q, batch) = (latent_queries(&mut a, self.heads)?, batch_at(&a, 3)?);
        let sinks = (a.args.len() > LATENT_SINKS).then(|| a.tensor(LATENT_SINKS)).transpose()?;
        let of = Attend { sinks: sinks.map(|t| &t.data[..]), ..Attend::plain(self.heads, self.scale) };
        Ok(rows_of(attention(a.kv(2)?.1, &batch, &q, &of)?))
    }
}

impl Rule for RelativeAttention {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, n) = a.activation(0)?;
        let spec = a.kv(1)?;
        a.index(2, Dim::Tokens)?;
        if spec.latent || spec.window.is_some() {
            return Err(format!("`relative_attention`: {spec} is latent, or has a window"));
        }
        a.same("query columns and heads × head size", n, self.heads.saturating_mul(spec.key_dim))?;
        if m != Dim::Tokens {
            return Err("`relative_attention`: queries need a row per token".into());
        }
        a.multiple("number of KV heads", self.heads, spec.kv_heads)?;
        let len = a.vector(3)?;
        relative_reach(len, n)?;
        a.same("keys and queries of distances", a.vector(4)?, len)?;
        Ok(TensorType::rows(m, self.heads.saturating_mul(spec.value_dim)).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (q, batch) = (a.tensor(0)?, batch_at(&a, 2)?);
        let relative = Some([&a.tensor(3)?.data[..], &a.tensor(4)?.data[..]]);
        let of = Attend { relative, causal: false, ..Attend::plain(self.heads, self.scale) };
        Ok(rows_of(attention(a.kv(1)?.1, &batch, &q.to_rows(), &of)?))
    }
}
