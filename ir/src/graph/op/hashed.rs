//! Ids of tokens as numbers, and rows of a table by hashes of them.

use super::of::{EmbedHashed, TokenIds};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value};
use crate::graph::value::ValueType;
use crate::ty::{Dim, TensorType};

/// The rows of a table for several ids: see [`Op::EmbedHashed`](super::Op::EmbedHashed).
#[derive(Clone, Copy, Debug)]
pub struct Hashes<'a> {
    /// Multiply ids, one each.
    pub factors: &'a [usize],
    /// Rows that each hash chooses from.
    pub sizes: &'a [usize],
}

impl Hashes<'_> {
    /// Most rows of a table, so that their numbers are of 32 bits.
    pub const MOST: usize = i32::MAX as usize;

    /// Why it does not fit `ids` or a table of `rows` rows.
    pub fn misfit(&self, ids: usize, rows: usize) -> Option<String> {
        let (factors, sizes) = (self.factors.len(), self.sizes.len());
        let total = self.sizes.iter().try_fold(0usize, |sum, size| sum.checked_add(*size));
        match total {
            _ if ids < 2 || factors != ids => {
                Some(format!("{factors} `factors` for {ids} ids; there must be one for each, at least 2"))
            }
            _ if sizes == 0 || !sizes.is_multiple_of(ids - 1) => {
                Some(format!("{sizes} `sizes` are not a multiple of {} runs", ids - 1))
            }
            _ if self.sizes.contains(&0) => Some("one of its sizes is 0".into()),
            Some(total) if total <= rows && rows <= Hashes::MOST => None,
            _ => Some(format!(
                "`sizes` add up to more than the table's {rows} rows, or these are more than {}",
                Hashes::MOST
            )),
        }
    }

    /// Ids that hash `number` is of.
    pub fn ids(&self, number: usize) -> usize {
        let run = self.sizes.len() / self.factors.len().saturating_sub(1).max(1);
        number / run.max(1) + 2
    }

    /// The first row that hash `number` chooses from.
    pub fn first(&self, number: usize) -> usize {
        self.sizes.iter().take(number).sum()
    }

    /// The rows of these ids.
    pub fn rows(&self, ids: &[u64]) -> Vec<usize> {
        let row = |(number, size): (usize, &usize)| {
            let products = ids.iter().zip(self.factors).take(self.ids(number));
            let hash = products.fold(0, |hash, (id, factor)| hash ^ id.wrapping_mul(*factor as u64));
            self.first(number) + (hash % (*size).max(1) as u64) as usize
        };
        self.sizes.iter().enumerate().map(row).collect()
    }
}

impl Rule for TokenIds {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        a.index(0, Dim::Tokens)?;
        Ok(TensorType::rows(Dim::Tokens, 1).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let tokens = a.tensor(0)?;
        Ok(Value::tensor(Tensor { shape: vec![tokens.data.len(), 1], data: tokens.data.clone() }))
    }
}

impl EmbedHashed {
    fn hashes(&self) -> Hashes<'_> {
        Hashes { factors: &self.factors, sizes: &self.sizes }
    }
}

impl Rule for EmbedHashed {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let ((rows, cols), (m, ids)) = (a.weight_matrix(0)?, a.activation(1)?);
        match self.hashes().misfit(ids, rows) {
            _ if m != Dim::Tokens => Err(format!("`{}` needs a row per token", a.name)),
            Some(what) => Err(format!("`{}`: {what}", a.name)),
            None => Ok(TensorType::rows(m, cols.saturating_mul(self.sizes.len())).into()),
        }
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (table, ids) = (a.tensor(0)?, a.tensor(1)?);
        let hashes = self.hashes();
        let mut data = vec![];
        for ids in ids.rows() {
            let found = hashed_ids(ids)?;
            for row in hashes.rows(&found) {
                data.extend(table.rows().nth(row).unwrap_or_default());
            }
        }
        Ok(Value::tensor(Tensor { shape: vec![ids.shape[0], table.cols() * self.sizes.len()], data }))
    }
}

/// Ids that are stored as numbers.
pub(crate) fn hashed_ids(ids: &[f64]) -> Result<Vec<u64>, EvalError> {
    let whole = |x: &f64| (0.0..16_777_216.0).contains(x) && x.fract() == 0.0;
    match ids.iter().find(|x| !whole(x)) {
        Some(x) => Err(EvalError::batch(format!("{x} is not a token id"))),
        None => Ok(ids.iter().map(|x| *x as u64).collect()),
    }
}
