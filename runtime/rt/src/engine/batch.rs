//! Batches, the chunks that they are cut into, and the arrays that describe a chunk to kernels.

use std::ops::Range;

use llmcc_abi::{Array, NONE, PAGE_TOKENS};

use super::options::Limits;
use crate::candidates::Want;
use crate::image::Entry;
use crate::kv::places::append;
use crate::kv::{Kv, SeqId};

/// A ragged batch: token `i` is appended to sequence `seqs[i]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch<'a> {
    /// Token ids, each below the vocabulary size.
    pub tokens: &'a [i32],
    /// Sequence of each token. Tokens of one sequence need not be adjacent.
    pub seqs: &'a [SeqId],
    /// Indices of the tokens whose rows of the output are wanted, in any order.
    pub out_rows: &'a [u32],
    /// Type of each token; empty: all of type 0.
    pub types: &'a [i32],
    /// A row of each token, `[tokens, hidden]`, of a model that takes rows; else empty.
    pub hidden: &'a [f32],
    /// Positions of each token along the axes, `[tokens, axes]`, of a model whose tokens have such; empty: along all of
    /// them one more than the largest before it in its sequence.
    pub positions: &'a [i32],
}

/// Arrays of a step, as in [`llmcc_abi::StepCtx`].
#[derive(Default)]
pub(crate) struct Inputs {
    /// Token ids.
    pub tokens: Vec<i32>,
    /// Their positions.
    pub positions: Vec<i32>,
    /// Lengths of their sequences after the step: of all of them in the first track, then in the second...
    pub ends: Vec<i32>,
    /// Their types, where the entry takes types.
    pub types: Vec<i32>,
    /// Rows that came with them, where the entry takes rows.
    pub given: Vec<f32>,
    /// Their positions along the axes, where the entry takes these.
    pub axes: Vec<i32>,
    /// Their rows in each group's table.
    pub seqs: Vec<i32>,
    /// Token rows whose logits are wanted, ascending.
    pub out_rows: Vec<i32>,
    /// The result requested for each of them.
    pub wants: Vec<Want>,
    /// Page numbers, `stride` per sequence: the tables of all groups, one after the other.
    pub tables: Vec<u32>,
    /// Entries per row of a table.
    pub stride: usize,
    /// KV slot of each row of a table.
    pub slots: Vec<usize>,
    /// Tokens of each row of a table in this step.
    pub counts: Vec<u32>,
    /// Row in each table of each KV slot, [`NONE`] when absent.
    row_of_slot: Vec<u32>,
}

impl Inputs {
    /// Describes tokens `range` of `batch` to an entry, with the rows that `out` (indices in `batch.out_rows`,
    /// ascending by token) want; `wants` has an entry per `batch.out_rows`, or none: all want
    /// logits.
    pub fn fill(&mut self, entry: &Entry, batch: &Batch, wants: &[Want], range: Range<usize>, out: &[usize], kv: &Kv) {
        self.tokens.clear();
        self.tokens.extend_from_slice(&batch.tokens[range.clone()]);
        self.types.clear();
        if entry.types > 0 {
            self.types.extend(range.clone().map(|i| batch.types.get(i).copied().unwrap_or(0)));
        }
        self.given.clear();
        if entry.placeholder.is_none_or(|of| self.tokens.contains(&of)) {
            self.given.extend_from_slice(of_tokens(batch.hidden, entry.given, range.clone()));
        }
        self.positions.clear();
        self.seqs.clear();
        self.slots.clear();
        self.counts.clear();
        self.row_of_slot.clear();
        self.row_of_slot.resize(kv.slots(), NONE);
        let mut lengths: Vec<usize> = Vec::new();
        for &seq in &batch.seqs[range.clone()] {
            // Checked by the engine: every sequence exists.
            let slot = kv.slot(seq).unwrap_or_default();
            if self.row_of_slot[slot] == NONE {
                self.row_of_slot[slot] = self.slots.len() as u32;
                self.slots.push(slot);
                self.counts.push(0);
                lengths.push(kv.slot_len(slot, entry.track));
            }
            let row = self.row_of_slot[slot] as usize;
            self.seqs.push(row as i32);
            self.positions.push(lengths[row] as i32);
            lengths[row] += 1;
            self.counts[row] += 1;
        }
        self.place(entry, batch, range.clone(), kv);
        self.ends.clear();
        for track in 0..kv.tracks() {
            let after = |row: usize| match track == entry.track {
                true => lengths[row],
                false => kv.slot_len(self.slots[row], track),
            };
            self.ends.extend(self.seqs.iter().map(|&row| after(row as usize) as i32));
        }
        if let Some(of) = entry.placeholder.filter(|_| entry.runs) {
            self.end_at_runs(of, entry.track);
        }
        self.ask(batch, wants, range.start, out);
        let read = entry.reads.iter().flat_map(|track| self.slots.iter().map(|slot| kv.slot_len(*slot, *track)));
        self.stride = lengths.into_iter().chain(read).map(|l| l.div_ceil(PAGE_TOKENS)).max().unwrap_or(0);
        self.tables.clear();
        self.tables.resize(kv.groups() * self.table_len(), 0);
        let rows = (0..kv.groups()).flat_map(|group| self.slots.iter().map(move |&slot| kv.pages(slot, group)));
        for (row, pages) in rows.enumerate() {
            let n = pages.len().min(self.stride);
            self.tables[row * self.stride..][..n].copy_from_slice(&pages[..n]);
        }
    }

    /// Notes the rows that are asked for, of tokens from `first` on, each once.
    fn ask(&mut self, batch: &Batch, wants: &[Want], first: usize, out: &[usize]) {
        self.out_rows.clear();
        self.wants.clear();
        for same in out.chunk_by(|a, b| batch.out_rows[*a] == batch.out_rows[*b]) {
            self.out_rows.push(batch.out_rows[same[0]] as i32 - first as i32);
            let want = same.iter().map(|i| wants.get(*i).copied().unwrap_or_default()).reduce(Want::both);
            self.wants.push(want.unwrap_or_default());
        }
    }

    /// Ends what each token sees with itself, or with the run of tokens `of` that it is in.
    fn end_at_runs(&mut self, of: i32, track: usize) {
        let first = self.first_end(track);
        // By row: where the run that begins with its next token ends; 0: none does.
        let mut after = vec![0; self.slots.len()];
        for i in (0..self.tokens.len()).rev() {
            let (row, own) = (self.seqs[i] as usize, self.positions[i] + 1);
            let end = if self.tokens[i] == of && after[row] > 0 { after[row] } else { own };
            after[row] = if self.tokens[i] == of { end } else { 0 };
            self.ends[first + i] = end;
        }
    }

    /// Positions along the axes: those that come with tokens `range` of a batch, or by the sequences' latest.
    fn place(&mut self, entry: &Entry, batch: &Batch, range: Range<usize>, kv: &Kv) {
        self.axes.clear();
        if entry.axes == 0 {
            return;
        }
        let mut next: Vec<i32> = self.slots.iter().map(|slot| kv.next_position(*slot, entry.track)).collect();
        for (&row, i) in self.seqs.iter().zip(range) {
            let own = batch.positions.get(i * entry.axes..(i + 1) * entry.axes);
            append(&mut self.axes, own, entry.axes, &mut next[row as usize]);
        }
    }

    /// The positions of token `i` along the axes; none where the entry takes none.
    pub fn axes_of(&self, i: usize, entry: &Entry) -> Option<&[i32]> {
        self.axes.get(i * entry.axes..(i + 1) * entry.axes).filter(|own| !own.is_empty())
    }

    /// The row that came with token `i`; empty without one.
    pub fn given_of(&self, i: usize, entry: &Entry) -> &[f32] {
        of_tokens(&self.given, entry.given, i..i + 1)
    }

    /// The bytes of an array; none where the step has none.
    pub fn array(&self, array: Array) -> &[u8] {
        match array {
            Array::Types => bytes(&self.types),
            Array::Given => bytes(&self.given),
            Array::Axes => bytes(&self.axes),
        }
    }

    /// Where the lengths in a track begin.
    pub fn first_end(&self, track: usize) -> usize {
        track * self.tokens.len()
    }

    /// Entries of a group's table: that of group `g` starts at `g` times as many.
    pub fn table_len(&self) -> usize {
        self.stride * self.slots.len()
    }
}

/// Values without padding.
trait Scalar: Copy {}
impl Scalar for i32 {}
impl Scalar for f32 {}

fn bytes<T: Scalar>(values: &[T]) -> &[u8] {
    // SAFETY: every byte of a value is initialised.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The rows of tokens `range`, of `cols` columns.
pub(crate) fn of_tokens<T>(rows: &[T], cols: usize, range: Range<usize>) -> &[T] {
    rows.get(range.start * cols..range.end * cols).unwrap_or_default()
}

/// Where the chunk ends that starts at token `from` and entry `done` of `order` (the wanted rows,
/// ascending by token): as many tokens as the limits allow, and as many different rows.
pub(crate) fn chunk(batch: &Batch, order: &[usize], (from, done): (usize, usize), limits: Limits) -> (usize, usize) {
    let row = |&i: &usize| batch.out_rows[i] as usize;
    let mut to = batch.tokens.len().min(from + limits.tokens);
    let mut different = order[done..].chunk_by(|a, b| row(a) == row(b));
    if let Some(first_too_many) = different.nth(limits.rows) {
        to = to.min(row(&first_too_many[0]));
    }
    (to, done + order[done..].partition_point(|i| row(i) < to))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends of all chunks.
    fn chunks(tokens: usize, out_rows: &[u32], max_tokens: usize, max_rows: usize) -> Vec<(usize, usize)> {
        let tokens = vec![0; tokens];
        let batch = Batch { tokens: &tokens, seqs: &tokens, out_rows, ..Batch::default() };
        let mut order: Vec<usize> = (0..out_rows.len()).collect();
        order.sort_by_key(|&i| out_rows[i]);
        let mut ends = vec![(0, 0)];
        while ends[ends.len() - 1].0 < tokens.len() {
            ends.push(chunk(&batch, &order, ends[ends.len() - 1], Limits { tokens: max_tokens, rows: max_rows }));
        }
        ends.split_off(1)
    }

    #[test]
    fn chunks_bound_tokens_and_rows() {
        assert_eq!(chunks(10, &[9], 4, 8), [(4, 0), (8, 0), (10, 1)]);
        assert_eq!(chunks(6, &[0, 1, 2, 3, 4, 5], 4, 2), [(2, 2), (4, 4), (6, 6)]);
        assert_eq!(chunks(6, &[5, 1], 4, 2), [(4, 1), (6, 2)]);
        assert_eq!(chunks(3, &[0, 1, 2], 4, 1), [(1, 1), (2, 2), (3, 3)]);
        // Rows in any order; one wanted several times counts once.
        assert_eq!(chunks(5, &[3, 0, 3, 3, 1], 5, 2), [(3, 2), (5, 5)]);
        assert_eq!(chunks(1, &[], 4, 2), [(1, 0)]);
    }
}
