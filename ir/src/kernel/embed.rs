//! Rows of a table by token.

use super::{Family, Field, Param, ParamId, ReadFamily, Store, Use};
use crate::eval::{EvalError, KernelRun, RowValues};
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// Embedding. Work items are tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Embed {
    /// Packed table `[V, H]`.
    pub table: ParamId,
    /// Output rows, f32.
    pub out: ParamId,
}

impl Family for Embed {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.table, Use::READ);
        f(&mut self.out, Use::WRITE);
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        let (table, out) = (v.matrix(self.table), v.f32_rows(self.out, v.kernel.rows));
        if let (Some((_, cols, _)), Some(have)) = (table, out) {
            v.columns(self.out, have, cols);
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Vec<(Store, RowValues)>, EvalError> {
        let n = x.kernel.matrix(self.table).n;
        let row = |token: &i32| {
            let id = usize::try_from(*token).ok().filter(|t| *t < n);
            let id = id.ok_or_else(|| EvalError::batch(format!("token {token} is outside the vocabulary of {n}")))?;
            Ok(x.matrix_row(self.table, id))
        };
        Ok(vec![(Store::all(self.out), x.batch.tokens.iter().map(row).collect::<Result<_, EvalError>>()?)])
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![("table", Field::Operand(self.table)), ("out", Field::Operand(self.out))]
    }
}

impl ReadFamily for Embed {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Embed> {
        Ok(Embed { table: r.field(p, "table")?, out: r.field(p, "out")? })
    }
}
