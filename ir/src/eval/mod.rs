//! The oracle: plain f64 evaluators of all three levels.
//!
//! - [`eval_module`], [`eval_entry`], [`eval_func`]: graph level, no rounding between operations (a cache rounds as
//!   its [`KvDType`](crate::kv::KvDType) says, f32 excepted).
//! - [`eval_kernel`]: kernel level, f64 inside a kernel; a stored row is rounded to f32, f16 or
//!   bf16, or quantized to int8 exactly by the rule of [`llmcc_abi::layout`]; weights are read from
//!   their packed bytes.
//! - [`eval_plan`], [`eval_plan_entry`]: a whole step on memory slots, filled with NaN so that a wrong lifetime shows.
//! - [`eval_weight`]: weight expressions in f32, the definition of packed values.
//!
//! They are written to be obviously right, not fast. Wrong input gives an [`EvalError`], never a
//! panic: shapes are checked where they are used.

mod bytes;
mod graph;
mod kernel;
mod kv;
mod moments;
mod plan;
mod recurrent;
mod rows;
mod scalar;
mod select;
mod tensor;
mod top_k;
mod weight;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod kv_tests;
#[cfg(test)]
mod tests;

pub use crate::state::{AdapterState, FixedState, State};
pub use bytes::{
    fp8_rows_from_bytes, fp8_rows_to_bytes, half_rows_from_bytes, half_rows_to_bytes, kv_from_pages, kv_to_pages,
    q8_rows_from_bytes, q8_rows_to_bytes, rows_from_bytes, rows_to_bytes,
};
pub use graph::{eval_entry, eval_func, eval_module, eval_taps};
pub(crate) use kernel::{KernelRun, RowValues};
pub use kernel::{OperandData, eval_kernel};
pub use kv::KvState;
pub(crate) use kv::{Attend, attention, whole_queries};
pub use kv::{ScoreBias, relative_reach};
pub use moments::{Moments, TappedRows};
pub use plan::{eval_plan, eval_plan_entry, eval_plan_taps, eval_plan_watched};
pub(crate) use recurrent::{Each, Inputs, convolve, means_of_windows, recur, weighted_means};
pub use rows::{Fp8Rows, Q8Rows, Rows, dequantize_q8_row, integer_row, quantize_q8_row};
pub use scalar::rope_angle;
pub(crate) use scalar::{dot, normalize, rope, rope_row, rope_set, row_of_position, subtract_mean};
pub(crate) use select::{select, selected};
pub use tensor::{Tensor, Value};
pub(crate) use top_k::top_k;
pub use weight::{WeightTensor, eval_weight, eval_weight_op};

use crate::graph::F32;
use crate::ty::Env;
use std::collections::HashMap;

/// Tokens of one step: any number of sequences, in any order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// `[T]` token ids.
    pub tokens: Vec<i32>,
    /// `[T]` sequence of each token: row of the block table, index in a [`State`].
    pub seqs: Vec<usize>,
    /// `[T]` position of each token in its sequence.
    pub positions: Vec<i32>,
    /// `[T]` type of each token; tokens beyond the last are of type 0.
    pub types: Vec<i32>,
    /// `[T, hidden]` a row of each token, of a model that takes rows; else nothing.
    pub hidden: Vec<f32>,
    /// `[T]` where what each token sees ends, in attention that is not causal; nothing: with its sequence.
    pub sees: Vec<usize>,
    /// `[R]` token rows whose logits are wanted.
    pub out_rows: Vec<usize>,
    /// `[R]` candidates requested for each row; rows beyond the last request all, at temperature 1.
    pub wanted: Vec<Wanted>,
}

/// A step's request to [`TopK`](crate::kernel::TopK) for one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// 0, 1, or more: all.
    pub candidates: usize,
    /// Factor of logits before they become powers of two.
    pub scale: F32,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted { candidates: usize::MAX, scale: F32::new(std::f32::consts::LOG2_E) }
    }
}

impl Batch {
    /// Tokens of sequence 0 from position `start`, logits for all of them.
    pub fn single(tokens: &[i32], start: i32) -> Batch {
        let n = tokens.len();
        Batch {
            tokens: tokens.to_vec(),
            seqs: vec![0; n],
            positions: (start..).take(n).collect(),
            out_rows: (0..n).collect(),
            ..Batch::default()
        }
    }

    /// Appends tokens of sequence `seq` from position `start`, with logits for the last one.
    pub fn push(&mut self, seq: usize, tokens: &[i32], start: i32) {
        self.tokens.extend_from_slice(tokens);
        self.seqs.extend(tokens.iter().map(|_| seq));
        self.positions.extend((start..).take(tokens.len()));
        self.out_rows.extend(self.tokens.len().checked_sub(1));
    }

    /// The same batch, in which tokens see no later ones, but all of the tokens `of` that stand together: the rows of
    /// an image see each other.
    pub fn with_runs(self, of: i32) -> Batch {
        let mut sees = vec![0; self.tokens.len()];
        // The token after one, of its sequence: where its run ends, if it is in one.
        let mut after: HashMap<usize, usize> = HashMap::new();
        for (i, seq) in self.seqs.iter().enumerate().rev() {
            let own = self.positions[i].max(0) as usize + 1;
            let inside = self.tokens.get(i) == Some(&of);
            sees[i] = if inside { after.get(seq).copied().unwrap_or(own) } else { own };
            if inside {
                after.insert(*seq, sees[i])
            } else {
                after.remove(seq)
            };
        }
        Batch { sees, ..self }
    }

    /// The type of token `i`.
    pub fn type_of(&self, i: usize) -> i32 {
        self.types.get(i).copied().unwrap_or(0)
    }

    /// Columns of the rows that tokens have; 0: they have none.
    pub fn hidden_cols(&self) -> usize {
        self.hidden.len() / self.tokens.len().max(1)
    }

    /// The row of token `i`.
    pub fn hidden_of(&self, i: usize) -> &[f32] {
        let cols = self.hidden_cols();
        self.hidden.get(i * cols..(i + 1) * cols).unwrap_or_default()
    }

    /// `[T]` how long each token's sequence is after the step: one more than the largest position
    /// that any of its tokens here has.
    pub fn ends(&self) -> Vec<i32> {
        let largest = |seq: &usize| {
            let of = self.seqs.iter().zip(&self.positions).filter(|(s, _)| *s == seq);
            of.map(|(_, p)| p.saturating_add(1)).max().unwrap_or(0)
        };
        self.seqs.iter().map(largest).collect()
    }

    /// Values of the symbolic dimensions.
    pub fn env(&self) -> Env {
        Env { tokens: self.tokens.len(), rows: self.out_rows.len() }
    }

    /// Checks that the arrays fit together.
    ///
    /// # Errors
    /// Names the array that does not.
    pub fn check(&self) -> Result<(), EvalError> {
        let t = self.tokens.len();
        if self.seqs.len() != t || self.positions.len() != t {
            return Err(EvalError::batch(format!(
                "{t} tokens, {} sequences, {} positions",
                self.seqs.len(),
                self.positions.len()
            )));
        }
        if let Some(p) = self.positions.iter().find(|p| **p < 0) {
            return Err(EvalError::batch(format!("negative position {p}")));
        }
        if let Some(r) = self.out_rows.iter().find(|r| **r >= t) {
            return Err(EvalError::batch(format!("logits row {r} of {t} tokens")));
        }
        Ok(())
    }
}

/// Why something cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The arrays of the step do not fit together, or name a token or row that does not exist.
    #[error("the batch is malformed: {0}")]
    Batch(String),
    /// The input breaks a rule of its level; the verifier says more.
    #[error("{place}: {message}; run the verifier on it")]
    Malformed {
        /// Function and node, kernel, or launch.
        place: String,
        /// Which rule.
        message: String,
    },
    /// Something evaluated is not of the shape its user declares.
    #[error("{place}: operand {operand} {message}")]
    Operand {
        /// Function or kernel.
        place: String,
        /// Number or name of the operand.
        operand: String,
        /// How it differs.
        message: String,
    },
    /// An order of columns names one that does not exist, or one twice.
    #[error("{column} is not one of {cols} columns, or is named twice")]
    NoColumn {
        /// As named.
        column: String,
        /// Columns.
        cols: usize,
    },
    /// Attention reads a position that was never stored.
    #[error("sequence {seq} has no key and value at position {position}: store the earlier positions first")]
    MissingKv {
        /// Sequence.
        seq: usize,
        /// Position.
        position: usize,
    },
}

impl EvalError {
    pub(crate) fn batch(message: impl Into<String>) -> EvalError {
        EvalError::Batch(message.into())
    }
    pub(crate) fn malformed(place: impl Into<String>, message: impl Into<String>) -> EvalError {
        EvalError::Malformed { place: place.into(), message: message.into() }
    }
    pub(crate) fn operand(
        place: impl Into<String>,
        operand: impl Into<String>,
        message: impl Into<String>,
    ) -> EvalError {
        EvalError::Operand { place: place.into(), operand: operand.into(), message: message.into() }
    }
}
