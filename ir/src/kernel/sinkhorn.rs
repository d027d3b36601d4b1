//! Square matrices in rows whose sums are brought near one.

use super::{Family, Field, Outcome, Param, ParamId, ReadFamily, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::graph::Balance;
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// Each row, a square matrix, as `sinkhorn` of the graph level. Work items are rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sinkhorn {
    /// Matrices, f32 `[M, side²]`.
    pub x: ParamId,
    /// What is done to them.
    pub balance: Balance,
    /// Output, f32 `[M, side²]`.
    pub out: ParamId,
}

impl Family for Sinkhorn {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.x, Use::READ);
        f(&mut self.out, Use::WRITE);
    }

    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        let rows = v.kernel.rows;
        let (x, out) = (v.f32_rows(self.x, rows), v.f32_rows(self.out, rows));
        let Some(cols) = x else { return };
        if let Some(what) = self.balance.misfit(cols) {
            v.error("square-matrix", what);
        }
        if let Some(have) = out {
            v.columns(self.out, have, cols);
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let row = |i: usize| self.balance.balanced(&x.row(self.x, i));
        Ok(Outcome::rows(vec![(Store::all(self.out), (0..x.m).map(row).collect())]))
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        let Balance { side, rounds, eps } = self.balance;
        vec![
            ("x", Field::Operand(self.x)),
            ("side", Field::Size(side)),
            ("rounds", Field::Size(rounds)),
            ("eps", Field::Real(eps)),
            ("out", Field::Operand(self.out)),
        ]
    }
}

impl ReadFamily for Sinkhorn {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Sinkhorn> {
        Ok(Sinkhorn {
            x: r.field(p, "x")?,
            balance: Balance {
                side: p.field_size("side")?,
                rounds: p.field_size("rounds")?,
                eps: p.field_real("eps")?,
            },
            out: r.field(p, "out")?,
        })
    }
}
