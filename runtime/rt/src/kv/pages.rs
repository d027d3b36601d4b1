//! Pages: which are in use, by how many sequences, and the memory they are.

use std::ops::Range;

use llmcc_abi::StateDesc;

use super::windows::Layout;
use crate::error::{Error, Result};
use crate::memory::Region;

/// The memory of the pages.
pub trait PageStore: Send {
    /// Copies page `from` of every state of `group` to page `to`, another one. No step is running.
    fn copy(&mut self, group: usize, from: u32, to: u32) -> Result<()>;

    /// Writes page `page` of state `state`, whole. No step is running.
    ///
    /// # Errors
    /// Memory of a kind that cannot be written.
    fn write(&mut self, state: usize, page: u32, bytes: &[u8]) -> Result<()>;

    /// Makes all bytes of page `page` of every state of `group` zero. No step is running.
    fn clear(&mut self, group: usize, page: u32) -> Result<()>;

    /// Reads page `page` of every state of `group` into `out`, one state after the other. No step is running.
    ///
    /// # Errors
    /// `out` is of another size; the memory cannot be read.
    fn save(&mut self, group: usize, page: u32, out: &mut [u8]) -> Result<()>;

    /// Writes what [`PageStore::save`] has read.
    ///
    /// # Errors
    /// `bytes` are of another size; the memory cannot be written.
    fn load(&mut self, group: usize, page: u32, bytes: &[u8]) -> Result<()>;
}

/// Pages in this process' memory: a pool per state, reserved whole, but a page costs memory only
/// once it is written.
pub struct HostPages {
    pools: Vec<Region>,
    page_bytes: Vec<usize>,
    /// Group of each pool.
    groups: Vec<usize>,
}

impl HostPages {
    /// Pools for the states `descs`.
    pub fn new(descs: &[StateDesc], layout: &Layout) -> Result<HostPages> {
        let page_bytes: Vec<usize> = descs.iter().map(|d| d.bytes as usize).collect();
        let purpose = format!("the KV cache of {} tokens; use a smaller max_tokens", layout.max_tokens);
        let reserve = |(&bytes, pages): (&usize, usize)| Region::reserve(bytes.saturating_mul(pages), &purpose);
        let pools = page_bytes.iter().zip(layout.pages()).map(reserve).collect::<Result<Vec<_>>>()?;
        Ok(HostPages { pools, page_bytes, groups: layout.of_state.clone() })
    }

    /// Start of each state's pool, valid as long as `self`.
    pub fn pools(&self) -> Vec<*mut u8> {
        self.pools.iter().map(Region::ptr).collect()
    }
}

impl PageStore for HostPages {
    fn copy(&mut self, group: usize, from: u32, to: u32) -> Result<()> {
        let all = self.pools.iter().zip(&self.page_bytes).zip(&self.groups);
        for ((pool, &bytes), _) in all.filter(|(_, g)| **g == group) {
            // SAFETY: both pages lie in the pool and differ; no step is running.
            unsafe {
                let (from, to) = (pool.ptr().add(from as usize * bytes), pool.ptr().add(to as usize * bytes));
                std::ptr::copy_nonoverlapping(from, to, bytes);
            }
        }
        Ok(())
    }

    fn write(&mut self, state: usize, page: u32, bytes: &[u8]) -> Result<()> {
        let (pool, len) = (&self.pools[state], self.page_bytes[state]);
        let at = page_at(page, (bytes.len(), len), pool.len())?;
        // SAFETY: the page lies in the pool; no step is running.
        unsafe { pool.ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), len) };
        Ok(())
    }

    fn save(&mut self, group: usize, page: u32, out: &mut [u8]) -> Result<()> {
        for (state, range) in of_group(&self.groups, &self.page_bytes, group) {
            let (pool, len) = (&self.pools[state], self.page_bytes[state]);
            let out = out.get_mut(range).ok_or_else(other_size)?;
            let at = page_at(page, (out.len(), len), pool.len())?;
            // SAFETY: the page lies in the pool; no step is running.
            unsafe { out.as_mut_ptr().copy_from_nonoverlapping(pool.ptr().add(at), len) };
        }
        Ok(())
    }

    fn load(&mut self, group: usize, page: u32, bytes: &[u8]) -> Result<()> {
        for (state, range) in of_group(&self.groups, &self.page_bytes, group) {
            self.write(state, page, bytes.get(range).ok_or_else(other_size)?)?;
        }
        Ok(())
    }

    fn clear(&mut self, group: usize, page: u32) -> Result<()> {
        let all = self.pools.iter().zip(&self.page_bytes).zip(&self.groups);
        for ((pool, &bytes), _) in all.filter(|(_, g)| **g == group) {
            // SAFETY: the page lies in the pool; no step is running.
            unsafe { pool.ptr().add(page as usize * bytes).write_bytes(0, bytes) };
        }
        Ok(())
    }
}

/// The states of a group, with the ranges of their bytes in a page of all of them.
pub fn of_group(groups: &[usize], page_bytes: &[usize], group: usize) -> Vec<(usize, Range<usize>)> {
    let mut start = 0;
    let states = (0..groups.len()).filter(|state| groups[*state] == group);
    let ranges = states.map(|state| {
        let range = start..start + page_bytes[state];
        start = range.end;
        (state, range)
    });
    ranges.collect()
}

/// The offset of a page in a pool of `all` bytes, where `given` bytes are to be copied and a page has `len`.
///
/// # Errors
/// They differ, or there is no such page.
pub fn page_at(page: u32, (given, len): (usize, usize), all: usize) -> Result<usize> {
    let at = page as usize * len;
    match given == len && at.checked_add(len).is_some_and(|end| end <= all) {
        true => Ok(at),
        false => Err(other_size()),
    }
}

pub fn other_size() -> Error {
    Error::artifact("a state's size differs from the artifact's tables; compile it again")
}

/// The pages of a group, by number.
pub(super) struct Pool {
    /// References to each page handed out so far; its length is the number of pages ever used.
    refs: Vec<u32>,
    free: Vec<u32>,
    total: usize,
}

impl Pool {
    /// `total` pages that nobody uses.
    pub fn new(total: usize) -> Pool {
        Pool { refs: Vec::new(), free: Vec::new(), total }
    }

    /// Pages in use.
    pub fn used(&self) -> usize {
        self.refs.len() - self.free.len()
    }

    /// Pages that nobody uses.
    pub fn free(&self) -> usize {
        self.total - self.used()
    }

    /// A page for one user; `None` if all are in use.
    pub fn take(&mut self) -> Option<u32> {
        if let Some(page) = self.free.pop() {
            self.refs[page as usize] = 1;
            return Some(page);
        }
        if self.refs.len() < self.total {
            // So that giving pages back takes no memory.
            let pages = self.refs.len() + 1;
            if self.refs.try_reserve(1).is_err() || self.free.try_reserve(pages).is_err() {
                return None;
            }
            self.refs.push(1);
            return Some(self.refs.len() as u32 - 1);
        }
        None
    }

    /// One more user of `page`.
    pub fn share(&mut self, page: u32) {
        self.refs[page as usize] += 1;
    }

    /// One user less.
    pub fn release(&mut self, page: u32) {
        self.refs[page as usize] -= 1;
        if self.refs[page as usize] == 0 {
            self.free.push(page);
        }
    }

    /// Pages handed out so far, those that came back included.
    pub fn handed_out(&self) -> usize {
        self.refs.len()
    }

    /// Checks that the free pages are those without users, each once.
    ///
    /// # Errors
    /// Which page is wrong.
    pub fn audit(&self) -> std::result::Result<(), String> {
        let mut free = self.free.clone();
        free.sort_unstable();
        let unused = (0..self.refs.len() as u32).filter(|page| self.refs[*page as usize] == 0);
        match free.iter().copied().eq(unused) {
            true => Ok(()),
            false => Err(format!("the free pages are {free:?}, but others have no users")),
        }
    }

    /// Users of `page`.
    pub fn users(&self, page: u32) -> usize {
        self.refs[page as usize] as usize
    }

    /// Whether there is one user only.
    pub fn alone(&self, page: u32) -> bool {
        self.refs[page as usize] == 1
    }
}
