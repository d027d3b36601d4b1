//! Row-wise work: gathers, norms, gains, rounding to other storage.

use super::{Family, Field, Norm, Param, ParamId, ReadFamily, Store, Use};
use crate::eval::{EvalError, KernelRun, RowValues};
use crate::text::{KernelReader, Parsed, Parser};
use crate::ty::Dim;
use crate::verify::KernelVerifier;

/// Row-wise kernel. Work items are rows.
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
    /// Output rows, in the operand's storage.
    pub out: ParamId,
}

impl Family for RowNorm {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.x, Use::READ);
        if let Some(gain) = &mut self.gain {
            f(gain, Use::READ);
        }
        f(&mut self.out, Use::WRITE);
    }

    /// A row is normalized in place by the item that owns it.
    fn in_place(&self) -> bool {
        !self.gather && self.x == self.out
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
        if let Some(len) = self.gain.and_then(|g| v.vector(g)).filter(|len| *len == 0 || !cols.is_multiple_of(*len)) {
            v.error("vector-length", format!("a gain of {len} elements does not divide {cols} columns"));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Vec<(Store, RowValues)>, EvalError> {
        let row = |i: usize| {
            let mut row = x.row(self.x, if self.gather { x.batch.out_rows[i] } else { i });
            if let Some(norm) = &self.norm {
                x.norm(&mut row, norm);
            }
            x.gain(&mut row, self.gain);
            row
        };
        Ok(vec![(Store::all(self.out), (0..x.m).map(row).collect())])
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("x", Field::Operand(self.x)),
            ("gather", Field::Flag(self.gather)),
            ("norm", Field::Norm(self.norm)),
            ("gain", Field::Optional(self.gain)),
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
            out: r.field(p, "out")?,
        })
    }
}
