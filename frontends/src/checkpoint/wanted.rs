//! Tensors that a model asks for, before there is a checkpoint.

/// A tensor that a model asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Name in the checkpoint.
    pub name: String,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Its use.
    pub role: WantedRole,
}

/// The use of a tensor that a model asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WantedRole {
    /// The matrix of a product, `[out, in]`.
    Product,
    /// One that methods of quantization leave as it is unless their settings name it: head, router, scores.
    Spared,
    /// The matrices of all experts in one tensor, `[experts, in, out]`.
    Experts,
    /// A factor of normalized rows.
    Gain,
    /// Whole numbers; each row holds a permutation of its columns.
    Numbers,
    /// Another: tables, biases, taps, rates.
    Other,
}
