//! Cosines and sines of the step.

use super::{Family, Field, Param, ParamId, ReadFamily, Store, Use};
use crate::eval::{EvalError, KernelRun, RowValues, rope_row};
use crate::graph::F32;
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// RoPE table. One work item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RopeTable {
    /// f32 `[D/2]`.
    pub inv_freq: ParamId,
    /// Multiplies sines and cosines.
    pub scale: F32,
    /// Output `[T, D]`, f32.
    pub out: ParamId,
}

impl Family for RopeTable {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.inv_freq, Use::READ);
        f(&mut self.out, Use::WRITE);
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, false)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        v.finite("scale", self.scale);
        let (freq, out) = (v.vector(self.inv_freq), v.f32_rows(self.out, v.kernel.rows));
        if let (Some(half), Some(have)) = (freq, out) {
            v.columns(self.out, have, half.saturating_mul(2));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Vec<(Store, RowValues)>, EvalError> {
        let freq = x.vector(self.inv_freq);
        let rows = x.batch.positions.iter().map(|p| rope_row(*p, freq, self.scale.get().into())).collect();
        Ok(vec![(Store::all(self.out), rows)])
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("inv_freq", Field::Operand(self.inv_freq)),
            ("scale", Field::Real(self.scale)),
            ("out", Field::Operand(self.out)),
        ]
    }
}

impl ReadFamily for RopeTable {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<RopeTable> {
        Ok(RopeTable { inv_freq: r.field(p, "inv_freq")?, scale: p.field_real("scale")?, out: r.field(p, "out")? })
    }
}
