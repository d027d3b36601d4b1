//! Sequences and the states they own.
//!
//! A page holds [`PAGE_TOKENS`] tokens of every attention state of a *group*, which are those with
//! the same window (`windows`): page `p` of state `s` lies `p * page_bytes(s)` into the pool of
//! `s`, and a sequence has one block table per group. This module does the bookkeeping; the pages
//! themselves are a [`PageStore`]: [`HostPages`], or a GPU's.
//!
//! Pages that the window of a group has left behind are given back ([`Kv::slide`]), so a sequence
//! needs of such a group memory for its window (and a chunk of its prompt), however long it
//! becomes.
//!
//! Sequences may share pages ([`Kv::fork`]); who appends to a shared, partly filled page gets a
//! copy first.
//!
//! A sequence has a list of tokens per *track*: entries that update the same states append to one list, and a group's
//! states are of one track. A draft head has a track of its own, so it may be behind the model.
//!
//! States of fixed size ([`llmcc_abi::state::FIXED`]) are pages as well, one per sequence: zero at
//! first, shared by forks until one of them goes on. Such a state knows no earlier tokens, so a
//! sequence keeps *snapshots* of it ([`Kv::keep`]): it can be cut where there is one, and goes back
//! to one when a step fails. A snapshot is a page that the sequence shares with itself: it costs a
//! copy when the sequence goes on, and yields when room is needed.

mod adapters;
mod audit;
mod packed;
mod pages;
pub(crate) mod places;
mod positions;
mod saved;
mod sequences;
mod shared;
mod windows;

use llmcc_abi::PAGE_TOKENS;
use llmcc_abi::layout::window_pages;
use llmcc_abi::pools::SNAPSHOTS;

use crate::error::{Error, Result, Status};
use crate::reserve::{exhausted, need};
pub use packed::{Packed, pack, unpack};
use pages::Pool;
pub use pages::{HostPages, PageStore};
pub(crate) use pages::{of_group, other_size, page_at};
pub use saved::{Saved, SavedPages};
pub use sequences::SeqId;
use sequences::{Sequences, Table};
pub(crate) use shared::RoomFor;
pub use windows::{Group, Layout, page_count};

/// All sequences and the pages they own.
pub struct Kv {
    store: Box<dyn PageStore>,
    layout: Layout,
    /// Pages of each group.
    pools: Vec<Pool>,
    seqs: Sequences,
    /// Longest sequence of each track.
    contexts: Vec<usize>,
}

impl Kv {
    /// No sequences yet, over the pages of `store`, which has `layout`; a sequence may have
    /// `max_context` tokens.
    pub fn new(store: Box<dyn PageStore>, layout: Layout, max_context: usize) -> Kv {
        let pools = layout.groups.iter().map(|g| Pool::new(g.pages)).collect();
        let contexts = vec![max_context; layout.tracks()];
        Kv { store, pools, seqs: Sequences::new(layout.groups.len(), layout.tracks()), layout, contexts }
    }

    /// A track of a sequence may have so many tokens.
    pub fn set_context(&mut self, track: usize, context: usize) {
        self.contexts.get_mut(track).into_iter().for_each(|own| *own = context);
    }

    /// Whether room is made chunk by chunk ([`Kv::extend`]), since pages are given back or
    /// snapshots taken between them.
    pub fn by_chunks(&self, track: usize) -> bool {
        self.layout.groups.iter().any(|g| g.track == track && (g.slides() || g.fixed))
    }

    /// Lists of tokens of a sequence.
    pub fn tracks(&self) -> usize {
        self.layout.tracks()
    }

    /// How many pages each group has.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Groups of states, each with its own pages.
    pub fn groups(&self) -> usize {
        self.pools.len()
    }

    /// Tokens all sequences together can hold.
    pub fn max_tokens(&self) -> usize {
        self.layout.max_tokens
    }

    /// Longest sequence, in the first track.
    pub fn max_context(&self) -> usize {
        self.contexts.first().copied().unwrap_or(0)
    }

    /// Pages in use, of all groups.
    pub fn used_pages(&self) -> usize {
        self.pools.iter().map(Pool::used).sum()
    }

    /// Bytes of the pages in use.
    pub fn used_bytes(&self) -> usize {
        self.pools.iter().zip(&self.layout.groups).map(|(pool, group)| pool.used() * group.page_bytes).sum()
    }

    /// Bytes of the pages that a sequence refers to, shared ones included.
    ///
    /// # Errors
    /// It does not exist.
    pub fn held_bytes(&self, seq: SeqId) -> Result<usize> {
        let tables = self.layout.groups.iter().zip(&self.seqs[self.slot(seq)?].tables);
        Ok(tables.map(|(group, table)| (table.held().len() + table.snapshots.len()) * group.page_bytes).sum())
    }

    /// Whether all groups of states of fixed size have so many places without even a snapshot in them.
    pub fn has_places(&self, places: usize) -> bool {
        self.pools.iter().zip(&self.layout.groups).all(|(pool, group)| !group.fixed || pool.free() >= places)
    }

    /// Pages of a group that nobody uses, but for a snapshot.
    pub fn free_pages(&self, group: usize) -> usize {
        let pool = &self.pools[group];
        if !self.layout.groups[group].fixed {
            return pool.free();
        }
        // Forks share snapshots: a slot is free on demand if all its users are such.
        let tables = (0..self.slots()).filter_map(|slot| self.seqs[slot].tables.get(group));
        let mut kept: Vec<u32> = tables.flat_map(|t| t.snapshots.iter().map(|(_, page)| *page)).collect();
        kept.sort_unstable();
        pool.free() + kept.chunk_by(|a, b| a == b).filter(|same| pool.users(same[0]) == same.len()).count()
    }

    /// Most pages of a group that a sequence of its own uses while it grows to `len` tokens in
    /// steps of up to `chunk`.
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

    /// Forgets all but the first `len` tokens of the first track; with none of these, all of the others.
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> Result<()> {
        let others = if len == 0 { 1..self.tracks() } else { 0..0 };
        others.chain([0]).try_for_each(|track| self.truncate_track(seq, track, len))
    }

    /// Forgets all but the first `len` tokens of a track.
    pub fn truncate_track(&mut self, seq: SeqId, track: usize, len: usize) -> Result<()> {
        let slot = self.slot(seq)?;
        let old = self.slot_len(slot, track);
        if len > old {
            return Err(Error::invalid(format!("cannot truncate a sequence of {old} tokens to {len}")));
        }
        if let Some(group) = self.lost((slot, track), len) {
            let Group { fixed, window, .. } = self.layout.groups[group];
            let why = match fixed {
                false => {
                    format!(
                        "tokens that the next one would see have left the sliding window of {window}. Truncate it to 0"
                    )
                }
                true => format!(
                    "its recurrent state cannot go back, and there is no snapshot of it at {len}. Truncate it to {}",
                    self.best((slot, track), len, false)
                ),
            };
            return Err(Error::invalid(format!(
                "cannot truncate a sequence of {old} tokens to {len}: {why} and evaluate its tokens again"
            )));
        }
        self.cut((slot, track), len, false);
        Ok(())
    }

    /// The most tokens, up to `len`, to which the first track of a sequence can be truncated: fewer than `len` where a
    /// window's tokens have been given back, or a state of fixed size was not kept.
    pub fn reusable(&self, seq: SeqId, len: usize) -> Result<usize> {
        Ok(self.best((self.slot(seq)?, 0), len, false))
    }

    /// See [`Kv::reusable`]. `failed`: a step may have changed states of fixed size, so that these
    /// are in snapshots only.
    fn best(&self, at: (usize, usize), len: usize, failed: bool) -> usize {
        let tables = self.tables(at);
        let snapshots =
            tables.filter(|(group, _)| group.fixed).flat_map(|(_, table)| table.snapshots.iter().map(|(at, _)| *at));
        let fits = |to: &usize| *to <= len && (self.lost(at, *to).is_none()) && (!failed || self.restorable(at, *to));
        snapshots.chain([len]).filter(fits).max().unwrap_or(0)
    }

    /// The groups of a slot's track, with its block tables.
    fn tables(&self, (slot, track): (usize, usize)) -> impl Iterator<Item = (&Group, &Table)> {
        self.layout.groups.iter().zip(&self.seqs[slot].tables).filter(move |(group, _)| group.track == track)
    }

    /// Whether every state of fixed size was kept after the first `len` tokens.
    fn restorable(&self, at: (usize, usize), len: usize) -> bool {
        self.tables(at).all(|(group, table)| !group.fixed || table.snapshot(len).is_some())
    }

    /// The first group, if any, that lacks data for the token after the first `len`: pages given
    /// back, or a state not kept.
    fn lost(&self, (slot, track): (usize, usize), len: usize) -> Option<usize> {
        let now = self.slot_len(slot, track);
        let mut all = self.layout.groups.iter().zip(&self.seqs[slot].tables);
        let lost = |(group, table): (&Group, &Table)| match group.fixed {
            _ if group.track != track => false,
            true => len != now && table.snapshot(len).is_none(),
            false => group.first_page(len) < table.gone,
        };
        if len == 0 { None } else { all.position(lost) }
    }

    /// Forgets all but the first `len` tokens, for which everything is there. `failed`: as for
    /// [`Kv::best`].
    fn cut(&mut self, (slot, track): (usize, usize), len: usize, failed: bool) {
        let sequence = &mut self.seqs[slot];
        let now = sequence.tracks[track].tokens.len();
        let tables = self.layout.groups.iter().zip(&mut self.pools).zip(&mut sequence.tables);
        for ((group, pool), table) in tables.filter(|((group, _), _)| group.track == track) {
            if group.fixed
                && (failed || len != now)
                && let Some(page) = table.snapshot(len)
            {
                pool.share(page);
                table.pages.drain(..).for_each(|old| pool.release(old));
                table.pages.push(page);
            }
            let kept = table.snapshots.partition_point(|(at, _)| *at <= len && len > 0);
            table.snapshots.drain(kept..).for_each(|(_, page)| pool.release(page));
        }
        sequence.tracks[track].truncate(len);
        self.drop_spare_pages(slot, track);
    }

    /// Keeps snapshots of the states of fixed size of a slot's track as they are now, after all its tokens; the
    /// oldest ones go, but not the last one before the step under way, to which a failure leads
    /// back.
    pub fn keep(&mut self, slot: usize, track: usize) {
        let sequence = &mut self.seqs[slot];
        let (len, began) = (sequence.tracks[track].tokens.len(), sequence.tracks[track].began);
        for ((group, pool), table) in self.layout.groups.iter().zip(&mut self.pools).zip(&mut sequence.tables) {
            if group.track != track || !group.fixed || table.snapshot(len).is_some() {
                continue;
            }
            if let Some(&page) = table.pages.first() {
                pool.share(page);
                table.snapshots.push((len, page));
                while table.snapshots.len() > SNAPSHOTS {
                    let needed = table.snapshots[0].0 <= began && table.snapshots[1].0 > began;
                    pool.release(table.snapshots.remove(usize::from(needed)).1);
                }
            }
        }
    }

    /// [`Kv::keep`] for the first track of a sequence.
    ///
    /// # Errors
    /// It does not exist.
    pub fn snapshot(&mut self, seq: SeqId) -> Result<()> {
        self.keep(self.slot(seq)?, 0);
        Ok(())
    }

    /// A new sequence with the same tokens and adapter, sharing the cached pages.
    pub fn fork(&mut self, seq: SeqId) -> Result<SeqId> {
        let slot = &self.seqs[self.slot(seq)?];
        let pages: usize = slot.tables.iter().map(|t| t.pages.len()).sum();
        let tokens: usize = slot.tracks.iter().map(|t| t.tokens.len() + 4 * t.places.len()).sum();
        need(8 * (tokens + pages))?;
        let new = self.seq_new()?;
        let (from, to) = (self.slot(seq)?, self.slot(new)?);
        let (tracks, tables) = (self.seqs[from].tracks.clone(), self.seqs[from].tables.clone());
        for (pool, table) in self.pools.iter_mut().zip(&tables) {
            table.held().iter().chain(table.snapshots.iter().map(|(_, page)| page)).for_each(|&page| pool.share(page));
        }
        self.seqs[to].adapter = self.seqs[from].adapter;
        (self.seqs[to].tracks, self.seqs[to].tables) = (tracks, tables);
        Ok(new)
    }

    /// All tokens of a sequence's first track.
    pub fn tokens(&self, seq: SeqId) -> Result<&[i32]> {
        Ok(&self.seqs[self.slot(seq)?].tracks[0].tokens)
    }

    /// All tokens of a track of a sequence.
    pub fn track_tokens(&self, seq: SeqId, track: usize) -> Result<&[i32]> {
        Ok(self.seqs[self.slot(seq)?].tracks.get(track).map_or(&[], |t| &t.tokens))
    }

    /// Index of a live sequence in `0..slots()`, until the next [`Kv::seq_new`] or [`Kv::fork`].
    pub fn slot(&self, seq: SeqId) -> Result<usize> {
        self.seqs.slot(seq)
    }

    /// Numbers of the pages of slot `slot` in a group, in order. Pages that its window has left
    /// behind are 0. For a group of adapters, the slot of the sequence's adapter, or 0.
    pub fn pages(&self, slot: usize, group: usize) -> &[u32] {
        match self.layout.groups[group].adapters {
            0 => &self.seqs[slot].tables[group].pages,
            _ => std::slice::from_ref(&self.seqs[slot].adapter),
        }
    }

    /// Tokens in a track of a sequence.
    ///
    /// # Errors
    /// The sequence does not exist.
    pub fn track_len(&self, seq: SeqId, track: usize) -> Result<usize> {
        Ok(self.slot_len(self.slot(seq)?, track))
    }

    /// Tokens cached in a track of slot `slot`.
    pub fn slot_len(&self, slot: usize, track: usize) -> usize {
        self.seqs[slot].tracks.get(track).map_or(0, |t| t.tokens.len())
    }

    /// Makes room for `extra` more tokens in a track of each `(slot, extra)`, or fails and changes nothing.
    /// Where pages are given back, this only makes sure that room can be made ([`Kv::extend`]) for
    /// chunks of up to `chunk` tokens, one after the other.
    pub fn reserve(&mut self, track: usize, wanted: &[(usize, usize)], chunk: usize) -> Result<()> {
        for &(slot, extra) in wanted {
            let len = self.slot_len(slot, track);
            let most = self.contexts.get(track).copied().unwrap_or(0);
            if extra > most.saturating_sub(len) {
                let message = format!(
                    "a sequence of {len} tokens cannot take {extra} more: the model's longest context is {most}. \
                     Truncate it or start a new one"
                );
                return Err(Error::new(Status::ContextFull, message));
            }
        }
        let sliding = self.groups_of(track).filter(|&g| self.layout.groups[g].slides());
        if let Some(group) = sliding.into_iter().find(|&g| self.most_new(g, wanted, chunk) > self.free_pages(g)) {
            return Err(self.full(group));
        }
        let mut others: Vec<usize> = self.groups_of(track).filter(|&g| !self.layout.groups[g].slides()).collect();
        // Snapshots, which yield to new slots, do not come back: states of fixed size last, and
        // only where there is room for all. (A copy for a fork may still cost some.)
        others.sort_by_key(|&g| self.layout.groups[g].fixed);
        if let Some(&group) = others.iter().find(|&&g| self.new_pages(g, wanted) > self.free_pages(g)) {
            return Err(self.full(group));
        }
        for &(slot, extra) in wanted {
            let track = &mut self.seqs[slot].tracks[track];
            track.tokens.try_reserve(extra).map_err(|_| exhausted(4 * extra))?;
            track.began = track.tokens.len();
        }
        for group in others {
            for &(slot, extra) in wanted {
                if let Err(error) = self.reserve_one(slot, group, extra) {
                    wanted.iter().for_each(|&(slot, _)| self.drop_spare_pages(slot, track));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// The groups of a track.
    fn groups_of(&self, track: usize) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.groups()).filter(move |&g| self.layout.groups[g].track == track)
    }

    /// Pages of a group that keeps all of them which so many more tokens need.
    fn new_pages(&self, group: usize, wanted: &[(usize, usize)]) -> usize {
        let shape = self.layout.groups[group];
        let new = |&(slot, extra): &(usize, usize)| {
            shape.pages_at(self.slot_len(slot, shape.track) + extra).saturating_sub(self.pages(slot, group).len())
        };
        wanted.iter().map(new).sum()
    }

    /// Appends a token whose keys and values have been written to the reserved pages.
    pub fn commit(&mut self, slot: usize, track: usize, token: i32) {
        self.seqs[slot].tracks[track].tokens.push(token);
    }

    /// After a failed step: forgets all tokens of a slot's track but the first `len`. Where pages that the
    /// next token sees have been given back, the tokens stay; where there are states of fixed size,
    /// which the step may have changed, the sequence goes back to its last snapshot before.
    pub fn take_back(&mut self, slot: usize, track: usize, len: usize) {
        let at = (slot, track);
        if self.tables(at).any(|(group, _)| group.fixed) {
            let len = self.best(at, len, true);
            self.cut(at, len, true);
        } else if self.lost(at, len).is_none() {
            self.cut(at, len, false);
        }
        self.drop_spare_pages(slot, track);
    }

    /// Makes room for the next `extra` tokens of a slot's track, which have been reserved.
    pub fn extend(&mut self, slot: usize, track: usize, extra: usize) -> Result<()> {
        for group in 0..self.groups() {
            if self.layout.groups[group].track == track {
                self.reserve_one(slot, group, extra)?;
            }
        }
        Ok(())
    }

    /// Gives back the pages of a slot's track that windows have left behind.
    pub fn slide(&mut self, slot: usize, track: usize) {
        let slot = &mut self.seqs[slot];
        let len = slot.tracks[track].tokens.len();
        let tables = self.layout.groups.iter().zip(&mut self.pools).zip(&mut slot.tables);
        for ((group, pool), table) in tables.filter(|((group, _), _)| group.track == track) {
            let keep = group.kept_from(len);
            while table.gone < keep {
                pool.release(std::mem::take(&mut table.pages[table.gone]));
                table.gone += 1;
            }
        }
    }

    /// Most pages of a sliding group that `extra` more tokens in each slot can ever need at once
    /// beyond those in use, in chunks of up to `chunk` in all.
    fn most_new(&self, group: usize, wanted: &[(usize, usize)], chunk: usize) -> usize {
        let each = |chunk: usize| {
            wanted
                .iter()
                .map(move |&(slot, extra)| self.most_new_of(group, slot, extra, chunk.min(extra)))
                .sum::<usize>()
        };
        // One chunk is under way at a time, whosever tokens these are.
        each(chunk).min(each(0) + chunk.div_ceil(PAGE_TOKENS))
    }

    fn most_new_of(&self, group: usize, slot: usize, extra: usize, chunk: usize) -> usize {
        let (table, pool) = (&self.seqs[slot].tables[group], &self.pools[group]);
        let held = table.held();
        let shape = &self.layout.groups[group];
        let all = (self.slot_len(slot, shape.track) + extra).div_ceil(PAGE_TOKENS) - table.gone;
        let window = window_pages(shape.window, chunk);
        // Shared pages stay in use when this sequence gives them back; the last one may have to be
        // copied.
        let own = held.iter().filter(|p| pool.alone(**p)).count();
        let copies = usize::from(own < held.len());
        all.saturating_sub(held.len()).min(window.saturating_sub(own)) + copies
    }

    /// Releases reserved pages of a track no token has been committed to.
    pub fn drop_spare_pages(&mut self, slot: usize, track: usize) {
        let slot = &mut self.seqs[slot];
        let len = slot.tracks[track].tokens.len();
        let tables = self.layout.groups.iter().zip(&mut self.pools).zip(&mut slot.tables);
        for ((group, pool), table) in tables.filter(|((group, _), _)| group.track == track) {
            let keep = group.pages_at(len);
            let spare = keep.max(table.gone).min(table.pages.len());
            table.pages.drain(spare..).rev().for_each(|page| pool.release(page));
            table.pages.truncate(keep);
            table.gone = table.gone.min(keep);
        }
    }

    fn reserve_one(&mut self, slot: usize, group: usize, extra: usize) -> Result<()> {
        let shape = self.layout.groups[group];
        let len = self.slot_len(slot, shape.track);
        if extra > 0
            && let Some(page) = shape.changed_page(len)
        {
            self.unshare(slot, group, page)?;
        }
        let more = shape.pages_at(len + extra).saturating_sub(self.pages(slot, group).len());
        if let Some(table) = self.seqs[slot].tables.get_mut(group) {
            table.pages.try_reserve(more).map_err(|_| exhausted(4 * more))?;
        }
        for _ in 0..more {
            let page = self.take(group)?;
            if shape.fixed
                && let Err(error) = self.store.clear(group, page)
            {
                self.pools[group].release(page);
                return Err(error);
            }
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
        let new = match self.take(group) {
            Ok(new) => new,
            // The others were snapshots, which have yielded.
            Err(_) if self.pools[group].alone(old) => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Err(error) = self.store.copy(group, old, new) {
            self.pools[group].release(new);
            return Err(error);
        }
        self.seqs[slot].tables[group].pages[nth] = new;
        self.pools[group].release(old);
        Ok(())
    }

    fn take(&mut self, group: usize) -> Result<u32> {
        if let Some(page) = self.pools[group].take() {
            return Ok(page);
        }
        let pool = &mut self.pools[group];
        for table in self.seqs.iter_mut().filter_map(|slot| slot.tables.get_mut(group)) {
            table.snapshots.drain(..).for_each(|(_, page)| pool.release(page));
        }
        pool.take().ok_or_else(|| self.full(group))
    }

    fn full(&self, group: usize) -> Error {
        let Group { fixed, window, every, pages, .. } = self.layout.groups[group];
        let tokens = pages * PAGE_TOKENS * every;
        let what = if fixed {
            format!("all {pages} recurrent states are in use")
        } else if window == 0 || tokens == self.max_tokens() {
            format!("all {tokens} tokens are in use")
        } else {
            format!("all {tokens} tokens of the layers with a window of {window} are in use")
        };
        let message = format!(
            "the KV cache is full: {what}. Free or truncate sequences, or open the model with a larger max_tokens"
        );
        Error::new(Status::CacheFull, message)
    }
}

#[cfg(test)]
mod tests;
