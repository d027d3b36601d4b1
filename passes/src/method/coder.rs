//! Coding the rows of a weight by a method, with the statistics of their inputs.

use super::cholesky::Feedback;
use super::job::{Job, Method, Needs, Prepared};
use super::moments::{Inputs, Run};
use super::plain::NEAREST;
use llmcc_ir::quant::fit::Fit;
use llmcc_ir::quant::{self, Format, PackError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Codes the rows of one weight.
pub struct Coder<'a> {
    format: Format,
    method: &'static Method,
    fit: Option<Fit>,
    k: usize,
    runs: Vec<Run<'a>>,
    /// For each run, statistics prepared for it.
    prepared: BTreeMap<usize, Arc<Prepared>>,
}

impl<'a> Coder<'a> {
    /// Codes rows of `k` columns, whose inputs are described by `runs` of rows.
    pub fn new(format: Format, method: &'static Method, k: usize, runs: Vec<Run<'a>>) -> Coder<'a> {
        Coder { format, method, fit: Fit::of(format), k, runs, prepared: BTreeMap::new() }
    }

    /// Whether codes are chosen by more than the format's own quantizer.
    pub fn searches(&self) -> bool {
        self.fit.is_some() && *self.method != NEAREST
    }

    /// Prepares the statistics of rows `from..to`, and forgets those of earlier rows. Uses all cores.
    pub fn prepare(&mut self, from: usize, to: usize) {
        if !self.searches() {
            return;
        }
        let (mut first, mut wanted) = (0, vec![]);
        for (at, run) in self.runs.iter().enumerate() {
            if first < to && first + run.rows > from {
                wanted.push(at);
            }
            first += run.rows;
        }
        self.prepared.retain(|at, _| wanted.contains(at));
        for at in wanted {
            if self.prepared.contains_key(&at) {
                continue;
            }
            let same = |(other, _): &(&usize, &Arc<Prepared>)| self.runs[**other].inputs == self.runs[at].inputs;
            let known = self.prepared.iter().find(same).map(|(_, p)| Arc::clone(p));
            let prepared = known.unwrap_or_else(|| Arc::new(self.statistics(self.runs[at].inputs.as_ref())));
            self.prepared.insert(at, prepared);
        }
    }

    fn statistics(&self, inputs: Option<&Inputs<'_>>) -> Prepared {
        let Some(inputs) = inputs.filter(|i| i.columns() == self.k && self.method.needs > Needs::Nothing) else {
            return Prepared::equal(self.k);
        };
        let Some(importance) = inputs.importance() else { return Prepared::equal(self.k) };
        let feedback = (self.method.needs == Needs::Products).then(|| inputs.hessian().map(Feedback::new));
        Prepared { importance, feedback: feedback.flatten() }
    }

    /// Packs up to 16 rows, which [`prepare`](Coder::prepare) has seen: those from row `first` of the weight on.
    ///
    /// # Errors
    /// As [`quant::pack_block`].
    pub fn pack(&self, first: usize, rows: &[f32], out: &mut [u8]) -> Result<(), PackError> {
        let (Some(fit), true) = (&self.fit, self.searches()) else {
            return quant::pack_block(self.format, rows, self.k, out);
        };
        quant::check_finite(rows, self.k)?;
        let (mut coded, mut at) = (Vec::with_capacity(rows.len() / self.k), 0);
        let equal;
        while at < rows.len() / self.k {
            let (run, end) = self.run_of(first + at);
            let count = (end - first - at).min(rows.len() / self.k - at);
            let inputs = match run.and_then(|run| self.prepared.get(&run)) {
                Some(prepared) => prepared,
                None => {
                    equal = Prepared::equal(self.k);
                    let x = &rows[at * self.k..];
                    coded.extend((self.method.rows)(&Job { fit, x, k: self.k, inputs: &equal }));
                    break;
                }
            };
            let x = &rows[at * self.k..(at + count) * self.k];
            coded.extend((self.method.rows)(&Job { fit, x, k: self.k, inputs }));
            at += count;
        }
        quant::pack_codes(self.format, &coded, self.k, out).map_err(|e| match e {
            // The numbers are finite: their scales are not.
            PackError::NotFinite { row, col } | PackError::TooLarge { row, col } => PackError::TooLarge { row, col },
        })
    }

    /// The run that a row belongs to, and the first row after it.
    fn run_of(&self, row: usize) -> (Option<usize>, usize) {
        let mut end = 0;
        for (at, run) in self.runs.iter().enumerate() {
            end += run.rows;
            if row < end {
                return (Some(at), end);
            }
        }
        (None, usize::MAX)
    }
}
