//! Attention and its state.

use super::of::{Attention, KvAppend};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value, attention};
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

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let at = a.state(0)?;
        let (k, v, positions) = (a.tensor(1)?, a.tensor(2)?, a.tensor(3)?);
        for (i, (k, v)) in k.rows().zip(v.rows()).enumerate() {
            let position = positions.int(i).max(0) as usize;
            a.kv[at].store_key(a.batch.seqs[i], position, k);
            a.kv[at].store_value(a.batch.seqs[i], position, v);
        }
        Ok(Value::Kv(at))
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
        Ok(TensorType::rows(m, n).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (q, positions) = (a.tensor(0)?, a.tensor(2)?);
        let positions: Vec<i32> = (0..positions.data.len()).map(|i| positions.int(i)).collect();
        let rows: Vec<Vec<f64>> = q.rows().map(<[f64]>::to_vec).collect();
        let out = attention(&a.kv[a.state(1)?], &a.batch.seqs, &positions, &rows, self.heads, self.scale)?;
        Ok(Value::tensor(Tensor { shape: q.shape.clone(), data: out.concat() }))
    }
}
