//! Linear recurrences.

use super::{Family, Field, Param, ParamId, ParamKind, ReadFamily, Store, Use};
use crate::eval::{Delta, EvalError, FixedState, KernelRun, RowValues, recur};
use crate::state::FixedSpec;
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// A linear recurrence over a matrix `S` per head, as `recurrence` of the graph level. Work items
/// are [`Recurrence::block`] columns of a head's matrix each, for all tokens in order: a column of
/// `S` needs no other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Recurrence {
    /// Queries, f32 rows: groups of as many columns as `S` has rows.
    pub q: ParamId,
    /// First column of the queries.
    pub q_start: usize,
    /// Keys, as the queries.
    pub k: ParamId,
    /// First column of the keys.
    pub k_start: usize,
    /// Groups of heads that share query and key.
    pub groups: usize,
    /// Values, f32 rows: columns of `S` for each head.
    pub v: ParamId,
    /// First column of the values.
    pub v_start: usize,
    /// Decays, f32 `[T, heads]` or `[T, heads · rows]`.
    pub decay: ParamId,
    /// Rates, f32 `[T, heads]`.
    pub rate: ParamId,
    /// What the state holds for the key is taken off the value.
    pub delta: bool,
    /// f32 `[heads, rows, columns]`.
    pub state: ParamId,
    /// f32 `[T, heads · columns]`.
    pub out: ParamId,
}

impl Recurrence {
    /// Columns of an item, of `cols` that a head has: the most up to 64 that divide them. A column
    /// is a chain of operations, so that a processor with long vectors is busy with many only.
    pub fn block(cols: usize) -> usize {
        (1..=64).rev().find(|n| cols.is_multiple_of(*n)).unwrap_or(1)
    }

    fn run(&self, x: &KernelRun<'_, '_>) -> (RowValues, FixedState) {
        let mut state = x.fixed(self.state).clone();
        let FixedSpec { heads, rows, cols } = state.spec;
        let all = |p: ParamId, start: usize, n: usize| -> RowValues {
            (0..x.m).map(|i| x.row(p, i)[start..][..n].to_vec()).collect()
        };
        let whole = |p: ParamId| -> RowValues { (0..x.m).map(|i| x.row(p, i)).collect() };
        let inputs = [
            all(self.q, self.q_start, self.groups * rows),
            all(self.k, self.k_start, self.groups * rows),
            all(self.v, self.v_start, heads * cols),
            whole(self.decay),
            whole(self.rate),
        ];
        let delta = if self.delta { Delta::Rule } else { Delta::Plain };
        let out = recur(&mut state, &x.batch.seqs, &inputs, delta);
        (out, state)
    }
}

impl Family for Recurrence {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.q, Use::READ);
        f(&mut self.k, Use::READ);
        f(&mut self.v, Use::READ);
        f(&mut self.decay, Use::READ);
        f(&mut self.rate, Use::READ);
        f(&mut self.state, Use::WRITE);
        f(&mut self.out, Use::WRITE);
    }

    fn items(&self, params: &[Param]) -> (usize, bool) {
        match params.get(self.state).map(|p| &p.kind) {
            Some(ParamKind::Fixed(s)) => (s.heads * (s.cols / Self::block(s.cols)), false),
            _ => (1, false),
        }
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        let rows = v.kernel.rows;
        let cols = [self.q, self.k, self.v, self.decay, self.rate, self.out].map(|p| v.f32_rows(p, rows));
        let Some(state) = v.any_fixed(self.state) else { return };
        let [Some(q), Some(k), Some(values), Some(decay), Some(rate), Some(out)] = cols else { return };
        if self.groups == 0 || !state.heads.is_multiple_of(self.groups) {
            let what = format!("{} groups of queries do not divide {} heads", self.groups, state.heads);
            return v.error("recurrence-groups", what);
        }
        let (keys, width) = (self.groups.saturating_mul(state.rows), state.heads.saturating_mul(state.cols));
        v.range("recurrence-columns", self.q, self.q_start, keys, q);
        v.range("recurrence-columns", self.k, self.k_start, keys, k);
        v.range("recurrence-columns", self.v, self.v_start, width, values);
        v.columns(self.rate, rate, state.heads);
        v.columns(self.out, out, width);
        if decay != state.heads && decay != state.heads.saturating_mul(state.rows) {
            v.columns(self.decay, decay, state.heads);
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Vec<(Store, RowValues)>, EvalError> {
        Ok(vec![(Store::all(self.out), self.run(x).0)])
    }

    fn states(&self, x: &KernelRun<'_, '_>) -> Vec<(ParamId, FixedState)> {
        vec![(self.state, self.run(x).1)]
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("q", Field::Operand(self.q)),
            ("q_start", Field::Size(self.q_start)),
            ("k", Field::Operand(self.k)),
            ("k_start", Field::Size(self.k_start)),
            ("groups", Field::Size(self.groups)),
            ("v", Field::Operand(self.v)),
            ("v_start", Field::Size(self.v_start)),
            ("decay", Field::Operand(self.decay)),
            ("rate", Field::Operand(self.rate)),
            ("delta", Field::Flag(self.delta)),
            ("state", Field::Operand(self.state)),
            ("out", Field::Operand(self.out)),
        ]
    }
}

impl ReadFamily for Recurrence {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Recurrence> {
        Ok(Recurrence {
            q: r.field(p, "q")?,
            q_start: p.field_size("q_start")?,
            k: r.field(p, "k")?,
            k_start: p.field_size("k_start")?,
            groups: p.field_size("groups")?,
            v: r.field(p, "v")?,
            v_start: p.field_size("v_start")?,
            decay: r.field(p, "decay")?,
            rate: r.field(p, "rate")?,
            delta: p.eat_word("delta"),
            state: r.field(p, "state")?,
            out: r.field(p, "out")?,
        })
    }
}
