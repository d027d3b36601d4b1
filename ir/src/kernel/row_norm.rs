//! Row-wise work: gathers, norms, gains, biases, a residual, rounding to other storage.

use super::part::family;
use super::{Family, Norm, Outcome, Param, ParamId, ParamKind, RowElem, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::ty::Dim;
use crate::verify::KernelVerifier;

family! {
    /// Row-wise kernel: `residual + (norm(x)·gain + bias)`, each part if there is one. Work items are
    /// rows.
    RowNorm {
        /// Input rows.
        x: ParamId as Use::READ,
        /// Input row of output row `i` is `out_rows[i]`.
        gather: bool,
        /// Normalization.
        norm: Option<Norm>,
        /// Gain: element `j mod len`.
        gain: Option<ParamId> as Use::READ,
        /// Added after the gain: element `j mod len`.
        bias: Option<ParamId> as Use::READ,
        /// f32 rows to which the result is added; none where rows are gathered.
        residual: Option<ParamId> as Use::READ,
        /// Output rows, in the operand's storage.
        out: ParamId as Use::WRITE,
    }
}

impl RowNorm {
    /// `x` as it is, in the storage of `out`.
    pub fn plain(x: ParamId, out: ParamId) -> RowNorm {
        RowNorm { x, gather: false, norm: None, gain: None, bias: None, residual: None, out }
    }
}

impl Family for RowNorm {
    /// A row is normalized in place by the item that owns it.
    fn in_place(&self) -> bool {
        !self.gather && (self.x == self.out || self.residual == Some(self.out))
    }

    // The scale of a row is known to those who have the row.
    fn has_whole_groups(&self, params: &[Param], elem: RowElem) -> bool {
        match params.get(self.x).map(|p| &p.kind) {
            Some(ParamKind::Rows { cols, .. }) => !elem.by_row() || self.norm.is_none_or(|norm| norm.width == *cols),
            _ => !elem.by_row(),
        }
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        if self.gather && v.kernel.rows != Dim::Rows {
            v.error("kernel-rows", format!("gathers: its rows must be R, not {}", v.kernel.rows));
        }
        let x = v.f32_rows(self.x, if self.gather { Dim::Tokens } else { v.kernel.rows });
        let out = v.rows(self.out, v.kernel.rows);
        let Some(cols) = x else { return };
        if let Some((have, _)) = out {
            v.columns(self.out, have, cols);
        }
        if let Some(norm) = &self.norm {
            v.norm(norm, cols);
        }
        for (name, vector) in [("gain", self.gain), ("bias", self.bias)] {
            if let Some(len) = vector.and_then(|g| v.vector(g)).filter(|len| *len == 0 || !cols.is_multiple_of(*len)) {
                v.error("vector-length", format!("a {name} of {len} elements does not divide {cols} columns"));
            }
        }
        if self.gather && self.residual.is_some() {
            v.error("gather-residual", "adds to a residual what it gathers");
        }
        if let Some(residual) = self.residual
            && let Some(have) = v.f32_rows(residual, v.kernel.rows)
        {
            v.columns(residual, have, cols);
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let row = |i: usize| {
            let mut row = x.row(self.x, if self.gather { x.batch.out_rows[i] } else { i });
            if let Some(norm) = &self.norm {
                x.norm(&mut row, norm);
            }
            x.gain(&mut row, self.gain);
            x.bias(&mut row, self.bias);
            if let Some(residual) = self.residual {
                row.iter_mut().zip(x.row(residual, i)).for_each(|(v, r)| *v += r);
            }
            row
        };
        Ok(Outcome::rows(vec![(Store::all(self.out), (0..x.m).map(row).collect())]))
    }
}
