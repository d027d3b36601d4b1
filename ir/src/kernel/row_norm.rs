//! Row-wise work: gathers, norms, gains, biases, a residual, rounding to other storage.

use super::{Family, Field, Norm, Outcome, Param, ParamId, ParamKind, ReadFamily, RowElem, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::text::{KernelReader, Parsed, Parser};
use crate::ty::Dim;
use crate::verify::KernelVerifier;

/// Row-wise kernel: `residual + (norm(x)·gain + bias)`, each part if there is one. Work items are
/// rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowNorm {
    /// Input rows.
    pub x: ParamId,
    /// Input row of output row `i` is `out_rows[i]`.
    pub gather: bool,
    /// Normalization.
    pub norm: Option<Norm>,
    /// Gain: element `j mod len`.
    pub gain: Option<ParamId>,
    /// Added after the gain: element `j mod len`.
    pub bias: Option<ParamId>,
    /// f32 rows to which the result is added; none where rows are gathered.
    pub residual: Option<ParamId>,
    /// Output rows, in the operand's storage.
    pub out: ParamId,
}

impl RowNorm {
    /// `x` as it is, in the storage of `out`.
    pub fn plain(x: ParamId, out: ParamId) -> RowNorm {
        RowNorm { x, gather: false, norm: None, gain: None, bias: None, residual: None, out }
    }
}

impl Family for RowNorm {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.x, Use::READ);
        for part in [&mut self.gain, &mut self.bias, &mut self.residual].into_iter().flatten() {
            f(part, Use::READ);
        }
        f(&mut self.out, Use::WRITE);
    }

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

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("x", Field::Operand(self.x)),
            ("gather", Field::Flag(self.gather)),
            ("norm", Field::Norm(self.norm)),
            ("gain", Field::Optional(self.gain)),
            ("bias", Field::Optional(self.bias)),
            ("residual", Field::Optional(self.residual)),
            ("out", Field::Operand(self.out)),
        ]
    }
}

impl ReadFamily for RowNorm {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<RowNorm> {
        Ok(RowNorm {
            x: r.field(p, "x")?,
            gather: p.eat_word("gather"),
            norm: r.optional_norm(p)?,
            gain: r.optional_field(p, "gain")?,
            bias: r.optional_field(p, "bias")?,
            residual: r.optional_field(p, "residual")?,
            out: r.field(p, "out")?,
        })
    }
}
