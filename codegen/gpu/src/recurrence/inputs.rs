//! Operands of a recurrence.

use crate::cx::{Args, Cx};
use crate::mlir::{Builder, V};
use crate::piece::row_at;
use llmcc_ir::kernel::{ParamId, ParamKind, RowElem};

/// Where the rows of an operand are.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub p: ParamId,
    /// First column.
    pub start: usize,
    /// Columns of a token's row; `None` of a vector, which is the same for all.
    pub cols: Option<usize>,
}

impl Line {
    pub fn new(cx: &Cx<'_>, p: ParamId, start: usize) -> Line {
        let cols = match cx.kernel.params[p].kind {
            ParamKind::Vector { .. } => None,
            ParamKind::Rows { .. } | ParamKind::Matrix { .. } | ParamKind::State(_) => Some(cx.cols(p)),
        };
        Line { p, start, cols }
    }

    /// Alignment of adjacent columns.
    pub fn unit(self) -> usize {
        self.cols.unwrap_or(0)
    }

    /// Address of the first column of a token.
    pub fn of(self, b: &mut Builder, args: Args<'_>, token: V) -> V {
        let base = args.operand(self.p);
        let line = self.cols.map_or(base, |cols| row_at(b, base, cols, RowElem::F32, token));
        b.atc(line, (self.start * 4) as i64)
    }
}

/// A token's inputs, as far as a lane needs them.
#[derive(Clone)]
pub(super) struct TokenInputs {
    /// Query elements of the lane's rows.
    pub q: Vec<V>,
    pub k: Vec<V>,
    /// Values of its columns.
    pub v: Vec<V>,
    /// One, or of the lane's rows; of a scan of its columns.
    pub decay: Vec<V>,
    /// A rate, or of the lane's rows; nothing of a scan.
    pub with: Vec<V>,
    /// Keys of erasure for the lane's rows.
    pub write: Vec<V>,
}

impl TokenInputs {
    pub fn flat(&self) -> Vec<V> {
        [&self.q[..], &self.k, &self.v, &self.decay, &self.with, &self.write].concat()
    }

    /// As many of each as `self` has.
    pub fn of(&self, mut flat: &[V]) -> TokenInputs {
        let mut next = |like: &Vec<V>| {
            let (these, rest) = flat.split_at(like.len());
            flat = rest;
            these.to_vec()
        };
        TokenInputs {
            q: next(&self.q),
            k: next(&self.k),
            v: next(&self.v),
            decay: next(&self.decay),
            with: next(&self.with),
            write: next(&self.write),
        }
    }
}
