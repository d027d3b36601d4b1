//! Coding the rows of a weight by a method, with the statistics of their inputs.

use super::job::{Job, Method, Needs, Prepared};
use super::moments::{Inputs, Run};
use super::plain::NEAREST;
use llmcc_ir::quant::fit::Fit;
use llmcc_ir::quant::{self, Format, PackError};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Codes the rows of one weight.
pub struct Coder<'a> {
    format: Format,
    method: &'static Method,
    fit: Option<Fit>,
    k: usize,
    runs: &'a [Run<'a>],
    /// For each run, statistics prepared for it.
    prepared: BTreeMap<usize, Arc<Prepared>>,
}

impl<'a> Coder<'a> {
    /// Codes rows of `k` columns, whose inputs are described by `runs` of rows and whose scales are moved.
    pub fn new(format: Format, method: &'static Method, k: usize, runs: &'a [Run<'a>]) -> Coder<'a> {
        Coder { format, method: method.coding(), fit: Fit::of(format), k, runs, prepared: BTreeMap::new() }
    }

    /// Whether codes are chosen by more than the format's own quantizer.
    pub fn searches(&self) -> bool {
        self.fit.is_some() && *self.method != NEAREST
    }

    /// The rows of each run, in order. Rows after the last one, of whose inputs nothing is known, are one run more.
    fn spans(&self) -> impl Iterator<Item = Range<usize>> {
        let rows = self.runs.iter().map(|run| run.rows).chain([usize::MAX]);
        rows.scan(0usize, |end, rows| {
            let first = *end;
            *end = end.saturating_add(rows);
            Some(first..*end)
        })
    }

    fn inputs(&self, run: usize) -> Option<&Inputs<'a>> {
        self.runs.get(run)?.inputs.as_ref()
    }

    /// Prepares the statistics of rows `from..to`, and forgets those of earlier rows. Uses all cores.
    pub fn prepare(&mut self, from: usize, to: usize) {
        if !self.searches() {
            return;
        }
        let within = |(at, rows): (usize, Range<usize>)| (rows.start < to && rows.end > from).then_some(at);
        let wanted: Vec<usize> = self.spans().enumerate().filter_map(within).collect();
        self.prepared.retain(|at, _| wanted.contains(at));
        for at in wanted {
            if self.prepared.contains_key(&at) {
                continue;
            }
            let same = |(other, _): &(&usize, &Arc<Prepared>)| self.inputs(**other) == self.inputs(at);
            let known = self.prepared.iter().find(same).map(|(_, p)| Arc::clone(p));
            let prepared = known.unwrap_or_else(|| Arc::new(self.statistics(self.inputs(at))));
            self.prepared.insert(at, prepared);
        }
    }

    fn statistics(&self, inputs: Option<&Inputs<'_>>) -> Prepared {
        let Some(inputs) = inputs.filter(|i| i.columns() == self.k && self.method.needs > Needs::Nothing) else {
            return Prepared::equal(self.k);
        };
        let Some(importance) = inputs.importance() else { return Prepared::equal(self.k) };
        let prepared = Prepared::of(importance);
        match (&self.fit, self.method.prepare, self.method.prepare.and_then(|_| inputs.hessian())) {
            (Some(fit), Some(prepare), Some(products)) => prepare(fit, products, prepared),
            _ => prepared,
        }
    }

    /// Packs up to 16 rows, which [`prepare`](Coder::prepare) has seen: those from row `first` of the weight on.
    ///
    /// # Errors
    /// As [`quant::pack_block`].
    ///
    /// # Panics
    /// The rows were not prepared.
    pub fn pack(&self, first: usize, rows: &[f32], out: &mut [u8]) -> Result<(), PackError> {
        let (Some(fit), true) = (&self.fit, self.searches()) else {
            return quant::pack_block(self.format, rows, self.k, out);
        };
        quant::check_finite(rows, self.k)?;
        let count = rows.len() / self.k;
        let mut coded = Vec::with_capacity(count);
        for (run, span) in self.spans().enumerate() {
            let (from, to) = (span.start.max(first), span.end.min(first + count));
            if from < to {
                let x = &rows[(from - first) * self.k..(to - first) * self.k];
                coded.extend((self.method.rows)(&Job { fit, x, k: self.k, inputs: &self.prepared[&run] }));
            }
        }
        quant::pack_codes(self.format, &coded, self.k, out).map_err(|e| match e {
            // The numbers are finite: their scales are not.
            PackError::NotFinite { row, col } | PackError::TooLarge { row, col } => PackError::TooLarge { row, col },
        })
    }
}
