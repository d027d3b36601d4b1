//! Linear recurrences.

use super::family::state_items;
use super::part::family;
use super::{Family, Outcome, Param, ParamId, ParamKind, Use};
use crate::eval::{Each, EvalError, FixedState, Inputs, KernelRun, RowValues, recur};
use crate::graph::Update;
use crate::state::FixedSpec;
use crate::verify::KernelVerifier;

family! {
    /// A linear recurrence over a matrix `S` per head, as `recurrence` of the graph level. Work
    /// items are [`Recurrence::block`] columns of a head's matrix each, for all tokens in order: a
    /// column of `S` needs no other. Queries, keys, decays and the further operands of the update
    /// may be vectors, which are the same for all tokens.
    Recurrence {
        /// Queries, f32 rows: groups of as many columns as `S` has rows.
        q: ParamId as Use::READ,
        /// First column of the queries.
        q_start: usize,
        /// Keys, as the queries.
        k: ParamId as Use::READ,
        /// First column of the keys.
        k_start: usize,
        /// Groups of heads that share query and key.
        groups: usize,
        /// Values, f32 rows: columns of `S` for each head.
        v: ParamId as Use::READ,
        /// First column of the values.
        v_start: usize,
        /// Decays, f32 `[T, heads]` or `[T, heads · rows]`; of [`Update::Scan`] steps, `[T, heads ·
        /// columns]`.
        decay: ParamId as Use::READ,
        /// The update of the state.
        update: Update,
        /// Rates, f32 `[T, heads]`; of [`Update::Erase`] keys, as the queries; of [`Update::Bonus`] a
        /// vector `[heads · rows]`; of [`Update::Scan`] one `[heads · rows · columns]`.
        with: ParamId as Use::READ,
        /// Keys of erasure, as the queries, for [`Update::Erase`] only.
        write: Option<ParamId> as Use::READ,
        /// f32 `[heads, rows, columns]`.
        state: ParamId as Use::WRITE,
        /// f32 `[T, heads · columns]`.
        out: ParamId as Use::WRITE,
    }
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
        let each = |p: ParamId, columns: Option<(usize, usize)>| match x.kernel.params[p].kind {
            ParamKind::Vector { .. } => {
                let all = x.vector(p).iter().map(|v| f64::from(*v));
                let (start, n) = columns.unwrap_or((0, all.len()));
                Each::Same(all.skip(start).take(n).collect())
            }
            ParamKind::Rows { cols, .. } => {
                let (start, n) = columns.unwrap_or((0, cols));
                Each::Rows(x.columns(p, start, n))
            }
            ParamKind::Matrix { .. } | ParamKind::State(_) => Each::Same(vec![]),
        };
        let inputs = Inputs {
            q: each(self.q, Some((self.q_start, self.groups * rows))),
            k: each(self.k, Some((self.k_start, self.groups * rows))),
            v: each(self.v, Some((self.v_start, heads * cols))),
            decay: each(self.decay, None),
            with: each(self.with, None),
            write: self.write.map_or(Each::Same(vec![]), |w| each(w, None)),
        };
        let out = recur(&mut state, &x.batch.seqs, &inputs, self.update);
        (out, state)
    }

    /// Checks the columns of the update's operands beside query, key, value and decay.
    fn verify_update(&self, v: &mut KernelVerifier<'_>, state: FixedSpec, keys: usize) {
        let rows = state.heads.saturating_mul(state.rows);
        match self.update {
            Update::Plain | Update::Delta => self.has(v, self.with, state.heads),
            Update::Erase => self.has(v, self.with, keys),
            Update::Bonus => self.vector(v, rows),
            Update::Scan => self.vector(v, rows.saturating_mul(state.cols)),
        }
        match (self.update, self.write) {
            (Update::Erase, Some(write)) => self.has(v, write, keys),
            (Update::Erase, None) => v.error("recurrence-update", "erases nothing"),
            (Update::Plain | Update::Delta | Update::Bonus | Update::Scan, Some(_)) => {
                v.error("recurrence-update", "does not erase, but has keys for it");
            }
            (Update::Plain | Update::Delta | Update::Bonus | Update::Scan, None) => {}
        }
    }

    fn has(&self, v: &mut KernelVerifier<'_>, p: ParamId, want: usize) {
        if let Some(have) = v.f32_each(p) {
            v.columns(p, have, want);
        }
    }

    fn vector(&self, v: &mut KernelVerifier<'_>, want: usize) {
        if v.vector(self.with).is_some_and(|have| have != want) {
            v.error("vector-length", format!("an update takes {want} numbers"));
        }
    }
}

impl Family for Recurrence {
    fn items(&self, params: &[Param]) -> (usize, bool) {
        state_items(params, self.state, |s| s.heads * (s.cols / Self::block(s.cols)))
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        let [q, k, decay] = [self.q, self.k, self.decay].map(|p| v.f32_each(p));
        let [values, out] = [self.v, self.out].map(|p| v.f32_rows(p, v.kernel.rows));
        let Some(state) = v.any_fixed(self.state) else { return };
        let [Some(q), Some(k), Some(decay), Some(values), Some(out)] = [q, k, decay, values, out] else { return };
        if self.groups == 0 || !state.heads.is_multiple_of(self.groups) {
            let what = format!("{} groups of queries do not divide {} heads", self.groups, state.heads);
            return v.error("recurrence-groups", what);
        }
        let (keys, width) = (self.groups.saturating_mul(state.rows), state.heads.saturating_mul(state.cols));
        v.range("recurrence-columns", self.q, self.q_start, keys, q);
        v.range("recurrence-columns", self.k, self.k_start, keys, k);
        v.range("recurrence-columns", self.v, self.v_start, width, values);
        v.columns(self.out, out, width);
        match self.update {
            Update::Scan => v.columns(self.decay, decay, width),
            Update::Plain | Update::Delta | Update::Erase | Update::Bonus => {
                if decay != state.heads.saturating_mul(state.rows) {
                    v.columns(self.decay, decay, state.heads);
                }
            }
        }
        self.verify_update(v, state, keys);
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let (rows, state) = self.run(x);
        Ok(Outcome::recurrent((self.out, rows), (self.state, state)))
    }
}
