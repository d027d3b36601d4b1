//! Simulated sequences and their pages: as the engine's cache counts them, without any bytes in them.

use llmcc_abi::pools::{Group, SNAPSHOTS};
use llmcc_steps::plan::Room;
use llmcc_steps::prefix::{SeqId, Sequences};

/// Sequences over the pages of some groups.
pub struct Cache {
    groups: Vec<Group>,
    pools: Vec<Pool>,
    sequences: Vec<Option<Sequence>>,
    /// Tokens of the largest step.
    chunk: usize,
    /// Most bytes of pages that were in use.
    peak: usize,
}

/// Pages of a group: how many sequences refer to each.
#[derive(Clone, Debug, Default)]
struct Pool {
    users: Vec<u32>,
    unused: Vec<u32>,
    used: usize,
}

#[derive(Clone, Debug, Default)]
struct Sequence {
    tokens: Vec<i32>,
    tables: Vec<Table>,
    /// Lengths at which states of fixed size were kept.
    kept: Vec<usize>,
}

/// A sequence's pages of a group.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Pages that its window has left behind.
    gone: usize,
    pages: Vec<u32>,
}

/// A sequence that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

impl Pool {
    fn take(&mut self) -> u32 {
        self.used += 1;
        match self.unused.pop() {
            Some(page) => {
                self.users[page as usize] = 1;
                page
            }
            None => {
                self.users.push(1);
                self.users.len() as u32 - 1
            }
        }
    }

    fn share(&mut self, page: u32) {
        self.users[page as usize] += 1;
    }

    fn release(&mut self, page: u32) {
        let users = &mut self.users[page as usize];
        *users -= 1;
        if *users == 0 {
            self.unused.push(page);
            self.used -= 1;
        }
    }
}

impl Cache {
    /// No sequences, over these groups, for steps of up to `chunk` tokens.
    pub fn new(groups: Vec<Group>, chunk: usize) -> Cache {
        let pools = vec![Pool::default(); groups.len()];
        Cache { groups, pools, sequences: vec![], chunk, peak: 0 }
    }

    /// The most bytes of pages that were in use.
    pub fn peak(&self) -> usize {
        self.peak
    }

    /// Tokens of a sequence; none of one that does not exist.
    pub fn len(&self, seq: SeqId) -> usize {
        self.at(seq).map_or(0, |s| s.tokens.len())
    }

    /// Whether groups of states of fixed size have so many unused places.
    pub fn has_places(&self, places: usize) -> bool {
        (0..self.groups.len()).all(|g| !self.groups[g].fixed || self.free(g) >= places)
    }

    fn at(&self, seq: SeqId) -> Result<&Sequence, Unknown> {
        usize::try_from(seq).ok().and_then(|at| self.sequences.get(at)?.as_ref()).ok_or(Unknown)
    }

    fn put(&mut self, sequence: Sequence) -> SeqId {
        let at = self.sequences.iter().position(Option::is_none).unwrap_or(self.sequences.len());
        if at == self.sequences.len() {
            self.sequences.push(None);
        }
        self.sequences[at] = Some(sequence);
        at as SeqId
    }

    /// An empty sequence.
    pub fn create(&mut self) -> SeqId {
        self.put(Sequence { tables: vec![Table::default(); self.groups.len()], ..Sequence::default() })
    }

    /// A sequence with the first `len` tokens of another, which shares their pages.
    ///
    /// # Errors
    /// There is no such one.
    pub fn fork(&mut self, seq: SeqId, len: usize) -> Result<SeqId, Unknown> {
        let copy = self.at(seq)?.clone();
        for (pool, table) in self.pools.iter_mut().zip(&copy.tables) {
            table.pages[table.gone..].iter().for_each(|&page| pool.share(page));
        }
        let new = self.put(copy);
        self.truncate(new, len);
        Ok(new)
    }

    /// Forgets all but the first `len` tokens.
    pub fn truncate(&mut self, seq: SeqId, len: usize) {
        let Some(sequence) = usize::try_from(seq).ok().and_then(|at| self.sequences.get_mut(at)?.as_mut()) else {
            return;
        };
        sequence.tokens.truncate(len);
        sequence.kept.retain(|at| *at <= len && len > 0);
        for ((group, pool), table) in self.groups.iter().zip(&mut self.pools).zip(&mut sequence.tables) {
            let rest = group.pages_at(len).max(if len > 0 { table.gone } else { 0 }).min(table.pages.len());
            let from = rest.max(table.gone);
            table.pages[from..].iter().for_each(|&page| pool.release(page));
            if len == 0 {
                *table = Table::default();
            } else {
                table.pages.truncate(rest);
            }
        }
    }

    /// Pages of a group that so many more tokens of a sequence need.
    fn needs(&self, group: usize, sequence: &Sequence, more: usize) -> usize {
        let (shape, table, len) = (&self.groups[group], &sequence.tables[group], sequence.tokens.len());
        let new = shape.pages_at(len + more).saturating_sub(table.pages.len());
        // (Who appends to a page that others share gets a copy.)
        let shared = |page: &u32| self.pools[group].users[*page as usize] > 1;
        let copied = shape.changed_page(len).and_then(|at| table.pages.get(at)).is_some_and(shared);
        new + usize::from(copied && more > 0)
    }

    /// Whether there is room for so many more tokens of each sequence.
    pub fn fits(&self, wanted: &[(SeqId, usize)]) -> bool {
        (0..self.groups.len()).all(|group| {
            let needs = |&(seq, more): &(SeqId, usize)| self.at(seq).map_or(0, |s| self.needs(group, s, more));
            wanted.iter().map(needs).sum::<usize>() <= self.free(group)
        })
    }

    /// Appends tokens to a sequence.
    pub fn append(&mut self, seq: SeqId, tokens: &[i32]) {
        let Some(sequence) = usize::try_from(seq).ok().and_then(|at| self.sequences.get_mut(at)?.as_mut()) else {
            return;
        };
        let (old, len) = (sequence.tokens.len(), sequence.tokens.len() + tokens.len());
        for ((group, pool), table) in self.groups.iter().zip(&mut self.pools).zip(&mut sequence.tables) {
            if let Some(page) = group.changed_page(old).and_then(|at| table.pages.get_mut(at))
                && pool.users[*page as usize] > 1
            {
                pool.release(*page);
                *page = pool.take();
            }
            while table.pages.len() < group.pages_at(len) {
                table.pages.push(pool.take());
            }
        }
        sequence.tokens.extend_from_slice(tokens);
        sequence.kept.push(len);
        let old = sequence.kept.len().saturating_sub(SNAPSHOTS);
        sequence.kept.drain(..old);
        self.peak = self.peak.max(self.used_bytes());
        self.slide(seq);
    }

    /// Gives the pages back that a sequence's windows have left behind.
    fn slide(&mut self, seq: SeqId) {
        let Some(sequence) = usize::try_from(seq).ok().and_then(|at| self.sequences.get_mut(at)?.as_mut()) else {
            return;
        };
        for ((group, pool), table) in self.groups.iter().zip(&mut self.pools).zip(&mut sequence.tables) {
            let to = group.kept_from(sequence.tokens.len()).min(table.pages.len());
            if group.slides() && to > table.gone {
                table.pages[table.gone..to].iter().for_each(|&page| pool.release(page));
                table.gone = to;
            }
        }
    }

    fn used_bytes(&self) -> usize {
        self.pools.iter().zip(&self.groups).map(|(pool, group)| pool.used * group.page_bytes).sum()
    }
}

impl Sequences for Cache {
    type Error = Unknown;

    fn tokens(&self, seq: SeqId) -> Result<&[i32], Unknown> {
        Ok(&self.at(seq)?.tokens)
    }

    fn held_bytes(&self, seq: SeqId) -> Result<usize, Unknown> {
        let tables = self.groups.iter().zip(&self.at(seq)?.tables);
        Ok(tables.map(|(group, table)| (table.pages.len() - table.gone) * group.page_bytes).sum())
    }

    fn reusable(&self, seq: SeqId, len: usize) -> Result<usize, Unknown> {
        let sequence = self.at(seq)?;
        let now = sequence.tokens.len();
        let there = |to: usize| {
            self.groups.iter().zip(&sequence.tables).all(|(group, table)| match group.fixed {
                true => to == now || sequence.kept.contains(&to),
                false => to == 0 || group.first_page(to) >= table.gone,
            })
        };
        let fits = sequence.kept.iter().copied().chain([len]).filter(|to| *to <= len && there(*to));
        Ok(fits.max().unwrap_or(0))
    }

    fn free(&mut self, seq: SeqId) -> Result<(), Unknown> {
        self.at(seq)?;
        self.truncate(seq, 0);
        self.sequences[seq as usize] = None;
        Ok(())
    }

    fn by_chunks(&self) -> bool {
        self.groups.iter().any(|g| g.track == 0 && (g.slides() || g.fixed))
    }
}

impl Room for Cache {
    fn groups(&self) -> usize {
        self.groups.len()
    }

    fn free(&self, group: usize) -> usize {
        self.groups[group].pages.saturating_sub(self.pools[group].used)
    }

    fn pages(&self, group: usize, tokens: usize) -> usize {
        self.groups[group].pages_for(tokens, self.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(count: usize) -> Group {
        Group { page_bytes: 64, pages: count, ..Group::EMPTY }
    }

    fn free(cache: &Cache, group: usize) -> usize {
        Room::free(cache, group)
    }

    #[test]
    fn forks_share_pages_until_they_go_on() {
        let mut cache = Cache::new(vec![pages(10)], 512);
        let a = cache.create();
        assert!(cache.fits(&[(a, 160)]) && !cache.fits(&[(a, 161)]));
        cache.append(a, &[1; 40]);
        assert_eq!((free(&cache, 0), cache.held_bytes(a)), (7, Ok(192)));
        let b = cache.fork(a, 33).unwrap();
        assert_eq!((free(&cache, 0), cache.len(b)), (7, 33), "a fork costs nothing");
        // The third page is shared and partly filled.
        assert!(cache.fits(&[(b, 15 + 6 * 16)]) && !cache.fits(&[(b, 16 + 6 * 16)]));
        cache.append(b, &[2]);
        assert_eq!(free(&cache, 0), 6);
        cache.append(a, &[3]);
        assert_eq!(free(&cache, 0), 6, "the page is its own by now");
        Sequences::free(&mut cache, a).unwrap();
        assert_eq!((free(&cache, 0), cache.len(b)), (7, 34));
        Sequences::free(&mut cache, b).unwrap();
        assert_eq!((free(&cache, 0), cache.peak()), (10, 4 * 64));
        assert_eq!((Sequences::free(&mut cache, b), cache.fork(a, 1).err()), (Err(Unknown), Some(Unknown)));
    }

    #[test]
    fn windows_give_pages_back_and_states_have_one_place() {
        let window = Group { window: 32, ..pages(100) };
        let fixed = Group { fixed: true, ..pages(3) };
        let mut cache = Cache::new(vec![window, fixed], 16);
        assert!(cache.by_chunks() && cache.has_places(3) && !cache.has_places(4));
        let a = cache.create();
        (0..20).for_each(|_| cache.append(a, &[7; 16]));
        let held = 100 - free(&cache, 0);
        assert!((2..8).contains(&held), "{held} of 20 pages");
        assert_eq!(free(&cache, 1), 2);
        assert_eq!((cache.reusable(a, 320), cache.reusable(a, 310)), (Ok(320), Ok(304)), "where a state was kept");
        assert_eq!(cache.reusable(a, 100), Ok(0), "the window has moved on");
        cache.truncate(a, 0);
        assert_eq!((free(&cache, 0), free(&cache, 1)), (100, 3));
    }
}
