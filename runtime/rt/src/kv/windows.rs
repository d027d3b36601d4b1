//! Groups of states of one lifetime, and how many pages they need.
//!
//! Attention states with the same window keep and give back the same tokens, so they share a block
//! table and numbers of pages: page `p` of a group is page `p` in the pool of each of its states. A
//! group's pages are a pool of their own, so that a layer that sees everything does not keep the
//! tokens windows have left behind. States with a row for several tokens have pages of as many
//! times more.
//!
//! States of fixed size are a group too: its "pages" are slots, and a sequence has one as soon as
//! it has a token.

use llmcc_abi::layout::{KEPT_BEHIND, window_pages};
use llmcc_abi::{PAGE_TOKENS, StateDesc, state};

use crate::error::{Error, Result};

/// Where pools are allocated, they are for sequences of so many tokens on average: each keeps a
/// whole window, however short the rest of it is.
const SEQUENCE_TOKENS: usize = 4096;
/// ... and for this many sequences at least.
const LEAST_SEQUENCES: usize = 8;

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
    /// Bytes of a page, or slot, in all its states.
    pub page_bytes: usize,
    /// Pages of the group.
    pub pages: usize,
}

/// How many pages each group has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Groups, by [`StateDesc::group`].
    pub groups: Vec<Group>,
    /// Group of each state.
    pub of_state: Vec<usize>,
    /// Tokens that all sequences together can hold.
    pub max_tokens: usize,
}

impl Group {
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
        len / self.every
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
                (!rows.is_multiple_of(PAGE_TOKENS)).then_some(rows / PAGE_TOKENS)
            }
        }
    }

    /// Most pages that a sequence of its own uses while it grows to `len` tokens in steps of up to
    /// `chunk`.
    pub fn pages_for(&self, len: usize, chunk: usize) -> usize {
        let all = self.pages_at(len);
        if self.slides() { all.min(window_pages(self.window, chunk)) } else { all }
    }

    /// Bytes of its pages.
    pub fn bytes(&self) -> usize {
        self.page_bytes.saturating_mul(self.pages)
    }

    /// Tokens that are kept: 0 where none are, more than any window where all are.
    fn lifetime(&self) -> usize {
        match (self.fixed || self.adapters > 0, self.window) {
            (true, _) => 0,
            (_, 0) => usize::MAX,
            (_, window) => window,
        }
    }
}

impl Layout {
    /// Every group can hold `max_tokens` tokens, in as many sequences as there are pages (and at
    /// least 8): for memory that costs nothing until it is written.
    ///
    /// # Errors
    /// No tokens, or more than can be numbered.
    pub fn reserved(descs: &[StateDesc], max_tokens: usize) -> Result<Layout> {
        let pages = page_count(max_tokens)?;
        let count = descs.iter().map(|d| d.group as usize + 1).max().unwrap_or(0);
        let mut groups = vec![Group { fixed: false, adapters: 0, window: 0, every: 1, page_bytes: 0, pages }; count];
        for d in descs {
            let group = &mut groups[d.group as usize];
            match d.kind {
                state::ADAPTER => group.adapters = d.window as usize,
                state::STRIDED => group.every = (d.window as usize).max(1),
                kind => (group.fixed, group.window) = (kind == state::FIXED, d.window as usize),
            }
            group.page_bytes = group.page_bytes.saturating_add(d.bytes as usize);
            group.pages = match (group.adapters, group.fixed) {
                (0, true) => pages.max(LEAST_SEQUENCES),
                (0, false) => pages,
                (adapters, _) => adapters + 1,
            };
        }
        Ok(Layout {
            groups,
            of_state: descs.iter().map(|d| d.group as usize).collect(),
            max_tokens: pages * PAGE_TOKENS,
        })
    }

    /// For memory that is allocated: the group that keeps tokens longest can hold `max_tokens`.
    /// Each other group has pages for the windows of as many sequences as that suffices for (one
    /// per 4096 tokens, and at least 8) while a step of `chunk` tokens is under way; or two slots
    /// per sequence, the second for a snapshot; or pages of rows that several tokens share.
    ///
    /// # Errors
    /// As [`Layout::reserved`].
    pub fn allocated(descs: &[StateDesc], max_tokens: usize, chunk: usize) -> Result<Layout> {
        let mut layout = Layout::reserved(descs, max_tokens)?;
        let longest = layout.groups.iter().map(Group::lifetime).max().unwrap_or(0);
        let sequences = max_tokens.div_ceil(SEQUENCE_TOKENS).max(LEAST_SEQUENCES);
        for group in layout.groups.iter_mut().filter(|g| g.adapters == 0 && (g.fixed || g.lifetime() < longest)) {
            let windows =
                sequences.saturating_mul(window_pages(group.window, 0)).saturating_add(chunk.div_ceil(PAGE_TOKENS));
            group.pages = if group.fixed { sequences.saturating_mul(2) } else { group.pages.min(windows) };
        }
        for group in layout.groups.iter_mut().filter(|g| g.every > 1) {
            // Each sequence begins a page.
            group.pages = group.pages.min(group.pages.div_ceil(group.every).saturating_add(sequences));
        }
        Ok(layout)
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> usize {
        self.groups.iter().fold(0, |sum, g| sum.saturating_add(g.bytes()))
    }

    /// Pages in the pool of each state.
    pub fn pages(&self) -> impl Iterator<Item = usize> {
        self.of_state.iter().map(|&g| self.groups[g].pages)
    }

    /// The most tokens, up to `most`, with which pools [`Layout::allocated`] take no more than
    /// `bytes`: whole pages, if not all. 0 if there is no room for any.
    pub fn fit(descs: &[StateDesc], most: usize, chunk: usize, bytes: usize) -> usize {
        let fits = |tokens: usize| Layout::allocated(descs, tokens, chunk).is_ok_and(|l| l.bytes() <= bytes);
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
}

/// Pages that hold `max_tokens` tokens.
///
/// # Errors
/// None, or more than can be numbered.
pub fn page_count(max_tokens: usize) -> Result<usize> {
    let pages = max_tokens.div_ceil(PAGE_TOKENS);
    if pages == 0 || pages > i32::MAX as usize {
        return Err(Error::invalid(format!("max_tokens is {max_tokens}; use 1 to {}", i32::MAX)));
    }
    Ok(pages)
}
