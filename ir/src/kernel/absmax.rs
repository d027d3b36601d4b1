//! Scales of rows that are rounded token by token.

use super::{Family, Field, Outcome, Param, ParamId, ReadFamily, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::graph::RowScale;
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// What brings each run of columns to a largest magnitude and back, as `absmax_scale` of the graph level.
/// Work items are rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AbsMaxScale {
    /// f32 `[M, N]`.
    pub x: ParamId,
    /// The runs, and what they are brought to.
    pub scale: RowScale,
    /// Output, f32 `[M, 2·N/width]`.
    pub out: ParamId,
}

impl Family for AbsMaxScale {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.x, Use::READ);
        f(&mut self.out, Use::WRITE);
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        let rows = v.kernel.rows;
        let (x, out) = (v.f32_rows(self.x, rows), v.f32_rows(self.out, rows));
        let Some(cols) = x else { return };
        if let Some(what) = self.scale.misfit(cols) {
            v.error("row-scale", what);
        } else if let Some(have) = out {
            v.columns(self.out, have, self.scale.columns(cols));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let row = |i: usize| self.scale.of(&x.row(self.x, i));
        Ok(Outcome::rows(vec![(Store::all(self.out), (0..x.m).map(row).collect())]))
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        let RowScale { width, most, least } = self.scale;
        vec![
            ("x", Field::Operand(self.x)),
            ("width", Field::Size(width)),
            ("most", Field::Real(most)),
            ("least", Field::Real(least)),
            ("out", Field::Operand(self.out)),
        ]
    }
}

impl ReadFamily for AbsMaxScale {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<AbsMaxScale> {
        Ok(AbsMaxScale {
            x: r.field(p, "x")?,
            scale: RowScale {
                width: p.field_size("width")?,
                most: p.field_real("most")?,
                least: p.field_real("least")?,
            },
            out: r.field(p, "out")?,
        })
    }
}
