//! Rows that the caller of a step gives with its tokens.

use super::{Family, Field, Outcome, Param, ParamId, ReadFamily, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// A copy of these rows. Work items are tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GivenRows {
    /// f32 `[T, hidden]`.
    pub out: ParamId,
}

impl Family for GivenRows {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.out, Use::WRITE);
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        v.f32_rows(self.out, v.kernel.rows);
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let row = |i| x.batch.hidden_of(i).iter().map(|x| f64::from(*x)).collect();
        let rows = (0..x.batch.tokens.len()).map(row).collect();
        Ok(Outcome::rows(vec![(Store::all(self.out), rows)]))
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![("out", Field::Operand(self.out))]
    }
}

impl ReadFamily for GivenRows {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<GivenRows> {
        Ok(GivenRows { out: r.field(p, "out")? })
    }
}
