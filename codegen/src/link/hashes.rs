//! Hashing while writing: see [`llmcc_abi::tree`].

use llmcc_abi::tree::{self, BLOCK, Hash, Leaf, PartDesc, part, part_hash};
use std::collections::VecDeque;

/// A part with its leaves.
#[derive(Clone)]
pub(super) struct Hashed {
    pub desc: PartDesc,
    pub leaves: Vec<Hash>,
}

impl Hashed {
    fn new(kind: u32, file: u32, off: u64, len: u64, leaves: Vec<Hash>) -> Hashed {
        let hash = part_hash(kind, len, leaves.iter().copied());
        Hashed { desc: PartDesc { kind, file, off, len, hash }, leaves }
    }

    /// A part of the artifact, from its bytes.
    pub fn of(kind: u32, off: u64, bytes: &[u8]) -> Hashed {
        Hashed::new(kind, tree::ARTIFACT, off, bytes.len() as u64, bytes.chunks(BLOCK).map(tree::leaf).collect())
    }

    /// The label at the end of a side file with these weights.
    pub fn label(off: u64, bytes: &[u8]) -> Hashed {
        Hashed::new(part::LABEL, tree::SIDE, off, bytes.len() as u64, vec![tree::leaf(bytes)])
    }
}

/// Hashes weights while they are streamed to their place: a part for each tensor.
pub(super) struct Stream {
    file: u32,
    /// Where the weights begin in the file.
    start: u64,
    /// Where the next tensors begin, from there.
    cuts: VecDeque<u64>,
    /// Bytes so far.
    pos: u64,
    /// Where the current part began.
    from: u64,
    leaf: Leaf,
    leaves: Vec<Hash>,
    done: Vec<Hashed>,
}

impl Stream {
    pub fn new(file: u32, start: u64) -> Stream {
        let (cuts, leaf, leaves, done) = Default::default();
        Stream { file, start, cuts, pos: 0, from: 0, leaf, leaves, done }
    }

    /// Starts parts at these offsets, ascending.
    pub fn cut_at(&mut self, offsets: Vec<u64>) {
        self.cuts = offsets.into();
    }

    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            while self.cuts.front().is_some_and(|cut| *cut <= self.pos) {
                self.cuts.pop_front();
                self.end_part();
            }
            let in_leaf = ((self.pos - self.from) % BLOCK as u64) as usize;
            let to_cut =
                self.cuts.front().map_or(usize::MAX, |cut| usize::try_from(cut - self.pos).unwrap_or(usize::MAX));
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - in_leaf).min(to_cut));
            self.leaf.update(now);
            self.pos += now.len() as u64;
            if in_leaf + now.len() == BLOCK {
                self.leaves.push(std::mem::take(&mut self.leaf).finish());
            }
            bytes = rest;
        }
    }

    fn end_part(&mut self) {
        let len = self.pos - self.from;
        if len == 0 {
            return;
        }
        if !len.is_multiple_of(BLOCK as u64) {
            self.leaves.push(std::mem::take(&mut self.leaf).finish());
        }
        let leaves = std::mem::take(&mut self.leaves);
        self.done.push(Hashed::new(part::WEIGHTS, self.file, self.start + self.from, len, leaves));
        self.from = self.pos;
    }

    /// The parts.
    pub fn finish(mut self) -> Vec<Hashed> {
        self.end_part();
        self.done
    }
}

/// Kind, first byte and length of a part that will be hashed.
pub(super) type Range = (u32, u64, u64);

/// Puts ranges in order and names the gaps between them, up to `end`, padding.
pub(super) fn fill_gaps(mut ranges: Vec<Range>, end: u64) -> Vec<Range> {
    ranges.retain(|(_, _, len)| *len > 0);
    ranges.sort_by_key(|(_, off, _)| *off);
    let mut all = vec![];
    let mut at = 0;
    for range in ranges.into_iter().chain([(part::PADDING, end, 0)]) {
        if range.1 > at {
            all.push((part::PADDING, at, range.1 - at));
        }
        at = range.1 + range.2;
        if range.2 > 0 {
            all.push(range);
        }
    }
    all
}

/// The descriptors of parts.
pub(super) fn descriptors(parts: &[Hashed]) -> Vec<PartDesc> {
    parts.iter().map(|p| p.desc).collect()
}

/// The table of hashes.
pub(super) fn table(parts: &[Hashed]) -> Vec<u8> {
    let descriptors = parts.iter().flat_map(|p| p.desc.bytes());
    descriptors.chain(parts.iter().flat_map(|p| p.leaves.iter().copied().flatten())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_parts_have_the_hashes_of_their_bytes() {
        let bytes: Vec<u8> = (0..2 * BLOCK + 12_345).map(|i| (i * 7 / 3) as u8).collect();
        let cuts = [0, 0, 64, BLOCK as u64 + 64, BLOCK as u64 + 128, BLOCK as u64 + 128];
        for piece in [1000, BLOCK, bytes.len()] {
            let mut stream = Stream::new(tree::ARTIFACT, 4096);
            stream.cut_at(cuts.to_vec());
            bytes.chunks(piece).for_each(|b| stream.update(b));
            let parts = stream.finish();
            let ends = [64, BLOCK + 64, BLOCK + 128, bytes.len()];
            let mut from = 0;
            assert_eq!(parts.len(), ends.len());
            for (p, end) in parts.iter().zip(ends) {
                let whole = Hashed::of(part::WEIGHTS, 4096 + from as u64, &bytes[from..end]);
                assert_eq!((p.desc, &p.leaves), (whole.desc, &whole.leaves), "pieces of {piece}");
                from = end;
            }
        }
        assert!(Stream::new(tree::SIDE, 0).finish().is_empty());
    }

    #[test]
    fn gaps_become_padding() {
        let filled = fill_gaps(vec![(part::CODE, 20, 5), (part::TABLES, 3, 7), (part::TABLES, 3, 0)], 30);
        let gap = |off, len| (part::PADDING, off, len);
        assert_eq!(filled, [gap(0, 3), (part::TABLES, 3, 7), gap(10, 10), (part::CODE, 20, 5), gap(25, 5)]);
    }
}
