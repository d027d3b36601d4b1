//! Rows that the caller of a step gives in place of rows of some tokens.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::graph::{substituted, without_row};
use crate::verify::KernelVerifier;

family! {
    /// As `substitute` of the graph level. Work items are tokens.
    Substitute {
        /// f32 `[T, hidden]`.
        x: ParamId as Use::READ,
        /// The id of the tokens that rows are given for.
        token: usize,
        /// f32 `[T, hidden]`.
        out: ParamId as Use::WRITE,
    }
}

impl Family for Substitute {
    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        let rows = v.kernel.rows;
        let (x, out) = (v.f32_rows(self.x, rows), v.f32_rows(self.out, rows));
        if let Some((x, out)) = x.zip(out) {
            v.columns(self.out, out, x);
        }
        if i32::try_from(self.token).is_err() {
            v.error("attribute", format!("{} is no id of a token", self.token));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let row = |(i, token): (usize, &i32)| match substituted(*token, self.token) {
            false => Ok(x.row(self.x, i)),
            true if x.batch.hidden.is_empty() => Err(without_row(self.token)),
            true => Ok(x.batch.hidden_of(i).iter().map(|x| f64::from(*x)).collect()),
        };
        let rows = x.batch.tokens.iter().enumerate().map(row).collect::<Result<_, EvalError>>()?;
        Ok(Outcome::rows(vec![(Store::all(self.out), rows)]))
    }
}
