//! Ids of the step's tokens as numbers.

use super::{Family, Field, Outcome, Param, ParamId, ReadFamily, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// A column of ids. Work items are tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenIds {
    /// f32 `[T, 1]`.
    pub out: ParamId,
}

impl Family for TokenIds {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.out, Use::WRITE);
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        if let Some(have) = v.f32_rows(self.out, v.kernel.rows) {
            v.columns(self.out, have, 1);
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let rows = x.batch.tokens.iter().map(|id| vec![f64::from(*id)]).collect();
        Ok(Outcome::rows(vec![(Store::all(self.out), rows)]))
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![("out", Field::Operand(self.out))]
    }
}

impl ReadFamily for TokenIds {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<TokenIds> {
        Ok(TokenIds { out: r.field(p, "out")? })
    }
}
