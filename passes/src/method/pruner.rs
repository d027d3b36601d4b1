//! Lines of the table of pruners, and the rows that they prune.

use super::cholesky::Feedback;
use super::job::Needs;
use super::sparsity::Sparsity;
use llmcc_ir::quant::{Code, Encoding};
use std::ops::Range;

/// A line of the table: how the weights are chosen that become zero.
#[derive(Debug)]
pub struct Pruner {
    /// Its name in options and manifests.
    pub name: &'static str,
    /// A sentence about it.
    pub about: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// The knowledge of a product's inputs that it uses.
    pub needs: Needs,
    /// Makes the feedback by means of products of two columns, `[columns, columns]`, of pruners that read it.
    pub(super) prepare: Option<fn(&Known<'_>, Vec<f64>) -> Feedback>,
    /// Whether [`Pruner::prepare`] reads rows.
    pub(super) by_rows: bool,
    /// Prunes rows.
    pub(super) rows: fn(&Dense<'_>) -> Pruned,
}

impl PartialEq for Pruner {
    fn eq(&self, other: &Pruner) -> bool {
        self.name == other.name
    }
}

/// Weights that become zero: how they are chosen, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pruning {
    /// How they are chosen.
    pub pruner: &'static Pruner,
    /// The part of a row that they are.
    pub sparsity: Sparsity,
}

/// Whether a format of codes with scales has zeros: pruned weights must be none but these.
pub fn has_zero(e: &Encoding) -> bool {
    let zero = match e.code {
        Code::Trellis(_) => false,
        Code::Float(_) | Code::Int { .. } | Code::Signed { .. } | Code::Table { .. } | Code::Pairs => {
            e.number(e.zero_code()) == 0.0
        }
    };
    e.is_quantized() && !e.has_minimum() && zero
}

/// Facts about rows before they are pruned.
pub(super) struct Known<'a> {
    /// Importance of each column, at least 0.
    pub importance: &'a [f32],
    pub sparsity: Sparsity,
    pub k: usize,
    /// Rows with these inputs.
    pub rows: Range<usize>,
    /// Writes the rows from one on.
    pub fill: Fill<'a>,
}

/// Writes the rows of a weight from one on, as many as there is room for.
pub type Fill<'a> = &'a (dyn Fn(usize, &mut [f32]) + Sync);

/// Rows to be pruned, which multiply the same inputs.
pub(super) struct Dense<'a> {
    /// Rows of `k` columns.
    pub x: &'a [f32],
    pub k: usize,
    pub sparsity: Sparsity,
    /// Importance of each column, at least 0.
    pub importance: &'a [f32],
    /// The feedback that [`Pruner::prepare`] made, where products of inputs are known.
    pub feedback: Option<&'a Feedback>,
}

/// Pruned rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pruned {
    /// The weights: zero where they are pruned; others may make up for these.
    pub x: Vec<f32>,
    /// Whether each weight is pruned.
    pub zeros: Vec<bool>,
}

impl Dense<'_> {
    /// Rows whose weights of the least `cost` become zero, and whose others stay. The cost is of a weight and the
    /// importance of its column. Weights are compared within a row, or within a tuple; of equal ones the first becomes
    /// zero.
    pub fn without_least(&self, cost: fn(f32, f32) -> f32) -> Pruned {
        let mut out = Pruned { x: self.x.to_vec(), zeros: vec![false; self.x.len()] };
        let compared = self.sparsity.compared(self.k);
        let rows = self.x.chunks(self.k).zip(out.x.chunks_mut(self.k)).zip(out.zeros.chunks_mut(self.k));
        for ((row, x), zeros) in rows {
            let cost = |c: usize| cost(row[c], self.importance[c]);
            for from in (0..row.len()).step_by(compared) {
                let to = (from + compared).min(row.len());
                let costs = (from..to).map(|c| (cost(c), c)).collect();
                for column in least(costs, self.sparsity.zeros(from, to)) {
                    (x[column], zeros[column]) = (0.0, true);
                }
            }
        }
        out
    }
}

/// The columns of the `count` least costs; of equal costs those that come first.
pub(super) fn least(mut costs: Vec<(f32, usize)>, count: usize) -> impl Iterator<Item = usize> {
    if (1..costs.len()).contains(&count) {
        costs.select_nth_unstable_by(count - 1, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }
    costs.into_iter().take(count).map(|(_, column)| column)
}
