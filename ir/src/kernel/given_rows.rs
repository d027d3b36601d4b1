//! Rows that the caller of a step gives with its tokens.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::verify::KernelVerifier;

family! {
    /// A copy of these rows. Work items are tokens.
    GivenRows {
        /// f32 `[T, columns]`.
        out: ParamId as Use::WRITE,
    }
}

impl Family for GivenRows {
    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        v.f32_rows(self.out, v.kernel.rows);
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let row = |i| x.batch.hidden_of(i).iter().map(|x| f64::from(*x)).collect();
        let rows = (0..x.batch.tokens.len()).map(row).collect();
        Ok(Outcome::rows(vec![(Store::all(self.out), rows)]))
    }
}
