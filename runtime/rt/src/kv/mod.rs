//! Sequences and the pages of the KV cache they own.
//!
//! A page holds [`PAGE_TOKENS`] tokens of every attention state of a *group*, which are those with the same window ([`windows`]): page `p` of state `s` lies `p * page_bytes(s)` into
//! the pool of `s`, and a sequence has one block table per group. What is here is the bookkeeping; the pages themselves are a [`PageStore`]: [`HostPages`], or a GPU's.
//!
//! Pages that the window of a group has left behind are given back ([`Kv::slide`]), so a sequence needs of such a group memory for its window (and a chunk of its
//! prompt), however long it becomes.
//!
//! Sequences may share pages ([`Kv::fork`]); who appends to a shared, partly filled page gets a copy first.

mod pages;
mod sequences;
mod windows;

use llmcc_abi::PAGE_TOKENS;
use llmcc_abi::layout::window_pages;

use crate::error::{Error, Result, Status};
use pages::Pool;
pub use pages::{HostPages, PageStore, page_count};
use sequences::Sequences;
pub use windows::{Group, Layout};

/// Handle of a sequence. They count up, so a handle that was freed is noticed when it is used again: numbers start over after a thousand million sequences or more.
pub type SeqId = i32;

/// All sequences and the pages they own.
pub struct Kv {
    store: Box<dyn PageStore>,
    layout: Layout,
    /// Pages of each group.
    pools: Vec<Pool>,
    seqs: Sequences,
    max_context: usize,
}

impl Kv {
    /// No sequences yet, over the pages of `store`, which has `layout`; a sequence may have `max_context` tokens.
    pub fn new(store: Box<dyn PageStore>, layout: Layout, max_context: usize) -> Kv {
        let pools = layout.groups.iter().map(|g| Pool::new(g.pages)).collect();
        Kv { store, pools, seqs: Sequences::new(layout.groups.len()), layout, max_context }
    }

    /// Whether pages are given back, so that [`Kv::extend`] is needed.
    pub fn slides(&self) -> bool {
        self.layout.groups.iter().any(Group::slides)
    }

    /// Groups of attention states, each with its own pages.
    pub fn groups(&self) -> usize {
        self.pools.len()
    }

    /// Tokens all sequences together can hold.
    pub fn max_tokens(&self) -> usize {
        self.layout.max_tokens
    }

    /// Longest sequence.
    pub fn max_context(&self) -> usize {
        self.max_context
    }

    /// Pages in use, of all groups.
    pub fn used_pages(&self) -> usize {
        self.pools.iter().map(Pool::used).sum()
    }

    /// Bytes of the pages in use.
    pub fn used_bytes(&self) -> usize {
        self.pools.iter().zip(&self.layout.groups).map(|(pool, group)| pool.used() * group.page_bytes).sum()
    }

    /// Pages of a group that nobody uses.
    pub fn free_pages(&self, group: usize) -> usize {
        self.pools[group].free()
    }

    /// Most pages of a group that a sequence of its own uses while it grows to `len` tokens in steps of up to `chunk`.
    pub fn pages_for(&self, group: usize, len: usize, chunk: usize) -> usize {
        self.layout.groups[group].pages_for(len, chunk)
    }

    /// Number of live sequences.
    pub fn sequences(&self) -> usize {
        self.seqs.live()
    }

    /// Upper bound of [`Kv::slot`].
    pub fn slots(&self) -> usize {
        self.seqs.slots()
    }

    /// An empty sequence. Slots of other sequences may move.
    pub fn seq_new(&mut self) -> Result<SeqId> {
        self.seqs.create()
    }

    /// Ends a sequence and releases its pages.
    pub fn seq_free(&mut self, seq: SeqId) -> Result<()> {
        self.truncate(seq, 0)?;
        let slot = self.slot(seq)?;
        self.seqs.end(slot);
        Ok(())
    }

    /// Forgets all but the first `len` tokens.
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> Result<()> {
        let slot = self.slot(seq)?;
        let old = self.slot_len(slot);
        if len > old {
            return Err(Error::invalid(format!("cannot truncate a sequence of {old} tokens to {len}")));
        }
        if let Some(group) = self.lost(slot, len) {
            return Err(Error::invalid(format!(
                "cannot truncate a sequence of {old} tokens to {len}: what the next token would see has left the sliding window of {}. \
                 Truncate it to 0 and evaluate its tokens again",
                self.layout.groups[group].window
            )));
        }
        self.seqs[slot].tokens.truncate(len);
        self.drop_spare_pages(slot);
        Ok(())
    }

    /// `len`, or 0 if a sequence of so many tokens cannot be continued since what its window sees has been given back.
    pub fn reusable(&self, seq: SeqId, len: usize) -> Result<usize> {
        Ok(if self.lost(self.slot(seq)?, len).is_some() { 0 } else { len })
    }

    /// The group, if any, that has given back what the token after the first `len` sees.
    fn lost(&self, slot: usize, len: usize) -> Option<usize> {
        let mut all = self.layout.groups.iter().zip(&self.seqs[slot].tables);
        if len == 0 { None } else { all.position(|(group, table)| group.first_page(len) < table.gone) }
    }

    /// A new sequence with the same tokens, sharing the cached pages.
    pub fn fork(&mut self, seq: SeqId) -> Result<SeqId> {
        self.slot(seq)?;
        let new = self.seq_new()?;
        let (from, to) = (self.slot(seq)?, self.slot(new)?);
        let (tokens, tables) = (self.seqs[from].tokens.clone(), self.seqs[from].tables.clone());
        for (pool, table) in self.pools.iter_mut().zip(&tables) {
            table.held().iter().for_each(|&page| pool.share(page));
        }
        (self.seqs[to].tokens, self.seqs[to].tables) = (tokens, tables);
        Ok(new)
    }

    /// All tokens of a sequence.
    pub fn tokens(&self, seq: SeqId) -> Result<&[i32]> {
        Ok(&self.seqs[self.slot(seq)?].tokens)
    }

    /// Index of a live sequence in `0..slots()`, until the next [`Kv::seq_new`] or [`Kv::fork`].
    pub fn slot(&self, seq: SeqId) -> Result<usize> {
        self.seqs.slot(seq)
    }

    /// Numbers of the pages of slot `slot` in a group, in order. Pages that its window has left behind are 0.
    pub fn pages(&self, slot: usize, group: usize) -> &[u32] {
        &self.seqs[slot].tables[group].pages
    }

    /// Tokens cached in slot `slot`.
    pub fn slot_len(&self, slot: usize) -> usize {
        self.seqs[slot].tokens.len()
    }

    /// Makes room for `extra` more tokens in each `(slot, extra)`, or fails and changes nothing. Where pages are given back, this only makes sure that room can be made
    /// ([`Kv::extend`]) for chunks of up to `chunk` tokens, one after the other.
    pub fn reserve(&mut self, wanted: &[(usize, usize)], chunk: usize) -> Result<()> {
        for &(slot, extra) in wanted {
            let len = self.slot_len(slot);
            if extra > self.max_context - len {
                let message = format!(
                    "a sequence of {len} tokens cannot take {extra} more: the model's longest context is {}. Truncate it or start a new one",
                    self.max_context
                );
                return Err(Error::new(Status::ContextFull, message));
            }
        }
        let sliding = (0..self.groups()).filter(|&g| self.layout.groups[g].slides());
        if let Some(group) = sliding.into_iter().find(|&g| self.most_new(g, wanted, chunk) > self.free_pages(g)) {
            return Err(self.full(group));
        }
        for group in (0..self.groups()).filter(|&g| !self.layout.groups[g].slides()).collect::<Vec<_>>() {
            for &(slot, extra) in wanted {
                if let Err(error) = self.reserve_one(slot, group, extra) {
                    wanted.iter().for_each(|&(slot, _)| self.drop_spare_pages(slot));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Appends a token whose keys and values have been written to the reserved pages.
    pub fn commit(&mut self, slot: usize, token: i32) {
        self.seqs[slot].tokens.push(token);
    }

    /// After a failed step: forgets all tokens of a slot but the first `len`. Where what the next token then sees has been given back, the tokens stay.
    pub fn take_back(&mut self, slot: usize, len: usize) {
        if self.lost(slot, len).is_none() {
            self.seqs[slot].tokens.truncate(len);
        }
        self.drop_spare_pages(slot);
    }

    /// Makes room for the next `extra` tokens of a slot, which have been reserved.
    pub fn extend(&mut self, slot: usize, extra: usize) -> Result<()> {
        (0..self.groups()).try_for_each(|group| self.reserve_one(slot, group, extra))
    }

    /// Gives back the pages of a slot that windows have left behind.
    pub fn slide(&mut self, slot: usize) {
        let slot = &mut self.seqs[slot];
        let len = slot.tokens.len();
        for ((group, pool), table) in self.layout.groups.iter().zip(&mut self.pools).zip(&mut slot.tables) {
            let keep = group.kept_from(len);
            while table.gone < keep {
                pool.release(std::mem::take(&mut table.pages[table.gone]));
                table.gone += 1;
            }
        }
    }

    /// Most pages of a sliding group that `extra` more tokens in each slot can ever need at once beyond those in use, in chunks of up to `chunk` in all.
    fn most_new(&self, group: usize, wanted: &[(usize, usize)], chunk: usize) -> usize {
        let each =
            |chunk: usize| wanted.iter().map(move |&(slot, extra)| self.most_new_of(group, slot, extra, chunk.min(extra))).sum::<usize>();
        // One chunk is under way at a time, whosever tokens these are.
        each(chunk).min(each(0) + chunk.div_ceil(PAGE_TOKENS))
    }

    fn most_new_of(&self, group: usize, slot: usize, extra: usize, chunk: usize) -> usize {
        let (table, pool) = (&self.seqs[slot].tables[group], &self.pools[group]);
        let held = table.held();
        let all = (self.slot_len(slot) + extra).div_ceil(PAGE_TOKENS) - table.gone;
        let window = window_pages(self.layout.groups[group].window, chunk);
        // Shared pages stay in use when this sequence gives them back; the last one may have to be copied.
        let own = held.iter().filter(|p| pool.alone(**p)).count();
        let copies = usize::from(own < held.len());
        all.saturating_sub(held.len()).min(window.saturating_sub(own)) + copies
    }

    /// Releases reserved pages no token has been committed to.
    pub fn drop_spare_pages(&mut self, slot: usize) {
        let slot = &mut self.seqs[slot];
        let keep = slot.tokens.len().div_ceil(PAGE_TOKENS);
        for (pool, table) in self.pools.iter_mut().zip(&mut slot.tables) {
            let spare = keep.max(table.gone).min(table.pages.len());
            table.pages.drain(spare..).rev().for_each(|page| pool.release(page));
            table.pages.truncate(keep);
            table.gone = table.gone.min(keep);
        }
    }

    fn reserve_one(&mut self, slot: usize, group: usize, extra: usize) -> Result<()> {
        let len = self.slot_len(slot);
        if extra > 0 && !len.is_multiple_of(PAGE_TOKENS) {
            self.unshare(slot, group, len / PAGE_TOKENS)?;
        }
        for _ in self.pages(slot, group).len()..(len + extra).div_ceil(PAGE_TOKENS) {
            let page = self.take(group)?;
            self.seqs[slot].tables[group].pages.push(page);
        }
        Ok(())
    }

    /// Gives slot `slot` its own copy of its page number `nth` of a group, if others use it too.
    fn unshare(&mut self, slot: usize, group: usize, nth: usize) -> Result<()> {
        let old = self.pages(slot, group)[nth];
        if self.pools[group].alone(old) {
            return Ok(());
        }
        let new = self.take(group)?;
        if let Err(error) = self.store.copy(group, old, new) {
            self.pools[group].release(new);
            return Err(error);
        }
        self.seqs[slot].tables[group].pages[nth] = new;
        self.pools[group].release(old);
        Ok(())
    }

    fn take(&mut self, group: usize) -> Result<u32> {
        self.pools[group].take().ok_or_else(|| self.full(group))
    }

    fn full(&self, group: usize) -> Error {
        let Group { window, pages, .. } = self.layout.groups[group];
        let tokens = pages * PAGE_TOKENS;
        let what = if tokens == self.max_tokens() {
            format!("all {tokens} tokens are in use")
        } else {
            format!("all {tokens} tokens of the layers with a window of {window} are in use")
        };
        let message = format!("the KV cache is full: {what}. Free or truncate sequences, or open the model with a larger max_tokens");
        Error::new(Status::CacheFull, message)
    }
}

#[cfg(test)]
mod tests;
