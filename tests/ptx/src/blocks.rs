//! Races between blocks on global memory. Blocks run one after another here but at the same time on
//! a GPU, so the accesses of one must not depend on another, unless fences and atomics order them.
//!
//! A block's clock advances at each `fence.acq_rel.gpu`. An atomic operation hands on all accesses
//! of its block (and of the blocks it knows of) before the last fence; a block that makes an atomic
//! operation on the same address later knows of them after its own next fence, or at once with
//! `.acquire` or `.acq_rel`.

use std::collections::HashMap;

use crate::fault::{Access, FaultKind};

/// Granules of one page of the shadow.
const PAGE: usize = 256;
/// Stands for several blocks.
const MANY: u32 = u32::MAX;
/// Larger buffers are not watched.
pub(crate) const MOST_WATCHED: usize = 32 << 20;

#[derive(Clone, Copy, Default)]
struct Event {
    /// Index of the block plus one; 0: none.
    block: u32,
    clock: u32,
    pc: u32,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    /// Which launch this is about.
    launch: u32,
    write: Event,
    read: Event,
    /// The write was atomic.
    atomic: bool,
}

/// Shadow of a buffer.
#[derive(Default)]
pub(crate) struct Shadow {
    pages: Vec<Option<Box<[Cell; PAGE]>>>,
    /// Which launch last wrote each word of four bytes; granules differ from launch to launch.
    written: Vec<Option<Box<[u32; PAGE]>>>,
}

impl std::fmt::Debug for Shadow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} pages", self.pages.len())
    }
}

/// A page of a list that grows; it is made where there is none yet.
#[inline]
fn page<T: Copy + Default>(pages: &mut Vec<Option<Box<[T; PAGE]>>>, number: usize) -> &mut [T; PAGE] {
    if pages.len() <= number {
        pages.resize_with(number + 1, || None);
    }
    pages[number].get_or_insert_with(|| Box::new([T::default(); PAGE]))
}

impl Shadow {
    fn written(&mut self, word: usize) -> &mut u32 {
        &mut page(&mut self.written, word / PAGE)[word % PAGE]
    }

    fn peek(&self, i: usize) -> Option<&Cell> {
        self.pages.get(i / PAGE)?.as_ref().map(|p| &p[i % PAGE])
    }
}

/// Knowledge of blocks: their clocks.
type Known = HashMap<u32, u32>;

fn join(into: &mut Known, from: &Known) {
    for (b, c) in from {
        let known = into.entry(*b).or_default();
        *known = (*known).max(*c);
    }
}

/// Order of the blocks of a launch.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    on: bool,
    launch: u32,
    /// The last launch that began when all before it had ended.
    first: u32,
    /// The instruction at hand is reached without a wait for the launches before.
    pub early: bool,
    /// Some thread of the launch has waited for those before.
    pub waited: bool,
    /// log2 of the granule.
    shift: u32,
    /// Index of the running block plus one.
    block: u32,
    clock: u32,
    /// Accesses up to this clock are handed on by atomics.
    fenced: u32,
    known: Known,
    /// Knowledge from atomics, before the next fence.
    pending: Known,
    /// Knowledge that atomics on each address hand on.
    handed: HashMap<u64, Known>,
}

/// An access by a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Touch {
    pub access: Access,
    pub address: u64,
    pub pc: u32,
    /// Volatile, relaxed and acquiring accesses do not race with atomics.
    pub atomic: bool,
}

impl Blocks {
    /// A new launch.
    pub fn begin(&mut self, granule: u64, check: bool, overlaps: bool) {
        self.on = check;
        self.launch += 1;
        // Launches are numbered from 1; 0 stands for no launch.
        if !overlaps || self.first == 0 {
            self.first = self.launch;
        }
        (self.early, self.waited) = (false, false);
        self.shift = granule.clamp(1, 16).trailing_zeros();
        self.handed.clear();
    }

    pub fn start_block(&mut self, index: u32) {
        self.block = index + 1;
        self.clock = 1;
        self.fenced = 0;
        self.known.clear();
        self.pending.clear();
    }

    pub fn on(&self) -> bool {
        self.on
    }

    /// A fence of the whole GPU.
    pub fn fence(&mut self) {
        self.fenced = self.clock;
        self.clock += 1;
        let pending = std::mem::take(&mut self.pending);
        join(&mut self.known, &pending);
    }

    /// An atomic operation on `address`.
    pub fn atomic(&mut self, address: u64, acquires: bool, releases: bool) {
        if !self.on {
            return;
        }
        if releases {
            self.fenced = self.clock;
            self.clock += 1;
        }
        let handed = self.handed.entry(address).or_default();
        join(&mut self.pending, handed);
        join(handed, &self.known);
        let own = handed.entry(self.block).or_default();
        *own = (*own).max(self.fenced);
        if acquires {
            let pending = std::mem::take(&mut self.pending);
            join(&mut self.known, &pending);
        }
    }

    fn ordered(&self, e: Event) -> bool {
        e.block == 0
            || e.block == self.block
            || (e.block != MANY && self.known.get(&e.block).is_some_and(|c| e.clock <= *c))
    }

    /// Checks and notes an access of `len` bytes from offset `at` of a buffer.
    pub fn touch(&mut self, shadow: &mut Shadow, at: usize, len: usize, t: Touch) -> Result<(), FaultKind> {
        self.overlap(shadow, at, len, &t)?;
        let (mut i, end) = (at >> self.shift, (at + len).div_ceil(1 << self.shift));
        while i < end {
            let next = end.min((i / PAGE + 1) * PAGE);
            let cells = &mut page(&mut shadow.pages, i / PAGE)[i % PAGE..][..next - i];
            self.touch_cells(cells, i, at, t)?;
            i = next;
        }
        Ok(())
    }

    /// The same of granules from number `first` on.
    #[inline]
    fn touch_cells(&self, cells: &mut [Cell], first: usize, at: usize, t: Touch) -> Result<(), FaultKind> {
        // An atomic's own write is seen by everyone who receives its knowledge.
        let clock = if t.access == Access::Atomic { self.fenced } else { self.clock };
        let (launch, mine) = (self.launch, Event { block: self.block, clock, pc: t.pc });
        for (i, c) in (first..).zip(cells) {
            if c.launch != launch {
                *c = Cell { launch, ..Cell::default() };
            }
            let harmless = t.atomic && c.atomic;
            if !harmless && !self.ordered(c.write) {
                return Err(self.race(t, i, at, Access::Write, c.write));
            }
            if t.access == Access::Read {
                if !t.atomic {
                    let several = c.read.block != 0 && c.read.block != self.block && !self.ordered(c.read);
                    c.read = Event { block: if several { MANY } else { self.block }, ..mine };
                }
                continue;
            }
            if !self.ordered(c.read) {
                return Err(self.race(t, i, at, Access::Read, c.read));
            }
            *c = Cell { launch, write: mine, read: Event::default(), atomic: t.atomic };
        }
        Ok(())
    }

    /// Checks an access of a launch that overlaps with launches before it, and notes its writes.
    fn overlap(&self, shadow: &mut Shadow, at: usize, len: usize, t: &Touch) -> Result<(), FaultKind> {
        let writes = t.access != Access::Read;
        if !writes && !self.early {
            return Ok(());
        }
        for word in at / 4..(at + len).div_ceil(4) {
            if self.early && (writes || (self.first..self.launch).contains(shadow.written(word))) {
                return Err(FaultKind::Early { access: t.access, address: t.address });
            }
            if writes {
                *shadow.written(word) = self.launch;
            }
        }
        Ok(())
    }

    /// Instruction that wrote one of these bytes in this launch.
    pub fn writer(&self, shadow: &Shadow, at: usize, len: usize) -> Option<u32> {
        let cells = (at >> self.shift..(at + len).div_ceil(1 << self.shift)).filter_map(|i| shadow.peek(i));
        cells.filter(|c| c.launch == self.launch && c.write.block != 0).map(|c| c.write.pc).next()
    }

    fn race(&self, t: Touch, cell: usize, at: usize, other_access: Access, e: Event) -> FaultKind {
        let address = t.address + ((cell << self.shift) as u64).saturating_sub(at as u64);
        let block = (e.block != MANY).then_some(e.block.wrapping_sub(1));
        FaultKind::BlockRace { access: t.access, address, other_access, block, line: e.pc }
    }
}
