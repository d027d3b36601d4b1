//! Sequences and the pages of the KV cache they own.
//!
//! A page holds [`PAGE_TOKENS`] tokens of *every* attention state: page `p` of state `s` lies `p * page_bytes(s)` into the pool of `s`, so that one
//! block table per sequence serves all layers. What is here is the bookkeeping; the pages themselves are a [`PageStore`]: [`HostPages`], or a GPU's.
//!
//! When every attention state has a sliding window, pages that the longest of them has left behind are given back ([`Kv::slide`]), so a sequence needs memory for its window (and a chunk of
//! its prompt), however long it becomes. A page serves all states, so one state without a window keeps everything.
//!
//! Sequences may share pages ([`Kv::fork`]); who appends to a shared, partly filled page gets a copy first.

use llmcc_abi::{KvDesc, PAGE_TOKENS};

use crate::error::{Error, Result, Status};
use crate::memory::Region;

/// Handle of a sequence. They count up, so a handle that was freed is noticed when it is used again: numbers start over after a thousand million sequences or more.
pub type SeqId = i32;

/// Most sequences at a time.
const MAX_SEQUENCES: usize = 1 << 20;
/// Pages that are kept behind a window, so that the last tokens of a sequence can be taken back.
const KEPT_BEHIND: usize = 2;

/// A place for a sequence: that of handle `id` is `id` modulo their number, a power of two.
#[derive(Default)]
struct Slot {
    /// Handle of the sequence that is here.
    id: Option<SeqId>,
    tokens: Vec<i32>,
    pages: Vec<u32>,
    /// So many of the first pages have been given back: their numbers are 0 and mean nothing.
    gone: usize,
}

/// The memory of the pages.
pub trait PageStore: Send {
    /// Copies page `from` of every attention state to page `to`, another one. No step is running.
    fn copy(&mut self, from: u32, to: u32) -> Result<()>;
}

/// Pages in this process' memory: a pool per attention state, reserved whole, but a page costs memory only once it is written.
pub struct HostPages {
    pools: Vec<Region>,
    page_bytes: Vec<usize>,
}

impl HostPages {
    /// Pools of `pages` pages for the attention states `descs`.
    pub fn new(descs: &[KvDesc], pages: usize) -> Result<HostPages> {
        let page_bytes: Vec<usize> = descs.iter().map(|d| d.page_bytes as usize).collect();
        let purpose = format!("the KV cache of {} tokens; use a smaller max_tokens", pages.saturating_mul(PAGE_TOKENS));
        let reserve = |&bytes: &usize| Region::reserve(bytes.saturating_mul(pages), &purpose);
        let pools = page_bytes.iter().map(reserve).collect::<Result<Vec<_>>>()?;
        Ok(HostPages { pools, page_bytes })
    }

    /// Start of each attention state's pool, valid as long as `self`.
    pub fn pools(&self) -> Vec<*mut u8> {
        self.pools.iter().map(Region::ptr).collect()
    }
}

impl PageStore for HostPages {
    fn copy(&mut self, from: u32, to: u32) -> Result<()> {
        for (pool, &bytes) in self.pools.iter().zip(&self.page_bytes) {
            // SAFETY: both pages lie in the pool and differ; no step is running.
            unsafe {
                let (from, to) = (pool.ptr().add(from as usize * bytes), pool.ptr().add(to as usize * bytes));
                std::ptr::copy_nonoverlapping(from, to, bytes);
            }
        }
        Ok(())
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

/// All sequences and the pages they own.
pub struct Kv {
    pages: Box<dyn PageStore>,
    /// References to each page handed out so far; its length is the number of pages ever used.
    refs: Vec<u32>,
    free: Vec<u32>,
    total_pages: usize,
    max_context: usize,
    /// Longest sliding window; 0: some state sees the whole sequence.
    window: usize,
    slots: Vec<Slot>,
    /// Slots in use.
    live: usize,
    /// The next handle, unless its slot is in use.
    next_id: SeqId,
}

impl Kv {
    /// No sequences yet, over `total_pages` pages; a sequence may have `max_context` tokens.
    pub fn new(pages: Box<dyn PageStore>, total_pages: usize, max_context: usize) -> Kv {
        let (refs, free, slots) = Default::default();
        Kv { pages, refs, free, total_pages, max_context, window: 0, slots, live: 0, next_id: 0 }
    }

    /// With pages given back once all the attention states `descs` have left them behind.
    pub fn with_windows(mut self, descs: &[KvDesc]) -> Kv {
        let windows = || descs.iter().map(|d| d.window as usize);
        self.window = if windows().any(|w| w == 0) { 0 } else { windows().max().unwrap_or(0) };
        self
    }

    /// Whether pages are given back, so that [`Kv::extend`] is needed.
    pub fn slides(&self) -> bool {
        self.window > 0
    }

    /// Tokens all sequences together can hold.
    pub fn max_tokens(&self) -> usize {
        self.total_pages * PAGE_TOKENS
    }

    /// Longest sequence.
    pub fn max_context(&self) -> usize {
        self.max_context
    }

    /// Pages in use.
    pub fn used_pages(&self) -> usize {
        self.refs.len() - self.free.len()
    }

    /// Pages that nobody uses.
    pub fn free_pages(&self) -> usize {
        self.free.len() + self.total_pages - self.refs.len()
    }

    /// Most pages that a sequence of its own uses while it grows to `len` tokens in steps of up to `chunk`.
    pub fn pages_for(&self, len: usize, chunk: usize) -> usize {
        let all = len.div_ceil(PAGE_TOKENS);
        if self.slides() { all.min(self.window_pages(chunk)) } else { all }
    }

    /// Number of live sequences.
    pub fn sequences(&self) -> usize {
        self.live
    }

    /// Upper bound of [`Kv::slot`].
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// An empty sequence. Slots of other sequences may move.
    pub fn seq_new(&mut self) -> Result<SeqId> {
        if self.live == MAX_SEQUENCES {
            return Err(Error::invalid(format!("{MAX_SEQUENCES} sequences exist; free some with llmcc_seq_free")));
        }
        // At most every other slot is in use, so few handles are skipped.
        if 2 * self.live >= self.slots.len() {
            self.more_slots();
        }
        loop {
            let id = self.next_id;
            self.next_id = id.checked_add(1).unwrap_or(0);
            let at = self.index(id);
            if self.slots[at].id.is_none() {
                self.slots[at].id = Some(id);
                self.live += 1;
                return Ok(id);
            }
        }
    }

    fn more_slots(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots.resize_with((2 * old.len()).max(8), Slot::default);
        for slot in old {
            // Handles that differ modulo the old number differ modulo the new one.
            if let Some(id) = slot.id {
                let at = self.index(id);
                self.slots[at] = slot;
            }
        }
    }

    fn index(&self, seq: SeqId) -> usize {
        seq as usize & (self.slots.len().wrapping_sub(1))
    }

    /// Ends a sequence and releases its pages.
    pub fn seq_free(&mut self, seq: SeqId) -> Result<()> {
        self.truncate(seq, 0)?;
        let index = self.slot(seq)?;
        let slot = &mut self.slots[index];
        slot.id = None;
        slot.tokens = Vec::new();
        self.live -= 1;
        Ok(())
    }

    /// Forgets all but the first `len` tokens.
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> Result<()> {
        let index = self.slot(seq)?;
        let old = self.slots[index].tokens.len();
        if len > old {
            return Err(Error::invalid(format!("cannot truncate a sequence of {old} tokens to {len}")));
        }
        if len > 0 && self.reusable(seq, len)? == 0 {
            return Err(Error::invalid(format!(
                "cannot truncate a sequence of {old} tokens to {len}: what the next token would see has left the sliding window of {}. \
                 Truncate it to 0 and evaluate its tokens again",
                self.window
            )));
        }
        self.slots[index].tokens.truncate(len);
        self.drop_spare_pages(index);
        Ok(())
    }

    /// `len`, or 0 if a sequence of so many tokens cannot be continued since what its window sees has been given back.
    pub fn reusable(&self, seq: SeqId, len: usize) -> Result<usize> {
        let gone = self.slots[self.slot(seq)?].gone;
        Ok(if self.first_page(len) < gone { 0 } else { len })
    }

    /// A new sequence with the same tokens, sharing the cached pages.
    pub fn fork(&mut self, seq: SeqId) -> Result<SeqId> {
        self.slot(seq)?;
        let new = self.seq_new()?;
        let (from, to) = (self.slot(seq)?, self.slot(new)?);
        let (tokens, pages, gone) = (self.slots[from].tokens.clone(), self.slots[from].pages.clone(), self.slots[from].gone);
        pages[gone..].iter().for_each(|&p| self.refs[p as usize] += 1);
        self.slots[to].tokens = tokens;
        self.slots[to].pages = pages;
        self.slots[to].gone = gone;
        Ok(new)
    }

    /// All tokens of a sequence.
    pub fn tokens(&self, seq: SeqId) -> Result<&[i32]> {
        Ok(&self.slots[self.slot(seq)?].tokens)
    }

    /// Index of a live sequence in `0..slots()`, until the next [`Kv::seq_new`] or [`Kv::fork`].
    pub fn slot(&self, seq: SeqId) -> Result<usize> {
        let at = self.index(seq);
        match self.slots.get(at) {
            Some(s) if s.id == Some(seq) => Ok(at),
            _ => Err(Error::invalid(format!("sequence {seq} does not exist (never created, or already freed)"))),
        }
    }

    /// Page numbers of slot `slot`, in order. Pages that its window has left behind are 0.
    pub fn pages(&self, slot: usize) -> &[u32] {
        &self.slots[slot].pages
    }

    /// Tokens cached in slot `slot`.
    pub fn slot_len(&self, slot: usize) -> usize {
        self.slots[slot].tokens.len()
    }

    /// Makes room for `extra` more tokens in each `(slot, extra)`, or fails and changes nothing. Where pages are given back, this only makes sure that room can be made
    /// ([`Kv::extend`]) for chunks of up to `chunk` tokens, one after the other.
    pub fn reserve(&mut self, wanted: &[(usize, usize)], chunk: usize) -> Result<()> {
        for &(slot, extra) in wanted {
            let len = self.slots[slot].tokens.len();
            if extra > self.max_context - len {
                let message = format!(
                    "a sequence of {len} tokens cannot take {extra} more: the model's longest context is {}. Truncate it or start a new one",
                    self.max_context
                );
                return Err(Error::new(Status::ContextFull, message));
            }
        }
        if self.slides() {
            let most: usize = wanted.iter().map(|&(slot, extra)| self.most_new(slot, extra, chunk)).sum();
            return if most > self.free_pages() { Err(self.full()) } else { Ok(()) };
        }
        for &(slot, extra) in wanted {
            if let Err(error) = self.reserve_one(slot, extra) {
                wanted.iter().for_each(|&(slot, _)| self.drop_spare_pages(slot));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Appends a token whose keys and values have been written to the reserved pages.
    pub fn commit(&mut self, slot: usize, token: i32) {
        self.slots[slot].tokens.push(token);
    }

    /// After a failed step: forgets all tokens of a slot but the first `len`. Where what the next token then sees has been given back, the tokens stay.
    pub fn take_back(&mut self, slot: usize, len: usize) {
        if len == 0 || self.first_page(len) >= self.slots[slot].gone {
            self.slots[slot].tokens.truncate(len);
        }
        self.drop_spare_pages(slot);
    }

    /// Makes room for the next `extra` tokens of a slot, which have been reserved.
    pub fn extend(&mut self, slot: usize, extra: usize) -> Result<()> {
        self.reserve_one(slot, extra)
    }

    /// Gives back the pages of a slot that its window has left behind. What the window of the next token sees stays, and a little more.
    pub fn slide(&mut self, slot: usize) {
        if !self.slides() {
            return;
        }
        let keep = self.first_page(self.slots[slot].tokens.len()).saturating_sub(KEPT_BEHIND);
        for nth in self.slots[slot].gone..keep {
            let page = std::mem::take(&mut self.slots[slot].pages[nth]);
            self.release(page);
        }
        self.slots[slot].gone = self.slots[slot].gone.max(keep);
    }

    /// First page that the next token of a sequence of `len` tokens sees.
    fn first_page(&self, len: usize) -> usize {
        if self.window == 0 { 0 } else { (len + 1).saturating_sub(self.window) / PAGE_TOKENS }
    }

    /// Most pages that `extra` more tokens can ever need at once beyond those in use, in chunks of up to `chunk`.
    fn most_new(&self, slot: usize, extra: usize, chunk: usize) -> usize {
        let slot = &self.slots[slot];
        let held = &slot.pages[slot.gone..];
        let all = (slot.tokens.len() + extra).div_ceil(PAGE_TOKENS) - slot.gone;
        let window = self.window_pages(chunk.min(extra));
        // Shared pages stay in use when this sequence gives them back; the last one may have to be copied.
        let own = held.iter().filter(|p| self.refs[**p as usize] == 1).count();
        let copies = usize::from(own < held.len());
        all.saturating_sub(held.len()).min(window.saturating_sub(own)) + copies
    }

    /// Pages of a window and a chunk, which begin and end within pages.
    fn window_pages(&self, chunk: usize) -> usize {
        self.window.div_ceil(PAGE_TOKENS) + chunk.div_ceil(PAGE_TOKENS) + KEPT_BEHIND + 2
    }

    /// Releases reserved pages no token has been committed to.
    pub fn drop_spare_pages(&mut self, slot: usize) {
        let keep = self.slots[slot].tokens.len().div_ceil(PAGE_TOKENS);
        while self.slots[slot].pages.len() > keep {
            if let Some(page) = self.slots[slot].pages.pop()
                && self.slots[slot].pages.len() >= self.slots[slot].gone
            {
                self.release(page);
            }
        }
        self.slots[slot].gone = self.slots[slot].gone.min(keep);
    }

    fn reserve_one(&mut self, slot: usize, extra: usize) -> Result<()> {
        let len = self.slots[slot].tokens.len();
        if extra > 0 && !len.is_multiple_of(PAGE_TOKENS) {
            self.unshare(slot, len / PAGE_TOKENS)?;
        }
        for _ in self.slots[slot].pages.len()..(len + extra).div_ceil(PAGE_TOKENS) {
            let page = self.take()?;
            self.slots[slot].pages.push(page);
        }
        Ok(())
    }

    /// Gives slot `slot` its own copy of its page number `nth`, if others use it too.
    fn unshare(&mut self, slot: usize, nth: usize) -> Result<()> {
        let old = self.slots[slot].pages[nth];
        if self.refs[old as usize] == 1 {
            return Ok(());
        }
        let new = self.take()?;
        if let Err(error) = self.pages.copy(old, new) {
            self.release(new);
            return Err(error);
        }
        self.slots[slot].pages[nth] = new;
        self.release(old);
        Ok(())
    }

    fn take(&mut self) -> Result<u32> {
        if let Some(page) = self.free.pop() {
            self.refs[page as usize] = 1;
            return Ok(page);
        }
        if self.refs.len() < self.total_pages {
            self.refs.push(1);
            return Ok(self.refs.len() as u32 - 1);
        }
        Err(self.full())
    }

    fn full(&self) -> Error {
        let message = format!(
            "the KV cache is full: all {} tokens are in use. Free or truncate sequences, or open the model with a larger max_tokens",
            self.max_tokens()
        );
        Error::new(Status::CacheFull, message)
    }

    fn release(&mut self, page: u32) {
        self.refs[page as usize] -= 1;
        if self.refs[page as usize] == 0 {
            self.free.push(page);
        }
    }
}

#[cfg(test)]
#[path = "kv_tests.rs"]
mod tests;
