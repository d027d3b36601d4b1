//! Cosines and sines of the step.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun, nearest, rope_row, rope_row_of, rope_set};
use crate::graph::F32;
use crate::verify::KernelVerifier;
use llmcc_abi::AXES;

family! {
    /// RoPE table. One work item.
    RopeTable {
        /// f32 `[D/2]`; with a border `[D]`, two sets; along axes `[AXES·D/2]`, a set of each.
        inv_freq: ParamId as Use::READ,
        /// Multiplies sines and cosines.
        scale: F32,
        /// First position with the second set of frequencies, where there are two; at least 1.
        border: Option<usize>,
        /// The largest position: those beyond it count as it.
        most: Option<usize>,
        /// Tokens have positions along the axes, and an angle is the sum of those along each; without a border.
        axes: bool,
        /// Output `[T, D]`, f32.
        out: ParamId as Use::WRITE,
    }
}

impl RopeTable {
    /// How many sets of frequencies there are.
    pub fn sets(&self) -> usize {
        match (self.axes, self.border) {
            (true, _) => AXES,
            (false, Some(_)) => 2,
            (false, None) => 1,
        }
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
        if self.axes && self.border.is_some() {
            v.error("attribute", "positions along axes have no border");
        }
        if self.axes && self.most.is_some() {
            v.error("attribute", "positions along axes have no largest one");
        }
        let Some(n) = freq else { return };
        let sets = self.sets();
        if !n.is_multiple_of(sets) {
            v.error("vector-length", format!("{n} frequencies are no {sets} sets"));
        }
        if let Some(have) = out {
            v.columns(self.out, have, (n / sets).saturating_mul(2));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let (freq, scale) = (x.vector(self.inv_freq), self.scale.get().into());
        let row = |(i, p): (usize, &i32)| match self.axes {
            true => rope_row_of(&x.batch.axes_of(i), freq, scale),
            false => {
                let p = nearest(*p, self.most);
                rope_row(p, rope_set(freq, self.border, p), scale)
            }
        };
        let rows = x.batch.positions.iter().enumerate().map(row).collect();
        Ok(Outcome::rows(vec![(Store::all(self.out), rows)]))
    }
}
