//! The most probable tokens.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun, top_k};
use crate::ty::Dim;
use crate::verify::KernelVerifier;

family! {
    /// The most probable tokens of each row of logits, so that the host need not read all logits to
    /// choose one. Work items are rows.
    ///
    /// For each row the step gives the number of requested candidates
    /// ([`llmcc_abi::GpuCtx::wanted`]: none, one, or more, which means `k`) and the factor of
    /// logits before they become powers of two (`scale`, [`llmcc_abi::GpuCtx::scales`]: `log2(e)`
    /// over the temperature). An output row holds, in this order,
    ///
    /// - the `k` largest logits, descending, −0 as 0;
    /// - their token ids, as f32 (exact: a vocabulary has fewer than 2²⁴ tokens). Equal logits are
    ///   ordered by ascending id. NaN counts as larger than all numbers, so that a row which holds one
    ///   begins with one;
    /// - `Σ 2^((x − max)·scale)` over the whole vocabulary, within a relative [`TopK::SUM_ERROR`], if
    ///   the maximum is finite and `scale` is between 2⁻¹⁰ and 2¹⁰.
    ///
    /// Where one is wanted, only the first logit and id are defined; where none is, nothing is.
    TopK {
        /// Logits, f32.
        x: ParamId as Use::READ,
        /// Candidates per row, at most the columns of `x`.
        k: usize,
        /// Output, f32 `[R, 2k + 1]`.
        out: ParamId as Use::WRITE,
    }
}

impl TopK {
    /// Largest vocabulary whose ids f32 holds exactly.
    pub const MOST_COLUMNS: usize = 1 << 24;
    /// Relative error of the sum of exponentials.
    pub const SUM_ERROR: f64 = llmcc_abi::layout::CANDIDATE_SUM_ERROR;

    /// Columns of a row of `k` candidates.
    pub const fn columns(k: usize) -> usize {
        llmcc_abi::layout::candidate_cols(k)
    }
}

impl Family for TopK {
    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        let rows = v.kernel.rows;
        if rows != Dim::Rows {
            v.error("kernel-rows", format!("takes logits: its rows must be R, not {rows}"));
        }
        let (x, out) = (v.f32_rows(self.x, rows), v.f32_rows(self.out, rows));
        let Some(vocab) = x else { return };
        if self.k == 0 || self.k > vocab {
            v.error("top-k", format!("wants {} candidates of {vocab} logits", self.k));
        }
        if vocab >= TopK::MOST_COLUMNS {
            v.error("top-k", format!("f32 does not hold the ids of {vocab} tokens"));
        }
        if let Some(have) = out {
            v.columns(self.out, have, TopK::columns(self.k));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let wanted = |i: usize| x.batch.wanted.get(i).copied().unwrap_or_default();
        let rows = (0..x.m).map(|i| top_k(&x.row(self.x, i), self.k, wanted(i))).collect();
        Ok(Outcome::rows(vec![(Store::all(self.out), rows)]))
    }
}
