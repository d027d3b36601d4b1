//! How many pages sequences take of each group of states: the arithmetic that the runtime allocates
//! by and the compiler reports.
//!
//! Attention states with the same window keep and give back the same tokens, so they share a block
//! table and numbers of pages: page `p` of a group is page `p` in the pool of each of its states. A
//! group's pages are a pool of their own, so that a layer that sees everything does not keep the
//! tokens windows have left behind. States with a row for several tokens have pages of as many
//! times more.
//!
//! States of fixed size are a group too: its "pages" are slots, and a sequence has one as soon as
//! it has a token.

use crate::layout::{KEPT_BEHIND, window_pages};
use crate::{PAGE_TOKENS, StateDesc, state};

/// Where pools are allocated, they are for sequences of so many tokens on average: each keeps a
/// whole window, however short the rest of it is.
const SEQUENCE_TOKENS: usize = 4096;
/// The first tokens of sequences, which short ones have as well, are kept of sequences of so many tokens on average.
const SHORT_TOKENS: usize = 256;
/// ... and for this many sequences at least.
const LEAST_SEQUENCES: usize = 8;
/// Tokens that a cache holds by default, or a sequence of the longest context if that is longer, where memory allows.
pub const CACHE_TOKENS: usize = 16384;
/// Tokens of the largest step by default, on a processor.
pub const STEP_TOKENS: usize = 512;
/// And on a GPU.
pub const GPU_STEP_TOKENS: usize = 2048;
/// The output of one step may use this many bytes, unless a single row needs more.
pub const OUTPUT_BYTES: usize = 64 << 20;
/// And on a GPU, where a step more is all weights once more: 256 rows of 128 Ki logits.
pub const GPU_OUTPUT_BYTES: usize = 128 << 20;
/// Snapshots of states of fixed size that a sequence keeps.
pub const SNAPSHOTS: usize = 2;

/// States that share a block table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Whether its states have a fixed size.
    pub fixed: bool,
    /// Number of adapters there is room for, if the group's states are their matrices: each "page"
    /// is an adapter, page 0 belongs to nobody, and a sequence names the one it has.
    pub adapters: usize,
    /// Window in tokens; 0: its states see the whole sequence.
    pub window: usize,
    /// How many tokens have a row in common; 1: each has its own.
    pub every: usize,
    /// So many tokens of a sequence have rows, the first ones; 0: all have.
    pub first: usize,
    /// Track of a sequence whose tokens its states are of.
    pub track: usize,
    /// Bytes of a page, or slot, in all its states.
    pub page_bytes: usize,
    /// Pages of the group.
    pub pages: usize,
}

impl Group {
    /// A group without states or pages.
    pub const EMPTY: Group =
        Group { fixed: false, adapters: 0, window: 0, every: 1, first: 0, track: 0, page_bytes: 0, pages: 0 };

    /// Adds a state, which is as all of the group.
    pub fn add(&mut self, d: &StateDesc) {
        match d.kind {
            state::ADAPTER => self.adapters = d.window as usize,
            state::STRIDED => self.every = (d.window as usize).max(1),
            state::FIRST => self.first = d.window as usize,
            kind => (self.fixed, self.window) = (kind == state::FIXED, d.window as usize),
        }
        self.track = d.track as usize;
        self.page_bytes = self.page_bytes.saturating_add(d.bytes as usize);
    }

    /// Whether pages are given back.
    pub fn slides(&self) -> bool {
        self.window > 0
    }

    /// First page that the next token of a sequence of `len` tokens sees.
    pub fn first_page(&self, len: usize) -> usize {
        if self.slides() { (len + 1).saturating_sub(self.window) / PAGE_TOKENS } else { 0 }
    }

    /// Index of the first page that a sequence of `len` tokens keeps: the window of the next token,
    /// and a little more.
    pub fn kept_from(&self, len: usize) -> usize {
        self.first_page(len).saturating_sub(KEPT_BEHIND)
    }

    /// Rows of a sequence of `len` tokens.
    fn rows(&self, len: usize) -> usize {
        if self.first > 0 { len.min(self.first) } else { len / self.every }
    }

    /// Pages of a sequence of `len` tokens, those that have been given back included.
    pub fn pages_at(&self, len: usize) -> usize {
        match (self.adapters, self.fixed) {
            (0, true) => usize::from(len > 0),
            (0, false) => self.rows(len).div_ceil(PAGE_TOKENS),
            // They are not the sequence's own.
            _ => 0,
        }
    }

    /// The page that the next token of a sequence of `len` tokens changes, if it is there already.
    pub fn changed_page(&self, len: usize) -> Option<usize> {
        match (self.adapters, self.fixed) {
            (1.., _) => None,
            (0, true) => (len > 0).then_some(0),
            (0, false) => {
                let rows = self.rows(len);
                let full = self.first > 0 && rows == self.first;
                (!full && !rows.is_multiple_of(PAGE_TOKENS)).then_some(rows / PAGE_TOKENS)
            }
        }
    }

    /// Most pages that a sequence of its own uses while it grows to `len` tokens in steps of up to
    /// `chunk`; snapshots are not among them.
    pub fn pages_for(&self, len: usize, chunk: usize) -> usize {
        let all = self.pages_at(len);
        if self.slides() { all.min(window_pages(self.window, chunk)) } else { all }
    }

    /// Most bytes that a sequence of its own takes while it grows to `len` tokens in steps of up to
    /// `chunk`, with its snapshots.
    pub fn sequence_bytes(&self, len: usize, chunk: usize) -> usize {
        let snapshots = if self.fixed { SNAPSHOTS } else { 0 };
        self.page_bytes.saturating_mul(self.pages_for(len, chunk).saturating_add(snapshots))
    }

    /// Bytes of the adapters that there is room for: one more slot is for sequences without.
    pub fn adapter_bytes(&self) -> usize {
        if self.adapters > 0 { self.page_bytes.saturating_mul(self.adapters + 1) } else { 0 }
    }

    /// Bytes of its pages.
    pub fn bytes(&self) -> usize {
        self.page_bytes.saturating_mul(self.pages)
    }

    /// Tokens that are kept: 0 where none are, more than any window where all are.
    fn lifetime(&self) -> usize {
        match (self.fixed || self.adapters > 0, self.window) {
            (true, _) => 0,
            (_, 0) if self.first > 0 => self.first,
            (_, 0) => usize::MAX,
            (_, window) => window,
        }
    }
}

/// Gives every group room for `pages` pages of tokens, in as many sequences as there are pages (and
/// at least 8): for memory that costs nothing until it is written.
pub fn reserve(groups: &mut [Group], pages: usize) {
    for group in groups {
        group.pages = match (group.adapters, group.fixed) {
            (0, true) => pages.max(LEAST_SEQUENCES),
            (0, false) => pages,
            (adapters, _) => adapters + 1,
        };
    }
}

/// [`reserve`] for memory that is allocated: the group that keeps tokens longest can hold `pages`
/// pages. Each other group has pages for the windows of as many sequences as `tokens` tokens suffice
/// for (one per 4096 tokens, and at least 8) while a step of `chunk` tokens is under way; or two
/// slots per sequence, the second for a snapshot; or pages of rows that several tokens share; or the first
/// tokens of sequences (one per 256 tokens, and at least 8).
pub fn allocate(groups: &mut [Group], pages: usize, tokens: usize, chunk: usize) {
    reserve(groups, pages);
    let longest = groups.iter().map(Group::lifetime).max().unwrap_or(0);
    let sequences = tokens.div_ceil(SEQUENCE_TOKENS).max(LEAST_SEQUENCES);
    for group in groups.iter_mut().filter(|g| g.adapters == 0 && (g.fixed || g.lifetime() < longest)) {
        let windows =
            sequences.saturating_mul(window_pages(group.window, 0)).saturating_add(chunk.div_ceil(PAGE_TOKENS));
        group.pages = match (group.fixed, group.first) {
            (true, _) => sequences.saturating_mul(2),
            (_, 0) => group.pages.min(windows),
            (_, first) => {
                let short = tokens.div_ceil(SHORT_TOKENS).max(LEAST_SEQUENCES);
                group.pages.min(short.saturating_mul(first.div_ceil(PAGE_TOKENS)))
            }
        };
    }
    for group in groups.iter_mut().filter(|g| g.every > 1) {
        // Each sequence begins a page.
        group.pages = group.pages.min(group.pages.div_ceil(group.every).saturating_add(sequences));
    }
}

/// The most tokens, up to `most`, for which there is room, as `fits` says: whole pages, if not all. 0 if there is no
/// room for any.
pub fn most_tokens(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    if fits(most) {
        return most;
    }
    // `from` pages fit, `to` pages do not.
    let (mut from, mut to) = (0, most.div_ceil(PAGE_TOKENS));
    while from + 1 < to {
        let middle = from.midpoint(to);
        if fits(middle * PAGE_TOKENS) { from = middle } else { to = middle }
    }
    from * PAGE_TOKENS
}
