//! Parts of sequences that leave the cache, and come back into it or into another process' one.
//!
//! A part has the tokens from some number on, and their pages in each group of the first track. Groups that keep all
//! tokens have the pages from there on. The pages of windows and the states of fixed size are as at the part's end; a
//! part without these is of use only where another one follows. Other tracks begin anew in a sequence that comes back.

use super::windows::Group;
use super::{Kv, SeqId};
use crate::error::{Error, Result};
use crate::reserve::need;
use llmcc_abi::AXES;
use llmcc_abi::pools::SNAPSHOTS;

/// A part of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Tokens of the sequence before the part.
    pub from: usize,
    /// Tokens of the part.
    pub tokens: Vec<i32>,
    /// Tokens with positions of their own, by their numbers in the sequence.
    pub places: Vec<(usize, [i32; AXES])>,
    /// Whether the part has the states at its end.
    pub ends: bool,
    /// The pages of the groups of the first track.
    pub pages: Vec<SavedPages>,
}

/// Pages of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedPages {
    /// The group.
    pub group: usize,
    /// Index of the first one in the sequence.
    pub first: usize,
    /// How many there are, snapshots left out.
    pub count: usize,
    /// Tokens before each snapshot, ascending.
    pub snapshots: Vec<usize>,
    /// The pages, then the snapshots.
    pub bytes: Vec<u8>,
}

impl Saved {
    /// Tokens of the sequence up to the end of the part.
    pub fn end(&self) -> usize {
        self.from + self.tokens.len()
    }

    /// Bytes of its pages.
    pub fn bytes(&self) -> usize {
        self.pages.iter().map(|pages| pages.bytes.len()).sum()
    }
}

/// Whether a group has pages of all tokens of a sequence.
fn keeps_all(group: &Group) -> bool {
    !group.fixed && !group.slides()
}

impl Kv {
    /// The groups of the first track whose pages are a sequence's own.
    pub(super) fn own_groups(&self) -> Vec<usize> {
        let own = |(_, group): &(usize, &Group)| group.track == 0 && group.adapters == 0;
        self.layout.groups.iter().enumerate().filter(own).map(|(i, _)| i).collect()
    }

    /// Copies the part of a sequence from its token number `from` up to `to`, with the states there if it `ends`: then
    /// `to` is the sequence's length.
    ///
    /// # Errors
    /// The sequence does not exist, or has no such tokens; there is no memory; the cache cannot be read.
    pub fn save(&mut self, seq: SeqId, (from, to): (usize, usize), ends: bool) -> Result<Saved> {
        let at = self.slot(seq)?;
        let len = self.slot_len(at, 0);
        if from > to || to > len || (ends && to != len) {
            return Err(Error::invalid(format!("a sequence of {len} tokens has no part from {from} to {to}")));
        }
        let track = &self.seqs[at].tracks[0];
        let places = track.places.from(from).take_while(|(token, _)| *token < to).collect();
        let mut saved = Saved { from, tokens: track.tokens[from..to].to_vec(), places, ends, pages: Vec::new() };
        for group in self.own_groups() {
            let shape = self.layout.groups[group];
            if keeps_all(&shape) || ends {
                let first = if keeps_all(&shape) {
                    shape.changed_page(from).unwrap_or_else(|| shape.pages_at(from))
                } else {
                    self.seqs[at].tables[group].gone
                };
                saved.pages.push(self.save_group(at, group, first..shape.pages_at(to))?);
            }
        }
        Ok(saved)
    }

    fn save_group(&mut self, at: usize, group: usize, range: std::ops::Range<usize>) -> Result<SavedPages> {
        let (table, size) = (&self.seqs[at].tables[group], self.layout.groups[group].page_bytes);
        let snapshots: Vec<usize> = table.snapshots.iter().map(|(len, _)| *len).collect();
        let all = table.pages[range.clone()].iter().copied().chain(table.snapshots.iter().map(|(_, page)| *page));
        let all: Vec<u32> = all.collect();
        need(all.len() * size)?;
        let mut bytes = vec![0; all.len() * size];
        for (page, out) in all.iter().zip(bytes.chunks_mut(size.max(1))) {
            self.store.save(group, *page, out)?;
        }
        Ok(SavedPages { group, first: range.start, count: range.len(), snapshots, bytes })
    }

    /// Cuts a part behind the token number `to` of its sequence, within it.
    ///
    /// # Errors
    /// It has more or fewer pages than its tokens fill.
    pub fn cut_saved(&self, saved: &mut Saved, to: usize) -> Result<()> {
        if to >= saved.end() {
            return Ok(());
        }
        saved.tokens.truncate(to.saturating_sub(saved.from));
        saved.places.retain(|(token, _)| *token < to);
        if self.by_chunks(0) {
            saved.ends = false;
            saved.pages.retain(|pages| self.layout.groups.get(pages.group).is_some_and(keeps_all));
        }
        for pages in &mut saved.pages {
            let shape = self.layout.groups.get(pages.group).ok_or_else(|| other_model("it has another state"))?;
            pages.count = pages.count.min(shape.pages_at(to).saturating_sub(pages.first));
            pages.bytes.truncate(pages.count.saturating_mul(shape.page_bytes));
        }
        Ok(())
    }

    /// Appends parts to a sequence. The last one ends with its states where there are such that are no pages. On an
    /// error the sequence is to be freed.
    ///
    /// # Errors
    /// The parts do not go on from the sequence, or are of another model; the cache is full.
    pub fn restore(&mut self, seq: SeqId, parts: &[Saved]) -> Result<()> {
        let at = self.slot(seq)?;
        let mut len = self.slot_len(at, 0);
        for part in parts {
            if part.from > len || part.end() < len {
                return Err(other_model("its parts do not follow each other"));
            }
            len = part.end();
        }
        if len > self.max_context() || (self.by_chunks(0) && parts.last().is_some_and(|part| !part.ends)) {
            return Err(other_model("its states are missing, or it is too long"));
        }
        for group in self.own_groups() {
            self.check_saved(at, group, parts)?;
        }
        for group in self.own_groups() {
            self.restore_group(at, group, parts)?;
        }
        self.restore_tokens(at, parts);
        Ok(())
    }

    /// Whether the parts have the pages that their tokens fill in a group, and there is room for them.
    fn check_saved(&self, at: usize, group: usize, parts: &[Saved]) -> Result<()> {
        let (shape, table) = (self.layout.groups[group], &self.seqs[at].tables[group]);
        let (mut there, mut new) = (table.pages.len(), 0);
        for (i, part) in parts.iter().enumerate() {
            let last = i + 1 == parts.len();
            let Some(pages) = part.pages.iter().find(|pages| pages.group == group) else {
                if keeps_all(&shape) || last {
                    return Err(other_model("it lacks a state"));
                }
                continue;
            };
            check_pages(&shape, pages, part.end())?;
            if keeps_all(&shape) {
                if pages.first > there {
                    return Err(other_model("its pages do not follow each other"));
                }
                there = there.max(shape.pages_at(part.end()));
                new = there - table.pages.len();
            } else if last {
                new = pages.count + pages.snapshots.len();
            }
        }
        if new > self.pools[group].free() { Err(self.full(group)) } else { Ok(()) }
    }

    fn restore_group(&mut self, at: usize, group: usize, parts: &[Saved]) -> Result<()> {
        let shape = self.layout.groups[group];
        let own = |part: &'_ Saved| part.pages.iter().position(|pages| pages.group == group);
        if keeps_all(&shape) {
            for (part, index) in parts.iter().filter_map(|part| Some((part, own(part)?))) {
                let pages = &part.pages[index];
                for (i, bytes) in pages.bytes.chunks(shape.page_bytes.max(1)).enumerate() {
                    self.put_page(at, group, pages.first + i, bytes)?;
                }
            }
            return Ok(());
        }
        let Some((part, index)) = parts.last().and_then(|part| Some((part, own(part)?))) else { return Ok(()) };
        let pages = &part.pages[index];
        let (pool, table) = (&mut self.pools[group], &mut self.seqs[at].tables[group]);
        table.pages.drain(table.gone..).for_each(|page| pool.release(page));
        table.snapshots.drain(..).for_each(|(_, page)| pool.release(page));
        (table.pages, table.gone) = (vec![0; pages.first], pages.first);
        for (i, bytes) in pages.bytes.chunks(shape.page_bytes.max(1)).enumerate() {
            match i.checked_sub(pages.count).and_then(|i| pages.snapshots.get(i)) {
                None => self.put_page(at, group, pages.first + i, bytes)?,
                Some(len) => {
                    let page = self.new_page(group, bytes)?;
                    self.seqs[at].tables[group].snapshots.push((*len, page));
                }
            }
        }
        Ok(())
    }

    /// Writes a page of a sequence, the next one or one that it has.
    fn put_page(&mut self, at: usize, group: usize, index: usize, bytes: &[u8]) -> Result<()> {
        if index < self.pages(at, group).len() {
            self.unshare(at, group, index)?;
            return self.store.load(group, self.pages(at, group)[index], bytes);
        }
        let page = self.new_page(group, bytes)?;
        self.seqs[at].tables[group].pages.push(page);
        Ok(())
    }

    fn new_page(&mut self, group: usize, bytes: &[u8]) -> Result<u32> {
        let Some(page) = self.pools[group].take() else { return Err(self.full(group)) };
        match self.store.load(group, page, bytes) {
            Ok(()) => Ok(page),
            Err(error) => {
                self.pools[group].release(page);
                Err(error)
            }
        }
    }

    fn restore_tokens(&mut self, at: usize, parts: &[Saved]) {
        let track = &mut self.seqs[at].tracks[0];
        for part in parts {
            for (token, id) in (part.from..).zip(&part.tokens).skip(track.tokens.len() - part.from) {
                if let Ok(place) = part.places.binary_search_by_key(&token, |(token, _)| *token) {
                    track.places.push(token, part.places[place].1);
                }
                track.tokens.push(*id);
            }
        }
        track.began = track.tokens.len();
    }
}

/// Whether these are the pages of a group at the end of a part, after `end` tokens.
fn check_pages(shape: &Group, pages: &SavedPages, end: usize) -> Result<()> {
    let all = pages.count.checked_add(pages.snapshots.len()).and_then(|count| count.checked_mul(shape.page_bytes));
    if all != Some(pages.bytes.len()) {
        return Err(other_model("its pages are of another size"));
    }
    let ordered = pages.snapshots.iter().all(|len| *len <= end) && pages.snapshots.is_sorted();
    let right = pages.first.checked_add(pages.count) == Some(shape.pages_at(end))
        && match (keeps_all(shape), shape.fixed) {
            (true, _) => pages.snapshots.is_empty(),
            (false, true) => pages.first == 0 && ordered && pages.snapshots.len() <= SNAPSHOTS,
            (false, false) => pages.snapshots.is_empty() && pages.first <= shape.first_page(end),
        };
    if right { Ok(()) } else { Err(other_model("its pages are not those of its tokens")) }
}

fn other_model(why: &str) -> Error {
    Error::artifact(format!("this is no saved sequence of this model: {why}. Evaluate its tokens instead"))
}
