//! Sequences and their handles.

use super::places::Places;
use crate::error::{Error, Result};
use crate::reserve::need;

/// Handle of a sequence. They count up, so a handle that was freed is noticed when it is used
/// again: numbers start over after a thousand million sequences or more.
pub type SeqId = i32;

/// Most sequences at a time.
const MAX_SEQUENCES: usize = 1 << 20;

/// A place for a sequence: that of handle `id` is `id` modulo their number, a power of two.
#[derive(Default)]
pub(super) struct Slot {
    /// Handle of the sequence that is here.
    id: Option<SeqId>,
    /// Its lists of tokens, by track.
    pub tracks: Vec<Track>,
    /// Its block table in each group.
    pub tables: Vec<Table>,
    /// Slot of its adapter; 0: it has none.
    pub adapter: u32,
}

/// A list of tokens of a sequence, to which some entries of the model append.
#[derive(Clone, Default)]
pub(super) struct Track {
    pub tokens: Vec<i32>,
    /// Their positions along axes.
    pub places: Places,
    /// Tokens before the step under way, or the last one.
    pub began: usize,
}

impl Track {
    /// Forgets all tokens but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.places.truncate(len);
    }
}

/// Pages of a sequence in one group, in order.
#[derive(Clone, Default)]
pub(super) struct Table {
    pub pages: Vec<u32>,
    /// So many of the first pages have been given back: their numbers are 0 and mean nothing.
    pub gone: usize,
    /// Snapshots of states of fixed size: token counts, ascending, with the slots that hold the
    /// states after them. Nobody writes them.
    pub snapshots: Vec<(usize, u32)>,
}

impl Table {
    /// The pages that have not been given back.
    pub fn held(&self) -> &[u32] {
        &self.pages[self.gone..]
    }

    /// The snapshot after the first `len` tokens.
    pub fn snapshot(&self, len: usize) -> Option<u32> {
        self.snapshots.iter().find(|(at, _)| *at == len).map(|(_, page)| *page)
    }
}

/// All sequences.
#[derive(Default)]
pub(super) struct Sequences {
    slots: Vec<Slot>,
    /// Slots in use.
    live: usize,
    /// The next handle, unless its slot is in use.
    pub next_id: SeqId,
    /// Block tables of each.
    tables: usize,
    /// Lists of tokens of each.
    tracks: usize,
}

impl Sequences {
    /// None yet; each will have `tables` block tables and `tracks` lists of tokens.
    pub fn new(tables: usize, tracks: usize) -> Sequences {
        Sequences { tables, tracks, ..Sequences::default() }
    }

    /// Number of live sequences.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// An empty sequence. Slots of other sequences may move.
    pub fn create(&mut self) -> Result<SeqId> {
        if self.live == MAX_SEQUENCES {
            return Err(Error::invalid(format!("{MAX_SEQUENCES} sequences exist; free some with llmcc_seq_free")));
        }
        // At most every other slot is in use, so few handles are skipped.
        if 2 * self.live >= self.slots.len() {
            need(2 * (self.slots.len() + 8) * size_of::<Slot>())?;
            self.more_slots();
        }
        loop {
            let id = self.next_id;
            self.next_id = id.checked_add(1).unwrap_or(0);
            let at = self.index(id);
            let slot = &mut self.slots[at];
            if slot.id.is_none() {
                slot.id = Some(id);
                slot.adapter = 0;
                slot.tables.resize_with(self.tables, Table::default);
                slot.tracks.resize_with(self.tracks, Track::default);
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

    /// Ends the sequence in slot `at`, which has no pages.
    pub fn end(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        slot.id = None;
        slot.tracks = Vec::new();
        slot.adapter = 0;
        self.live -= 1;
    }

    /// Index of a live sequence's slot, until the next [`Sequences::create`].
    pub fn slot(&self, seq: SeqId) -> Result<usize> {
        let at = self.index(seq);
        match self.slots.get(at) {
            Some(s) if s.id == Some(seq) => Ok(at),
            _ => Err(Error::invalid(format!("sequence {seq} does not exist (never created, or already freed)"))),
        }
    }
}

impl Sequences {
    /// All slots, those in use and the others.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// The same, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut()
    }
}

impl std::ops::Index<usize> for Sequences {
    type Output = Slot;

    fn index(&self, slot: usize) -> &Slot {
        &self.slots[slot]
    }
}

impl std::ops::IndexMut<usize> for Sequences {
    fn index_mut(&mut self, slot: usize) -> &mut Slot {
        &mut self.slots[slot]
    }
}
