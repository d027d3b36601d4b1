//! Coding the rows of a weight by a method, with the statistics of their inputs.

use super::job::{Job, Method, Needs, Prepared};
use super::magnitude::MAGNITUDE;
use super::moments::{Inputs, Run};
use super::plain::NEAREST;
use super::pruner::{Dense, Fill, Known, Pruned, Pruning};
use super::sparsity::Sparsity;
use llmcc_ir::quant::fit::Fit;
use llmcc_ir::quant::{self, Code, Format, PackError};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Codes the rows of one weight.
pub struct Coder<'a> {
    format: Format,
    method: &'static Method,
    pruning: Option<Pruning>,
    fit: Option<Fit>,
    k: usize,
    runs: &'a [Run<'a>],
    /// For each run, statistics prepared for it.
    prepared: BTreeMap<usize, Arc<Prepared>>,
}

/// A pruning after which a format can store rows: where it has two of each four columns, no more than these stay, by
/// magnitude unless another pruner was chosen.
fn by_format(format: Format, pruning: Option<Pruning>) -> Option<Pruning> {
    let pairs = matches!(format.encoding().code, Code::Pairs);
    if !pairs || pruning.is_some_and(|p| p.sparsity.leaves_pairs()) {
        return pruning;
    }
    let pruner = pruning.map_or(&MAGNITUDE, |p| p.pruner);
    Some(Pruning { pruner, sparsity: Sparsity::Tuples { kept: 2, of: 4 } })
}

impl<'a> Coder<'a> {
    /// Codes rows of `k` columns, whose inputs are described by `runs` of rows and whose scales are moved.
    pub fn new(format: Format, method: &'static Method, k: usize, runs: &'a [Run<'a>]) -> Coder<'a> {
        let (method, fit) = (method.coding(), Fit::of(format));
        let pruning = by_format(format, None);
        Coder { format, method, pruning, fit, k, runs, prepared: BTreeMap::new() }
    }

    /// The same for rows that are pruned before. The format [has zeros](super::has_zero).
    pub fn pruned(self, pruning: Option<Pruning>) -> Coder<'a> {
        Coder { pruning: by_format(self.format, pruning), ..self }
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

    /// Prepares the statistics of rows `from..to`, and forgets the statistics of earlier ones. Uses all cores. `fill`
    /// writes rows of the weight.
    pub fn prepare(&mut self, from: usize, to: usize, fill: Fill<'_>) {
        if !self.searches() && self.pruning.is_none() {
            return;
        }
        let within = |(at, rows): (usize, Range<usize>)| (rows.start < to && rows.end > from).then_some(at);
        let wanted: Vec<usize> = self.spans().enumerate().filter_map(within).collect();
        self.prepared.retain(|at, _| wanted.contains(at));
        let by_rows = self.pruning.is_some_and(|p| p.pruner.by_rows);
        for at in wanted {
            if self.prepared.contains_key(&at) {
                continue;
            }
            let same = |(other, _): &(&usize, &Arc<Prepared>)| !by_rows && self.inputs(**other) == self.inputs(at);
            let known = self.prepared.iter().find(same).map(|(_, p)| Arc::clone(p));
            let prepared = known.unwrap_or_else(|| Arc::new(self.statistics(at, fill)));
            self.prepared.insert(at, prepared);
        }
    }

    fn statistics(&self, run: usize, fill: Fill<'_>) -> Prepared {
        let needs = self.pruning.map_or(Needs::Nothing, |p| p.pruner.needs).max(self.method.needs);
        let Some(inputs) = self.inputs(run).filter(|i| i.columns() == self.k && needs > Needs::Nothing) else {
            return Prepared::equal(self.k);
        };
        let Some(importance) = inputs.importance() else { return Prepared::equal(self.k) };
        let pruning = self.pruning.and_then(|Pruning { pruner, sparsity }| {
            let rows = self.spans().nth(run).unwrap_or_default();
            let known = Known { importance: &importance, sparsity, k: self.k, rows, fill };
            Some((pruner.prepare?)(&known, inputs.hessian()?))
        });
        let prepared = Prepared { pruning, ..Prepared::of(importance) };
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
        let fit = self.fit.as_ref().filter(|_| self.searches());
        if fit.is_none() && self.pruning.is_none() {
            return quant::pack_block(self.format, rows, self.k, out);
        }
        quant::check_finite(rows, self.k)?;
        let (mut coded, mut values) = (vec![], vec![]);
        for (run, at) in self.parts(first, rows.len() / self.k) {
            let (dense, inputs) = (&rows[at.start * self.k..at.end * self.k], &self.prepared[&run]);
            let pruned = self.prune(dense, inputs);
            let job = |fit| match &pruned {
                None => Job::new(fit, dense, self.k, inputs),
                Some(Pruned { x, zeros }) => Job { zeros: Some(zeros), ..Job::new(fit, x, self.k, inputs) },
            };
            match fit {
                Some(fit) => coded.extend((self.method.rows)(&job(fit))),
                None => values.extend_from_slice(pruned.as_ref().map_or(dense, |p| &p.x)),
            }
        }
        if fit.is_none() {
            return quant::pack_block(self.format, &values, self.k, out);
        }
        quant::pack_codes(self.format, &coded, self.k, out).map_err(|e| match e {
            // The numbers are finite: their scales are not.
            PackError::NotFinite { row, col } | PackError::TooLarge { row, col } => PackError::TooLarge { row, col },
        })
    }

    /// The runs of `count` rows from row `first` of the weight on, each with its part of them.
    fn parts(&self, first: usize, count: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let part = move |(run, span): (usize, Range<usize>)| {
            let (from, to) = (span.start.max(first), span.end.min(first + count));
            (from < to).then(|| (run, from - first..to - first))
        };
        self.spans().enumerate().filter_map(part)
    }

    /// Rows with the same inputs, pruned.
    fn prune(&self, x: &[f32], inputs: &Prepared) -> Option<Pruned> {
        let Pruning { pruner, sparsity } = self.pruning?;
        let (importance, feedback) = (&inputs.importance[..], inputs.pruning.as_ref());
        Some((pruner.rows)(&Dense { x, k: self.k, sparsity, importance, feedback }))
    }
}
