//! Rows of a table by token, position or type.

use super::part::{As, Fields, Or1, Plain, family};
use super::{Family, Field, Outcome, Param, ParamId, Store, Use};
use crate::eval::{Batch, EvalError, KernelRun, row_of_position};
use crate::graph::F32;
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// The index of a token's row in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Index {
    /// Its id.
    Tokens,
    /// Its position.
    Positions,
    /// Its type.
    Types,
}

impl Index {
    /// Each with its word in text; ids have none.
    const WORDS: [(Index, &'static str); 2] = [(Index::Positions, "positions"), (Index::Types, "types")];

    /// That of token `i`.
    pub fn number(self, batch: &Batch, i: usize) -> i32 {
        match self {
            Index::Tokens => batch.tokens[i],
            Index::Positions => batch.positions[i],
            Index::Types => batch.type_of(i),
        }
    }

    /// Its word in text, unless it is the usual one.
    pub fn word(self) -> Option<&'static str> {
        Index::WORDS.iter().find(|(index, _)| *index == self).map(|(_, word)| *word)
    }
}

impl As<Index> for Plain {
    fn show<'a>(&self, _: &'static str, part: &'a Index, out: &mut Fields<'a>) {
        out.extend(Index::WORDS.iter().map(|(index, word)| (*word, Field::Flag(index == part))));
    }

    fn read<'a>(&self, _: &'static str, _: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Index> {
        Ok(Index::WORDS.iter().find(|(_, word)| p.eat_word(word)).map_or(Index::Tokens, |(index, _)| *index))
    }
}

family! {
    /// Embedding: `table[index]·scale + add`. Work items are tokens.
    Embed {
        /// Packed table `[V, H]`.
        table: ParamId as Use::READ,
        /// Which rows.
        index: Index,
        /// Positions that have a row in common.
        every: usize as Or1,
        /// Added to positions before they are divided by that.
        shift: Option<usize>,
        /// Multiplies the rows.
        scale: F32 as Or1,
        /// f32 rows that are added: another embedding.
        add: Option<ParamId> as Use::READ,
        /// Output rows, f32.
        out: ParamId as Use::WRITE,
    }
}

impl Embed {
    /// The rows of the step's tokens as they are.
    pub fn of_tokens(table: ParamId, out: ParamId) -> Embed {
        Embed { table, index: Index::Tokens, every: 1, shift: None, scale: F32::new(1.0), add: None, out }
    }

    /// Whether the number of a row is that of a token's index.
    fn plain(&self) -> bool {
        self.every == 1 && self.shift.is_none()
    }

    /// The row of the table that `number` of a batch reads.
    pub fn row(&self, number: i32) -> i64 {
        row_of_position(number, self.every, self.shift.unwrap_or(0))
    }
}

impl Family for Embed {
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
        // Sums stay below 2³¹, as kernels compute them.
        let most = 1 << 30;
        if !(1..=most).contains(&self.every) || self.shift.is_some_and(|shift| shift == 0 || shift > most) {
            v.error("embed-steps", format!("steps of {} positions, shifted by {:?}", self.every, self.shift));
        }
        if !self.plain() && self.index != Index::Positions {
            v.error("embed-steps", "only positions have a row in common".to_string());
        }
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
        let (of, what) = match self.index {
            Index::Tokens => ("token", "the vocabulary of"),
            Index::Positions => ("position", "a table of"),
            Index::Types => ("type", "a table of"),
        };
        let row = |i: usize| {
            let number = self.index.number(x.batch, i);
            let id = usize::try_from(self.row(number)).ok().filter(|t| *t < n);
            let id = id.ok_or_else(|| EvalError::batch(format!("{of} {number} is outside {what} {n}")))?;
            let mut row = x.matrix_row(self.table, id);
            row.iter_mut().for_each(|v| *v *= f64::from(self.scale.get()));
            if let Some(add) = self.add {
                row.iter_mut().zip(x.row(add, i)).for_each(|(v, a)| *v += a);
            }
            Ok(row)
        };
        let rows = (0..x.batch.tokens.len()).map(row).collect::<Result<_, EvalError>>()?;
        Ok(Outcome::rows(vec![(Store::all(self.out), rows)]))
    }
}
