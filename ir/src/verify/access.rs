//! Which columns of its operands a kernel reads and writes.

use crate::kernel::{Kernel, ParamId, ParamKind, Use};
use std::ops::Range;

/// One use of an operand by a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The operand.
    pub param: ParamId,
    /// Columns (rows operands); empty for weights and states, which are used as a whole.
    pub cols: Range<usize>,
    /// Written, else read.
    pub write: bool,
    /// The segment that uses it; `None`: the kernel as a whole.
    pub segment: Option<usize>,
}

/// Every use of every operand, in the order of the kernel's text. A cache is read by attention and
/// written by the stores of keys and values.
pub fn accesses(kernel: &Kernel) -> Vec<Access> {
    let all = |param: ParamId| match kernel.params.get(param).map(|p| &p.kind) {
        Some(ParamKind::Rows { cols, .. }) => 0..*cols,
        Some(ParamKind::Matrix { .. } | ParamKind::Vector { .. } | ParamKind::State(_)) | None => 0..0,
    };
    let access = |(param, used): (ParamId, Use)| {
        let cols = used.cols.unwrap_or_else(|| all(param));
        Access { param, cols, write: used.write, segment: used.segment }
    };
    kernel.body.operands().into_iter().map(access).collect()
}
