//! The rows of a cache that an indexer selects.

use super::part::family;
use super::{ATTEND_PARTS, Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun, RowValues, select};
use crate::verify::KernelVerifier;

family! {
    /// The rows of a cache with the highest scores, as `select` of the graph level. Work items are
    /// tokens in [`ATTEND_PARTS`] parts each, numbered as the backend likes.
    Select {
        /// Queries, f32 `[T, heads·value_dim]`.
        q: ParamId as Use::READ,
        /// Weights of the heads, f32 `[T, heads]`.
        weights: ParamId as Use::READ,
        /// The cache, one row per token or window of tokens.
        kv: ParamId as Use::READ,
        /// Heads.
        heads: usize,
        /// Rows selected.
        top: usize,
        /// Output, f32 `[T, top]`: numbers of rows, ascending, then −1.
        out: ParamId as Use::WRITE,
    }
}

impl Family for Select {
    fn items(&self, _: &[Param]) -> (usize, bool) {
        (ATTEND_PARTS, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        let rows = v.kernel.rows;
        let [q, weights, out] = [self.q, self.weights, self.out].map(|p| v.f32_rows(p, rows));
        let Some(spec) = v.kv(self.kv) else { return };
        if let Some(what) = spec.misread() {
            return v.error("selection", what);
        }
        if self.heads == 0 || self.top == 0 {
            v.error("selection", "selects no rows, or by no heads");
        }
        for (p, have, want) in [
            (self.q, q, self.heads.saturating_mul(spec.value_dim)),
            (self.weights, weights, self.heads),
            (self.out, out, self.top),
        ] {
            if let Some(have) = have {
                v.columns(p, have, want);
            }
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let [q, w]: [RowValues; 2] = [self.q, self.weights].map(|p| (0..x.m).map(|i| x.row(p, i)).collect());
        let out = select(x.kv(self.kv), x.batch, [&q, &w], self.top)?;
        Ok(Outcome::rows(vec![(Store::all(self.out), out)]))
    }
}
