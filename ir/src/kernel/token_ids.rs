//! Ids of the step's tokens as numbers.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::verify::KernelVerifier;

family! {
    /// A column of ids. Work items are tokens.
    TokenIds {
        /// f32 `[T, 1]`.
        out: ParamId as Use::WRITE,
    }
}

impl Family for TokenIds {
    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        if let Some(have) = v.f32_rows(self.out, v.kernel.rows) {
            v.columns(self.out, have, 1);
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let rows = x.batch.tokens.iter().map(|id| vec![f64::from(*id)]).collect();
        Ok(Outcome::rows(vec![(Store::all(self.out), rows)]))
    }
}
