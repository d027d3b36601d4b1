//! The windows of a cache that queries select by bounds of their keys.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun, RowValues, select_windows};
use crate::graph::windows_misfit;
use crate::verify::KernelVerifier;

family! {
    /// The tokens of the windows with the highest bounds, as `select_windows` of the graph level. Work items are
    /// tokens.
    SelectWindows {
        /// Queries, f32 `[T, heads · key_dim]`.
        q: ParamId as Use::READ,
        /// The cache of bounds, one row of `2 · kv_heads · key_dim` per window.
        kv: ParamId as Use::READ,
        /// Query heads.
        heads: usize,
        /// KV heads, each with a selection.
        kv_heads: usize,
        /// Windows selected beside a token's own.
        windows: usize,
        /// Output, f32 `[T, kv_heads · (windows + 1) · every]`: numbers of tokens, ascending, then −1.
        out: ParamId as Use::WRITE,
    }
}

impl Family for SelectWindows {
    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        let rows = v.kernel.rows;
        let [q, out] = [self.q, self.out].map(|p| v.f32_rows(p, rows));
        let Some(spec) = v.kv(self.kv) else { return };
        if let Some(what) = spec.misread().or_else(|| windows_misfit(&spec, self.heads, self.kv_heads, self.windows)) {
            return v.error("selection", what);
        }
        let columns = self.heads.saturating_mul(spec.value_dim / (2 * self.kv_heads));
        let selected = self.kv_heads.saturating_mul((self.windows + 1).saturating_mul(spec.every));
        for (p, have, want) in [(self.q, q, columns), (self.out, out, selected)] {
            if let Some(have) = have {
                v.columns(p, have, want);
            }
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let q: RowValues = (0..x.m).map(|i| x.row(self.q, i)).collect();
        let out = select_windows(x.kv(self.kv), x.batch, &q, (self.kv_heads, self.windows))?;
        Ok(Outcome::rows(vec![(Store::all(self.out), out)]))
    }
}
