//! Square matrices in rows whose sums are brought near one.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::graph::Balance;
use crate::verify::KernelVerifier;

family! {
    /// Each row, a square matrix, as `sinkhorn` of the graph level. Work items are rows.
    Sinkhorn {
        /// Matrices, f32 `[M, side²]`.
        x: ParamId as Use::READ,
        /// The operation on them.
        balance: Balance,
        /// Output, f32 `[M, side²]`.
        out: ParamId as Use::WRITE,
    }
}

impl Family for Sinkhorn {
    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        let rows = v.kernel.rows;
        let (x, out) = (v.f32_rows(self.x, rows), v.f32_rows(self.out, rows));
        let Some(cols) = x else { return };
        if let Some(what) = self.balance.misfit(cols) {
            v.error("square-matrix", what);
        }
        if let Some(have) = out {
            v.columns(self.out, have, cols);
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let row = |i: usize| self.balance.balanced(&x.row(self.x, i));
        Ok(Outcome::rows(vec![(Store::all(self.out), (0..x.m).map(row).collect())]))
    }
}
