//! Cosines and sines of the step.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun, rope_row, rope_set};
use crate::graph::F32;
use crate::verify::KernelVerifier;

family! {
    /// RoPE table. One work item.
    RopeTable {
        /// f32 `[D/2]`; with a border `[D]`, two sets.
        inv_freq: ParamId as Use::READ,
        /// Multiplies sines and cosines.
        scale: F32,
        /// First position with the second set of frequencies, where there are two; at least 1.
        border: Option<usize>,
        /// Output `[T, D]`, f32.
        out: ParamId as Use::WRITE,
    }
}

impl Family for RopeTable {
    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, false)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        v.finite("scale", self.scale);
        let (freq, out) = (v.vector(self.inv_freq), v.f32_rows(self.out, v.kernel.rows));
        if self.border == Some(0) {
            v.error("attribute", "a border at position 0 leaves the first set of frequencies without use");
        }
        let Some(n) = freq else { return };
        if self.border.is_some() && !n.is_multiple_of(2) {
            v.error("vector-length", format!("{n} frequencies are no two sets"));
        }
        if let Some(have) = out {
            v.columns(self.out, have, if self.border.is_some() { n } else { n.saturating_mul(2) });
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let freq = x.vector(self.inv_freq);
        let row = |p: &i32| rope_row(*p, rope_set(freq, self.border, *p), self.scale.get().into());
        let rows = x.batch.positions.iter().map(row).collect();
        Ok(Outcome::rows(vec![(Store::all(self.out), rows)]))
    }
}
