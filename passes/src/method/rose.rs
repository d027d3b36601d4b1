//! ROSE: SparseGPT, with the columns that lose most pruned first, so that more columns are left to make up for them.
//!
//! Su and Wang 2026, arXiv 2603.05878, computed as the authors' code does, but weights are compared within a row.
//! Losses of columns are estimated by pruning each block by Wanda: the sum of `|w|·‖x‖` of its zeros. Blocks go by
//! descending loss, and the columns of a block of 128, too; the columns of a tuple keep their order. Where blocks lose
//! nearly alike, the order stays from left to right.

use super::cholesky::Feedback;
use super::job::Needs;
use super::pruner::{Known, Pruner, least};
use super::sparsegpt::{self, BLOCK};
use rayon::prelude::*;

pub(super) const ROSE: Pruner = Pruner {
    name: "rose",
    about: "as sparsegpt, with the columns that lose most pruned first",
    source: "Su and Wang 2026, arXiv 2603.05878, by row",
    needs: Needs::Products,
    prepare: Some(|known, products| Feedback::in_order(products, order(known))),
    by_rows: true,
    rows: sparsegpt::rows,
};

/// Part of the largest loss of a block by which the losses of blocks differ at least where columns are reordered.
const RANGE: f64 = 0.5;
/// Parts of the rows whose losses are added up on their own.
const PARTS: usize = 16;
/// Rows that are read together.
const ROWS: usize = 16;

/// The columns in the order in which they are pruned.
fn order(known: &Known<'_>) -> Vec<usize> {
    let losses = losses(known);
    let size = known.sparsity.compared(BLOCK);
    let columns: Vec<usize> = (0..known.k).collect();
    let mut blocks: Vec<(f64, Vec<usize>)> =
        columns.chunks(size).map(|block| (block.iter().map(|c| losses[*c]).sum(), block.to_vec())).collect();
    let (low, high) = blocks.iter().fold((f64::INFINITY, 0f64), |(l, h), (loss, _)| (l.min(*loss), h.max(*loss)));
    if high - low <= RANGE * high {
        return columns;
    }
    if size == BLOCK {
        let descending = |a: &usize, b: &usize| losses[*b].total_cmp(&losses[*a]).then(a.cmp(b));
        blocks.iter_mut().for_each(|(_, columns)| columns.sort_by(descending));
    }
    // (The end of the columns, which may be less than a block, stays the end.)
    let whole = known.k / size;
    blocks[..whole].sort_by(|(a, of), (b, other)| b.total_cmp(a).then(of.iter().min().cmp(&other.iter().min())));
    blocks.into_iter().flat_map(|(_, columns)| columns).collect()
}

/// By column, the sum over all rows of `|w|·‖x‖` of weights that are pruned by it.
fn losses(known: &Known<'_>) -> Vec<f64> {
    let norms: Vec<f32> = known.importance.iter().map(|h| h.sqrt()).collect();
    let count = known.rows.len();
    let of_part = |part: usize| {
        let mut sums = vec![0f64; known.k];
        let (mut at, end) = (known.rows.start + part * count / PARTS, known.rows.start + (part + 1) * count / PARTS);
        let mut x = vec![0f32; ROWS * known.k];
        while at < end {
            let x = &mut x[..ROWS.min(end - at) * known.k];
            (known.fill)(at, x);
            x.chunks(known.k).for_each(|row| add(row, &norms, known, &mut sums));
            at += ROWS;
        }
        sums
    };
    // Sums of fixed parts in their order: the same for any threads.
    let parts: Vec<Vec<f64>> = (0..PARTS).into_par_iter().map(of_part).collect();
    let mut all = vec![0f64; known.k];
    parts.iter().for_each(|part| all.iter_mut().zip(part).for_each(|(sum, v)| *sum += v));
    all
}

/// Adds a row.
fn add(row: &[f32], norms: &[f32], known: &Known<'_>, sums: &mut [f64]) {
    let size = known.sparsity.compared(BLOCK);
    for from in (0..known.k).step_by(size) {
        let to = (from + size).min(known.k);
        let costs = (from..to).map(|c| (row[c].abs() * norms[c], c)).collect();
        least(costs, known.sparsity.zeros(from, to)).for_each(|c| sums[c] += f64::from(row[c].abs() * norms[c]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::sparsity::Sparsity;

    /// Columns of large weights come first; tuples stay together, and what is left of the columns stays last.
    #[test]
    fn blocks_that_lose_most_come_first() {
        let k = 300;
        let fill = |_: usize, x: &mut [f32]| {
            x.iter_mut().enumerate().for_each(|(i, w)| *w = 1.0 + (i % k) as f32 / 8.0);
        };
        let importance = vec![1.0; k];
        let of = |sparsity| order(&Known { importance: &importance, sparsity, k, rows: 0..40, fill: &fill });
        let found = of(Sparsity::HALF);
        // The lower half of a block is pruned, and nothing is lost in the upper half.
        assert_eq!(
            (&found[..2], &found[64..66], found[128], &found[256..258]),
            (&[191, 190][..], &[192, 193][..], 63, &[277, 276][..])
        );
        let found = of(Sparsity::Tuples { kept: 2, of: 4 });
        assert_eq!((&found[..5], found[299]), (&[296, 297, 298, 299, 292][..], 3));
        // (An incomplete tuple.)
        let known = Known {
            importance: &importance[..7],
            sparsity: Sparsity::Tuples { kept: 2, of: 4 },
            k: 7,
            rows: 0..5,
            fill: &|_, x| x.fill(1.0),
        };
        assert_eq!(order(&known), [0, 1, 2, 3, 4, 5, 6]);
        let mut sorted = of(Sparsity::Percent(70));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..k).collect::<Vec<_>>());
    }
}
