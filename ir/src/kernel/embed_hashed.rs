//! Rows of a table by hashes of several tokens' ids.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::graph::{Hashes, hashed_ids};
use crate::verify::KernelVerifier;

family! {
    /// As `embed_hashed` of the graph level. Work items are tokens.
    EmbedHashed {
        /// Packed table `[V, H]`.
        table: ParamId as Use::READ,
        /// Whole numbers, f32 `[T, N]`.
        ids: ParamId as Use::READ,
        /// Multiply ids, one each.
        factors: Vec<usize>,
        /// Rows of the table that each hash chooses from.
        sizes: Vec<usize>,
        /// f32 `[T, S·H]`, a row for each size.
        out: ParamId as Use::WRITE,
    }
}

impl EmbedHashed {
    /// Which rows.
    pub fn hashes(&self) -> Hashes<'_> {
        Hashes { factors: &self.factors, sizes: &self.sizes }
    }
}

impl Family for EmbedHashed {
    // Rows are looked up.
    fn share(&self) -> f64 {
        0.0
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        let rows = v.kernel.rows;
        let (table, ids, out) = (v.matrix(self.table), v.f32_rows(self.ids, rows), v.f32_rows(self.out, rows));
        let (Some((n, cols, _)), Some(ids)) = (table, ids) else { return };
        if let Some(what) = self.hashes().misfit(ids, n) {
            v.error("hashes", what);
        }
        if let Some(have) = out {
            v.columns(self.out, have, cols.saturating_mul(self.sizes.len()));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let row = |i: usize| {
            let ids = hashed_ids(&x.row(self.ids, i))?;
            Ok(self.hashes().rows(&ids).into_iter().flat_map(|row| x.matrix_row(self.table, row)).collect())
        };
        let rows = (0..x.m).map(row).collect::<Result<_, EvalError>>()?;
        Ok(Outcome::rows(vec![(Store::all(self.out), rows)]))
    }
}
