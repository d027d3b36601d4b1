//! Errors of the passes.

use llmcc_ir::graph::Func;

/// Why a module cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassError {
    /// The module breaks a rule of the graph level.
    #[error("function `{func}`: {what}")]
    Invalid {
        /// Function.
        func: String,
        /// Rule.
        what: String,
    },
    /// No set of kernels computes the function.
    #[error(
        "no kernels were found for the function: {0}; this is a bug of the compiler, please report it with the model's config.json"
    )]
    Extract(String),
    /// Kernels and formats cannot be chosen together in a reasonable time.
    #[error(
        "the choice of this model's kernels and formats is too intricate to be made exactly; ask for one format (--w4, \
         --w8, --format) instead of --error-budget"
    )]
    Intricate,
    /// No combination of the allowed formats is that exact.
    #[error(
        "the error budget cannot be kept: the smallest error that the allowed weight formats reach is {least}, most of it in {worst}; raise the budget to that"
    )]
    Budget {
        /// √(Σ nᵢ·eᵢ² / Σ nᵢ) of the most exact program, rounded up.
        least: String,
        /// Tensors with the largest part in it.
        worst: String,
    },
    /// Weights could not be read to measure their rounding errors.
    #[error("{0}")]
    Weights(String),
    /// Several formats are allowed, but there is nothing to measure them on.
    #[error(
        "choosing among several weight formats needs the weights: use `compile_measured`; this is a bug of the caller"
    )]
    Unmeasured,
    /// Chosen kernels could not be put in order.
    #[error("function `{func}`: {what}; this is a bug of the compiler, please report it with the model's config.json")]
    Schedule {
        /// Function.
        func: String,
        /// Rule.
        what: String,
    },
    /// The result of a pass breaks a rule of the plan level.
    #[error("pass `{pass}` produced an invalid result: {what}; this is a bug of the compiler, please report it")]
    Verify {
        /// Pass.
        pass: &'static str,
        /// First complaint of the verifier.
        what: String,
    },
}

impl PassError {
    pub(crate) fn invalid(func: &Func, what: String) -> PassError {
        PassError::Invalid { func: func.name.clone(), what }
    }
}
