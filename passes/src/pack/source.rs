//! Where weights come from, and why they cannot be packed.

use crate::method::{Method, Moments, NEAREST, Pruning};
use llmcc_ir::plan::{PackedWeight, Storage};
use llmcc_ir::quant::StoredRows;
use llmcc_ir::ty::DType;

/// A tensor of a checkpoint.
#[derive(Clone, Debug)]
pub struct TensorBytes<'a> {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Little-endian elements, row-major.
    pub data: &'a [u8],
}

/// A weight that is packed already.
#[derive(Clone, Copy, Debug)]
pub struct PackedBefore<'a> {
    /// Its storage: that of the weight wanted, in whatever packing.
    pub storage: Storage,
    /// Its bytes; of a vector, without padding.
    pub bytes: &'a [u8],
    /// Its relative root mean square error, where packing was not exact.
    pub error: Option<f64>,
    /// Share of its values that are zero, where some were pruned.
    pub zeros: Option<f64>,
}

/// Where weights come from.
pub trait WeightSource: Sync {
    /// The tensor called `name`, whose elements lie one after the other.
    fn tensor(&self, name: &str) -> Option<TensorBytes<'_>>;
    /// The rows of a tensor that are not simply its elements: codes, or elements in another order.
    /// They have the type and shape that the module says.
    fn rows(&self, _name: &str) -> Option<Box<dyn StoredRows + '_>> {
        None
    }
    /// Sums over the inputs that the tensor `name` multiplies, where they are known.
    fn moments(&self, _name: &str) -> Option<Moments<'_>> {
        None
    }
    /// How the weights become codes.
    fn method(&self) -> &'static Method {
        &NEAREST
    }
    /// Weights of the layers' matrices that become zero, where these are rounded to codes.
    fn pruning(&self) -> Option<Pruning> {
        None
    }
    /// A weight that is packed already, in whatever order: it is not computed again.
    fn packed(&self, _weight: &PackedWeight) -> Option<PackedBefore<'_>> {
        None
    }
    /// Whether everything was packed before, so that no value needs to be looked at that packing hides.
    fn was_packed(&self) -> bool {
        false
    }
    /// `name` will not be read again: its pages may go.
    fn release(&self, name: &str);
}

/// Why weights cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The checkpoint lacks a tensor.
    #[error("tensor `{0}` is missing from the checkpoint")]
    Missing(String),
    /// A tensor is not as the module says.
    #[error("tensor `{name}` is {found}, but the model needs {wanted}")]
    Mismatch {
        /// Tensor.
        name: String,
        /// Type in the checkpoint.
        found: String,
        /// Type in the module.
        wanted: String,
    },
    /// A value cannot be stored.
    #[error("{tensor}: row {row}, column {col}: {value} {what}")]
    Value {
        /// Tensors the weight is computed from.
        tensor: String,
        /// Row of the packed weight.
        row: usize,
        /// Column (for quantized formats: the first of its group).
        col: usize,
        /// The value (for quantized formats: the largest of its group).
        value: f32,
        /// The fault, and the remedy.
        what: String,
    },
    /// Weights were to become zero in a format that has no zero.
    #[error("weights cannot be pruned in {format}, which has no code of zero: give {others}")]
    NoZero {
        /// The format.
        format: String,
        /// Formats with zeros.
        others: String,
    },
    /// A weight expression breaks the rules (a compiler bug).
    #[error("weight expression over {tensor}: {what}; this is a bug of the compiler, please report it")]
    Expression {
        /// Tensors the weight is computed from.
        tensor: String,
        /// Broken rule.
        what: String,
    },
    /// The sink failed.
    #[error("cannot write packed weights: {0}")]
    Write(#[from] std::io::Error),
}

impl PackError {
    /// Whether a value is beyond the range of the format: another format may hold it.
    pub fn too_large(&self) -> bool {
        matches!(self, PackError::Value { value, .. } if value.is_finite())
    }
}

/// Message for a value that is not finite. No format stores such values.
pub(super) fn not_finite(name: &str) -> String {
    let folded = if name.contains(" + ") { ", or the product of the tensors overflows f32" } else { "" };
    format!("is not a finite number, so the checkpoint is damaged{folded}: download or convert it again")
}
