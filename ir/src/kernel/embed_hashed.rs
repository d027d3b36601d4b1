//! Rows of a table by hashes of several tokens' ids.

use super::{Family, Field, Outcome, Param, ParamId, ReadFamily, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::graph::{Hashes, hashed_ids};
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// As `embed_hashed` of the graph level. Work items are tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EmbedHashed {
    /// Packed table `[V, H]`.
    pub table: ParamId,
    /// Whole numbers, f32 `[T, N]`.
    pub ids: ParamId,
    /// Multiply ids, one each.
    pub factors: Vec<usize>,
    /// Rows of the table that each hash chooses from.
    pub sizes: Vec<usize>,
    /// f32 `[T, S·H]`, a row for each size.
    pub out: ParamId,
}

impl EmbedHashed {
    /// Which rows.
    pub fn hashes(&self) -> Hashes<'_> {
        Hashes { factors: &self.factors, sizes: &self.sizes }
    }
}

impl Family for EmbedHashed {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.table, Use::READ);
        f(&mut self.ids, Use::READ);
        f(&mut self.out, Use::WRITE);
    }

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

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("table", Field::Operand(self.table)),
            ("ids", Field::Operand(self.ids)),
            ("factors", Field::Sizes(&self.factors)),
            ("sizes", Field::Sizes(&self.sizes)),
            ("out", Field::Operand(self.out)),
        ]
    }
}

impl ReadFamily for EmbedHashed {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<EmbedHashed> {
        Ok(EmbedHashed {
            table: r.field(p, "table")?,
            ids: r.field(p, "ids")?,
            factors: p.field_sizes("factors")?,
            sizes: p.field_sizes("sizes")?,
            out: r.field(p, "out")?,
        })
    }
}
