//! Rows of a table by token or position.

use super::{Family, Field, Outcome, Param, ParamId, ReadFamily, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::graph::F32;
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// Embedding: `table[index]·scale + add`. Work items are tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Embed {
    /// Packed table `[V, H]`.
    pub table: ParamId,
    /// Rows are those of the tokens' positions, else of their ids.
    pub positions: bool,
    /// Multiplies the rows.
    pub scale: F32,
    /// f32 rows that are added: another embedding.
    pub add: Option<ParamId>,
    /// Output rows, f32.
    pub out: ParamId,
}

impl Embed {
    /// The rows of the step's tokens as they are.
    pub fn of_tokens(table: ParamId, out: ParamId) -> Embed {
        Embed { table, positions: false, scale: F32::new(1.0), add: None, out }
    }
}

impl Family for Embed {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.table, Use::READ);
        if let Some(add) = &mut self.add {
            f(add, Use::READ);
        }
        f(&mut self.out, Use::WRITE);
    }

    // A row is looked up.
    fn share(&self) -> f64 {
        0.0
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        v.finite("scale", self.scale);
        let (table, out) = (v.matrix(self.table), v.f32_rows(self.out, v.kernel.rows));
        let Some((_, cols, _)) = table else { return };
        if let Some(have) = out {
            v.columns(self.out, have, cols);
        }
        if let Some(add) = self.add
            && let Some(have) = v.f32_rows(add, v.kernel.rows)
        {
            v.columns(add, have, cols);
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let n = x.kernel.matrix(self.table).n;
        let (index, of, what) = match self.positions {
            true => (&x.batch.positions, "position", "a table of"),
            false => (&x.batch.tokens, "token", "the vocabulary of"),
        };
        let row = |(i, number): (usize, &i32)| {
            let id = usize::try_from(*number).ok().filter(|t| *t < n);
            let id = id.ok_or_else(|| EvalError::batch(format!("{of} {number} is outside {what} {n}")))?;
            let mut row = x.matrix_row(self.table, id);
            row.iter_mut().for_each(|v| *v *= f64::from(self.scale.get()));
            if let Some(add) = self.add {
                row.iter_mut().zip(x.row(add, i)).for_each(|(v, a)| *v += a);
            }
            Ok(row)
        };
        let rows = index.iter().enumerate().map(row).collect::<Result<_, EvalError>>()?;
        Ok(Outcome::rows(vec![(Store::all(self.out), rows)]))
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("table", Field::Operand(self.table)),
            ("positions", Field::Flag(self.positions)),
            ("scale", Field::RealOr1(self.scale)),
            ("add", Field::Optional(self.add)),
            ("out", Field::Operand(self.out)),
        ]
    }
}

impl ReadFamily for Embed {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Embed> {
        Ok(Embed {
            table: r.field(p, "table")?,
            positions: p.eat_word("positions"),
            scale: if p.peek_word() == "scale" { p.field_real("scale")? } else { F32::new(1.0) },
            add: r.optional_field(p, "add")?,
            out: r.field(p, "out")?,
        })
    }
}
