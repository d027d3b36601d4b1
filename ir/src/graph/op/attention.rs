//! Attention and its state.

use super::of::{Attention, KvAppend};
use super::rule::{Operands, Rule, Types};
use crate::eval::{Attend, Batch, EvalError, Tensor, Value, attention};
use crate::graph::value::ValueType;
use crate::ty::{Dim, TensorType};

impl Rule for KvAppend {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let spec = a.kv(0)?;
        for i in [1, 2] {
            let (m, n) = a.activation(i)?;
            a.same("columns and KV width", n, spec.width())?;
            if m != Dim::Tokens {
                return Err("`kv_append`: keys and values need a row per token".into());
            }
        }
        a.index(3, Dim::Tokens)?;
        Ok(ValueType::Kv(spec))
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (k, v, positions) = (a.tensor(1)?, a.tensor(2)?, a.tensor(3)?);
        let seqs = &a.batch.seqs;
        let (at, kv) = a.kv(0)?;
        for (i, (k, v)) in k.rows().zip(v.rows()).enumerate() {
            let position = positions.int(i).max(0) as usize;
            kv.store_key(seqs[i], position, k);
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
        a.same("query columns and heads × head size", n, self.heads.saturating_mul(spec.head_dim))?;
        if m != Dim::Tokens {
            return Err("`attention`: queries need a row per token".into());
        }
        a.multiple("number of KV heads", self.heads, spec.kv_heads)?;
        if self.softcap.get() < 0.0 {
            return Err(format!("`attention`: softcap {} is negative", self.softcap));
        }
        if a.len() > 3 {
            a.same("sinks and heads", a.vector(3)?, self.heads)?;
        }
        Ok(TensorType::rows(m, n).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let (q, positions) = (a.tensor(0)?, a.tensor(2)?);
        let positions: Vec<i32> = (0..positions.data.len()).map(|i| positions.int(i)).collect();
        let batch = Batch { positions, ..a.batch.clone() };
        let rows: Vec<Vec<f64>> = q.rows().map(<[f64]>::to_vec).collect();
        let sinks = if a.args.len() > 3 { Some(&a.tensor(3)?.data[..]) } else { None };
        let softcap = (self.softcap.get() != 0.0).then_some(self.softcap);
        let of = Attend { heads: self.heads, scale: self.scale, softcap, sinks, causal: self.causal };
        let out = attention(a.kv(1)?.1, &batch, &rows, &of)?;
        Ok(Value::tensor(Tensor { shape: q.shape.clone(), data: out.concat() }))
    }
}
