//! Products with the matrices of each sequence's adapter.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::state::{AdapterSpec, adapted};
use crate::verify::KernelVerifier;

family! {
    /// Rows of tokens times the matrix of their sequence's adapter, as `adapter_matmul` of the
    /// graph level. Work items are blocks of 16 columns of the result, a token's blocks one after
    /// the other.
    AdapterMatmul {
        /// f32 `[T, …]`.
        x: ParamId as Use::READ,
        /// First column of the input.
        start: usize,
        /// Rows of the matrix that belong together: part `i` multiplies the columns from `start +
        /// i·k` on. Whole blocks of 16.
        parts: Vec<usize>,
        /// bf16 or f32 `[n, k]`.
        adapter: ParamId as Use::READ,
        /// f32 `[T, n]`.
        out: ParamId as Use::WRITE,
    }
}

impl Family for AdapterMatmul {
    fn items(&self, params: &[Param]) -> (usize, bool) {
        // Where the operand is something else, which the verifier refuses, any number does.
        let Some(s) = params.get(self.adapter).and_then(|p| p.kind.state()?.adapter()) else { return (1, true) };
        (s.n / AdapterSpec::BLOCK, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        let rows = v.kernel.rows;
        let [x, out] = [self.x, self.out].map(|p| v.f32_rows(p, rows));
        let Some(AdapterSpec { n, k, .. }) = v.adapter(self.adapter) else { return };
        if let Some(out) = out {
            v.columns(self.out, out, n);
        }
        if let Some(cols) = x {
            v.range("adapter-parts", self.x, self.start, self.parts.len().saturating_mul(k), cols);
        }
        let whole = self.parts.iter().all(|p| *p > 0 && p.is_multiple_of(AdapterSpec::BLOCK));
        if !whole || self.parts.iter().fold(0usize, |sum, p| sum.saturating_add(*p)) != n {
            let parts = &self.parts;
            v.error("adapter-parts", format!("parts of {parts:?} rows are not whole blocks of 16 that make {n}"));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let state = x.adapter(self.adapter);
        let width = self.parts.len() * state.spec.k;
        let row = |i: usize| adapted(state, x.batch.seqs[i], &x.row(self.x, i)[self.start..][..width], &self.parts);
        Ok(Outcome::rows(vec![(Store::all(self.out), (0..x.m).map(row).collect())]))
    }
}
