//! Scales of rows that are rounded token by token.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::graph::RowScale;
use crate::verify::KernelVerifier;

family! {
    /// Factors that bring each run of columns to a largest magnitude and back, as `absmax_scale` of
    /// the graph level. Work items are rows.
    AbsMaxScale {
        /// f32 `[M, N]`.
        x: ParamId as Use::READ,
        /// The runs, and their target.
        scale: RowScale,
        /// Output, f32 `[M, 2·N/width]`.
        out: ParamId as Use::WRITE,
    }
}

impl Family for AbsMaxScale {
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
}
