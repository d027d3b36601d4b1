//! Kernels that the verifier accepts.

use super::{Kernel, ParamId, ParamKind, RowElem};
use crate::diag::{Diagnostic, Severity};
use crate::kv::KvSpec;
use crate::quant::Format;
use crate::state::{AdapterSpec, FixedSpec, StateSpec};
use crate::ty::Dim;
use crate::verify::verify_kernel;
use std::ops::Deref;

/// A kernel without an error: each operand is of the kind that the body uses it as, and of a shape
/// that fits. Readers of a kernel after the verifier take this, and have no such errors of their
/// own.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a>(&'a Kernel);

/// An operand that is a matrix of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsOperand {
    /// `T` or `R`.
    pub rows: Dim,
    /// Columns.
    pub cols: usize,
    /// Element storage.
    pub elem: RowElem,
}

/// An operand that is a packed matrix `[n, k]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixOperand {
    /// Rows (outputs).
    pub n: usize,
    /// Columns (inputs).
    pub k: usize,
    /// Storage.
    pub format: Format,
}

impl Kernel {
    /// The kernel, if the verifier accepts it.
    ///
    /// # Errors
    /// All its errors; warnings are no obstacle.
    pub fn check(&self) -> Result<Checked<'_>, Vec<Diagnostic>> {
        let errors: Vec<Diagnostic> =
            verify_kernel(self).into_iter().filter(|d| d.severity == Severity::Error).collect();
        if errors.is_empty() { Ok(Checked(self)) } else { Err(errors) }
    }
}

impl<'a> Checked<'a> {
    /// The kernel itself, for as long as it lives.
    pub fn kernel(self) -> &'a Kernel {
        self.0
    }

    /// An operand that the body uses as a matrix of rows.
    pub fn rows(self, p: ParamId) -> RowsOperand {
        match self.0.params[p].kind {
            ParamKind::Rows { rows, cols, elem } => RowsOperand { rows, cols, elem },
            ParamKind::Matrix { .. } | ParamKind::Vector { .. } | ParamKind::State(_) => {
                self.unused(p, "a matrix of rows")
            }
        }
    }

    /// An operand that the body uses as a packed matrix.
    pub fn matrix(self, p: ParamId) -> MatrixOperand {
        match self.0.params[p].kind {
            ParamKind::Matrix { n, k, format } => MatrixOperand { n, k, format },
            ParamKind::Rows { .. } | ParamKind::Vector { .. } | ParamKind::State(_) => {
                self.unused(p, "a packed matrix")
            }
        }
    }

    /// Length of an operand that the body uses as a vector; at least 1.
    pub fn vector(self, p: ParamId) -> usize {
        match self.0.params[p].kind {
            ParamKind::Vector { len } => len,
            ParamKind::Rows { .. } | ParamKind::Matrix { .. } | ParamKind::State(_) => self.unused(p, "a vector"),
        }
    }

    /// An operand that the body uses as an attention state.
    pub fn kv(self, p: ParamId) -> KvSpec {
        *self.state(p, "an attention state", StateSpec::paged)
    }

    /// An operand that the body uses as a state of fixed size.
    pub fn fixed(self, p: ParamId) -> FixedSpec {
        *self.state(p, "a state of fixed size", StateSpec::fixed)
    }

    /// An operand that the body uses as a matrix of adapters.
    pub fn adapter(self, p: ParamId) -> AdapterSpec {
        *self.state(p, "a matrix of adapters", StateSpec::adapter)
    }

    /// An operand that the body uses as a state of the kind that `get` asks for.
    pub fn state<T>(self, p: ParamId, what: &str, get: impl Fn(&'a StateSpec) -> Option<&'a T>) -> &'a T {
        self.0.params[p].kind.state().and_then(get).unwrap_or_else(|| self.unused(p, what))
    }

    /// The verifier would have refused the kernel, unless who asks takes the operand for another
    /// one.
    fn unused(self, p: ParamId, what: &str) -> ! {
        unreachable!("kernel `{}` does not use operand {p} as {what}", self.0.name)
    }
}

impl Deref for Checked<'_> {
    type Target = Kernel;
    fn deref(&self) -> &Kernel {
        self.0
    }
}
