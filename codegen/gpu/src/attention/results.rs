//! Where results of attention lie between warps, chunks and blocks.

use super::share::{Split, Team};
use crate::mlir::{Builder, Memory, V};

/// Floats per row of a warp's values: padded so that the eight rows of a tensor-core tile fall into
/// different banks.
fn row_floats(d: usize) -> usize {
    d.next_multiple_of(4) + 8
}

/// Columns that a thread treats at once.
pub(super) fn width(d: usize) -> usize {
    if d.is_multiple_of(4) { 4 } else { 1 }
}

/// Bytes of the results of the warps: values, then maximum and sum of each row.
pub(super) fn results_bytes(warps: u32, rows: usize, d: usize) -> usize {
    (warps as usize * rows * (row_floats(d) + 2) * 4).next_multiple_of(16)
}

/// Bytes of the sums of the chunks so far: values, then maximum and sum of each piece of a row.
fn sums_bytes(rows: usize, d: usize) -> usize {
    (rows * (d + 2 * (d / width(d))) * 4).next_multiple_of(16)
}

/// Shared memory of the results, the sums, a word, and a team's share.
pub(super) fn joined_bytes(warps: u32, rows: usize, d: usize) -> usize {
    results_bytes(warps, rows, d) + sums_bytes(rows, d) + 2 * 16
}

/// Floats of a chunk's result in the workspace: values, then maximum and sum of each row.
pub(super) fn slot_floats(rows: usize, d: usize) -> usize {
    (rows * (d + 2)).next_multiple_of(4)
}

/// Results of the warps of a team, in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Results {
    values: V,
    stats: V,
    stride: usize,
    rows: usize,
    /// Sums of the chunks so far: values, then maxima and sums of pieces.
    pub(super) sums: (V, V),
    /// A word.
    pub(super) flag: V,
    /// Four words: see [`deal`](super::deal).
    pub(super) share: V,
}

impl Results {
    /// Behind the pages: the results of all teams of the block, their sums, their words, their shares.
    pub(super) fn new(b: &mut Builder, split: &Split, team: &Team, d: usize) -> Results {
        let (stride, teams) = (row_floats(d), split.teams);
        let (own, sums) = (results_bytes(split.parts, split.rows, d), sums_bytes(split.rows, d));
        let mut at = split.shared * teams;
        let mut part = |b: &mut Builder, name, bytes| {
            b.buffer(Memory { name, at, bytes, stages: teams, conflict_free: false, over: &[] });
            let base = b.shared_at(at);
            at += bytes * teams;
            let skip = b.mulc(team.number, bytes as i64);
            b.at(base, skip)
        };
        let values = part(b, "results of warps", own);
        let (sums, flag, share) = (part(b, "sums", sums), part(b, "flag", 16), part(b, "share", 16));
        let stats = b.atc(values, (split.parts as usize * split.rows * stride * 4) as i64);
        let sums = (sums, b.atc(sums, (split.rows * d * 4) as i64));
        Results { values, stats, stride, rows: split.rows, sums, flag, share }
    }

    /// Address of element `col` of a row of a warp.
    pub(super) fn value(&self, b: &mut Builder, warp: V, row: V, col: V) -> V {
        let line = self.line(b, warp, row);
        let index = b.mulc(line, self.stride as i64);
        let index = b.add(index, col);
        let offset = b.shlc(index, 2);
        b.at(self.values, offset)
    }

    /// Address of the maximum (and, 4 bytes on, the sum) of a row of a warp.
    pub(super) fn stat(&self, b: &mut Builder, warp: V, row: V) -> V {
        let line = self.line(b, warp, row);
        let offset = b.shlc(line, 3);
        b.at(self.stats, offset)
    }

    fn line(&self, b: &mut Builder, warp: V, row: V) -> V {
        let line = b.mulc(warp, self.rows as i64);
        b.add(line, row)
    }
}
