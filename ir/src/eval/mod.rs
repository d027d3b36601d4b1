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

mod batch;
mod bytes;
mod evict;
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
mod windows;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod kv_tests;
#[cfg(test)]
mod tests;

pub use crate::state::{AdapterState, FixedState, State};
pub use batch::Batch;
pub use bytes::{
    fp8_rows_from_bytes, fp8_rows_to_bytes, half_rows_from_bytes, half_rows_to_bytes, kv_from_pages, kv_to_pages,
    q8_rows_from_bytes, q8_rows_to_bytes, rows_from_bytes, rows_to_bytes,
};
pub(crate) use evict::{Evict, evicting_attention};
pub use graph::{eval_entry, eval_func, eval_module, eval_taps};
pub(crate) use kernel::{KernelRun, RowValues};
pub use kernel::{OperandData, eval_kernel};
pub use kv::KvState;
pub(crate) use kv::{Attend, attention, whole_queries};
pub use kv::{ScoreBias, relative_reach};
pub use moments::{Moments, TappedRows};
pub use plan::{eval_plan, eval_plan_entry, eval_plan_taps, eval_plan_watched};
pub(crate) use recurrent::{Each, Inputs, convolve, means_of_windows, recur, weighted_means};
pub use rows::{Fp8Rows, Q8Rows, Rows, dequantize_q8_row, excesses, integer_row, quantize_q8_row};
pub use scalar::rope_angle;
pub(crate) use scalar::{
    dot, nearest, normalize, rope, rope_row, rope_row_of, rope_set, row_of_position, subtract_mean,
};
pub(crate) use select::{select, selected};
pub use tensor::{Tensor, Value};
pub(crate) use top_k::top_k;
pub use weight::{WeightTensor, eval_weight, eval_weight_op};
pub(crate) use windows::{bounds_of_windows, select_windows};

use crate::graph::F32;

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
