//! Cosines and sines of the step.

use super::{Family, Field, Outcome, Param, ParamId, ReadFamily, Store, Use};
use crate::eval::{EvalError, KernelRun, rope_row, rope_set};
use crate::graph::F32;
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// RoPE table. One work item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RopeTable {
    /// f32 `[D/2]`; with a border `[D]`, two sets.
    pub inv_freq: ParamId,
    /// Multiplies sines and cosines.
    pub scale: F32,
    /// First position with the second set of frequencies, where there are two; at least 1.
    pub border: Option<usize>,
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

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("inv_freq", Field::Operand(self.inv_freq)),
            ("scale", Field::Real(self.scale)),
            ("border", Field::SizeIf(self.border)),
            ("out", Field::Operand(self.out)),
        ]
    }
}

impl ReadFamily for RopeTable {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<RopeTable> {
        Ok(RopeTable {
            inv_freq: r.field(p, "inv_freq")?,
            scale: p.field_real("scale")?,
            border: if p.peek_word() == "border" { Some(p.field_size("border")?) } else { None },
            out: r.field(p, "out")?,
        })
    }
}
