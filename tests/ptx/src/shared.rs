//! Shared memory with a shadow: who wrote and read each granule last, and when.
//!
//! A granule is the smallest access of the kernel, so that neighbours are never mixed up.

use crate::clocks::{Clocks, WARPS};
use crate::fault::{Access, FaultKind, Other};
use crate::machine::SHARED_BASE;

const INIT: u8 = 1;
/// The last write was atomic.
const ATOMIC: u8 = 2;
/// An asynchronous copy will write here.
const WRITING: u8 = 4;
/// The last write went through the generic proxy.
const GENERIC: u8 = 8;
/// Warps that are not ordered read this; `read.clock` is an index into `sets`.
const MANY: u8 = 16;
/// Stands for several lanes.
const LANES: u8 = 255;

#[derive(Clone, Copy, Default)]
struct Event {
    clock: u32,
    epoch: u32,
    pc: u32,
    warp: u8,
    lane: u8,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    write: Event,
    read: Event,
    flags: u8,
    /// Asynchronous reads not yet waited for.
    reading: u16,
}

/// A thread at an instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub warp: u32,
    pub lane: u32,
    pub pc: u32,
}

/// Shared memory of a block.
pub(crate) struct Shared {
    bytes: Vec<u8>,
    cells: Vec<Cell>,
    /// log2 of the granule.
    shift: u32,
    sets: Vec<[u32; WARPS]>,
    free_sets: Vec<u32>,
    pub clocks: Clocks,
    check_init: bool,
    check_races: bool,
}

type Res<T> = Result<T, FaultKind>;

impl Event {
    fn other(self) -> Other {
        Other {
            thread: (self.lane != LANES).then_some(u32::from(self.warp) * 32 + u32::from(self.lane)),
            line: self.pc,
        }
    }
}

impl Shared {
    pub fn new(size: usize, granule: u64, clocks: Clocks, check_init: bool, check_races: bool) -> Self {
        let shift = granule.clamp(1, 16).trailing_zeros();
        Shared {
            // The pattern is a NaN in every format.
            bytes: vec![0xff; size],
            cells: vec![Cell::default(); size.div_ceil(1 << shift)],
            shift,
            sets: Vec::new(),
            free_sets: Vec::new(),
            clocks,
            check_init,
            check_races,
        }
    }

    /// As new, for the next block.
    pub fn reset(&mut self, clocks: Clocks) {
        self.bytes.fill(0xff);
        self.cells.fill(Cell::default());
        self.sets.clear();
        self.free_sets.clear();
        self.clocks = clocks;
    }

    #[inline]
    fn locate(&self, access: Access, address: u64, len: u64) -> Res<usize> {
        let at = address.wrapping_sub(SHARED_BASE);
        let size = self.bytes.len() as u64;
        if at.checked_add(len).is_none_or(|end| end > size) {
            let nearest = format!("it is {size} bytes from {SHARED_BASE:#x}").into();
            return Err(FaultKind::OutOfBounds { space: "shared", access, address, bytes: len, nearest });
        }
        Ok(at as usize)
    }

    fn granules(&self, at: usize, len: usize) -> std::ops::Range<usize> {
        at >> self.shift..(at + len).div_ceil(1 << self.shift)
    }

    fn address(&self, cell: usize) -> u64 {
        SHARED_BASE + ((cell as u64) << self.shift)
    }

    /// Whether event `e` of another thread happened before the present access of `who`.
    #[inline(always)]
    fn ordered(&self, who: Who, e: Event) -> bool {
        let w = who.warp as usize;
        if u32::from(e.warp) == who.warp {
            u32::from(e.lane) == who.lane || e.epoch < self.clocks.epoch(w)
        } else {
            e.clock <= self.clocks.warps[w].seen[e.warp as usize]
        }
    }

    fn race(&self, cell: usize, access: Access, other_access: Access, other: Event) -> FaultKind {
        FaultKind::Race { access, address: self.address(cell), other_access, other: other.other() }
    }

    fn in_flight(&self, cell: usize, access: Access, other: Event) -> FaultKind {
        FaultKind::InFlight { access, address: self.address(cell), other: other.other() }
    }

    /// Checks a read of cell `i` and notes it.
    #[inline]
    fn read_cell(&mut self, who: Who, i: usize, atomic: bool) -> Res<()> {
        let c = self.cells[i];
        if c.flags & WRITING != 0 {
            return Err(self.in_flight(i, Access::Read, c.write));
        }
        if c.flags & INIT == 0 {
            return if self.check_init {
                Err(FaultKind::Uninitialised { space: "shared", address: self.address(i) })
            } else {
                Ok(())
            };
        }
        if !self.check_races {
            return Ok(());
        }
        if c.write.clock != 0 && !self.ordered(who, c.write) && !(atomic && c.flags & ATOMIC != 0) {
            return Err(self.race(i, Access::Read, Access::Write, c.write));
        }
        if !atomic {
            self.note_read(who, i);
        }
        Ok(())
    }

    #[inline]
    fn note_read(&mut self, who: Who, i: usize) {
        let now = self.clocks.now(who.warp as usize);
        let c = self.cells[i];
        let epoch = self.clocks.epoch(who.warp as usize);
        let mine = Event { clock: now, epoch, pc: who.pc, warp: who.warp as u8, lane: who.lane as u8 };
        if c.flags & MANY == 0 {
            let r = c.read;
            if r.clock != 0 && r.epoch == epoch && r.warp == mine.warp {
                let lane = if r.lane == mine.lane { r.lane } else { LANES };
                self.cells[i].read = Event { lane, ..mine };
            } else if r.clock == 0 || self.ordered(who, r) {
                self.cells[i].read = mine;
            } else {
                let mut set = [0; WARPS];
                set[r.warp as usize] = r.clock;
                set[who.warp as usize] = now;
                let index = self.free_sets.pop().unwrap_or(self.sets.len() as u32);
                if index as usize == self.sets.len() {
                    self.sets.push(set);
                } else {
                    self.sets[index as usize] = set;
                }
                self.cells[i].read = Event { clock: index, epoch: 0, pc: who.pc, warp: 0, lane: LANES };
                self.cells[i].flags |= MANY;
            }
            return;
        }
        let w = who.warp as usize;
        let index = c.read.clock as usize;
        let seen = &self.clocks.warps[w].seen;
        let before =
            (0..WARPS).all(|v| if v == w { self.sets[index][v] < now } else { self.sets[index][v] <= seen[v] });
        if before {
            self.free_sets.push(c.read.clock);
            self.cells[i].read = mine;
            self.cells[i].flags &= !MANY;
        } else {
            self.sets[index][w] = now;
            self.cells[i].read.pc = who.pc;
        }
    }

    /// Whether all reads of cell `i` happened before a write of `who`.
    fn reads_ordered(&self, who: Who, c: &Cell) -> bool {
        if c.flags & MANY == 0 {
            return c.read.clock == 0 || self.ordered(who, c.read);
        }
        let w = who.warp as usize;
        let (now, seen) = (self.clocks.now(w), &self.clocks.warps[w].seen);
        self.sets[c.read.clock as usize]
            .iter()
            .enumerate()
            .all(|(v, &at)| if v == w { at < now } else { at <= seen[v] })
    }

    /// Checks a write of cell `i`. `same` says that the bytes do not change.
    #[inline]
    fn check_write(&self, who: Who, i: usize, access: Access, same: bool) -> Res<()> {
        let c = &self.cells[i];
        if c.flags & WRITING != 0 {
            return Err(self.in_flight(i, access, c.write));
        }
        if c.reading != 0 {
            return Err(self.in_flight(i, access, c.read));
        }
        if !self.check_races {
            return Ok(());
        }
        let both_atomic = access == Access::Atomic && c.flags & ATOMIC != 0;
        // Lanes of one instruction that write the same value do no harm.
        let together = same && c.write.pc == who.pc && u32::from(c.write.warp) == who.warp;
        if c.write.clock != 0 && !both_atomic && !together && !self.ordered(who, c.write) {
            return Err(self.race(i, access, Access::Write, c.write));
        }
        if !self.reads_ordered(who, c) {
            return Err(self.race(i, access, Access::Read, c.read));
        }
        Ok(())
    }

    fn note_write(&mut self, who: Who, i: usize, flags: u8) {
        let (now, epoch) = (self.clocks.now(who.warp as usize), self.clocks.epoch(who.warp as usize));
        let c = &mut self.cells[i];
        if c.flags & MANY != 0 {
            self.free_sets.push(c.read.clock);
        }
        c.write = Event { clock: now, epoch, pc: who.pc, warp: who.warp as u8, lane: who.lane as u8 };
        c.read = Event::default();
        c.flags = flags;
    }

    /// A thread's read. `atomic`: volatile, relaxed and acquiring reads, which do not race with
    /// atomic writes.
    pub fn read(&mut self, who: Who, address: u64, len: u64, atomic: bool) -> Res<&[u8]> {
        let at = self.locate(Access::Read, address, len)?;
        for i in self.granules(at, len as usize) {
            self.read_cell(who, i, atomic)?;
        }
        Ok(&self.bytes[at..at + len as usize])
    }

    /// A thread's write.
    pub fn write(&mut self, who: Who, address: u64, data: &[u8], atomic: bool) -> Res<()> {
        let access = if atomic { Access::Atomic } else { Access::Write };
        let at = self.locate(access, address, data.len() as u64)?;
        let same = self.bytes[at..at + data.len()] == *data;
        for i in self.granules(at, data.len()) {
            self.check_write(who, i, access, same)?;
            self.note_write(who, i, INIT | GENERIC | if atomic { ATOMIC } else { 0 });
        }
        self.bytes[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    /// A thread's read-modify-write: the bytes before; `change` gives those after.
    pub fn atomic(&mut self, who: Who, address: u64, len: u64, change: impl FnOnce(u64) -> u64) -> Res<u64> {
        let at = self.locate(Access::Atomic, address, len)?;
        for i in self.granules(at, len as usize) {
            self.read_cell(who, i, true)?;
        }
        let mut old = [0; 8];
        old[..len as usize].copy_from_slice(&self.bytes[at..at + len as usize]);
        let old = u64::from_le_bytes(old);
        let new = change(old).to_le_bytes();
        self.write(who, address, &new[..len as usize], true)?;
        Ok(old)
    }

    /// An asynchronous copy starts: its destination may not be touched until `land`.
    pub fn begin_write(&mut self, who: Who, address: u64, len: u64) -> Res<()> {
        let at = self.locate(Access::Write, address, len)?;
        for i in self.granules(at, len as usize) {
            self.check_write(who, i, Access::Write, false)?;
            self.note_write(who, i, WRITING);
        }
        Ok(())
    }

    /// An asynchronous copy ends. For its own thread it counts as a write now; `generic` copies
    /// (cp.async) also as writes of the generic proxy.
    pub fn land(&mut self, who: Who, address: u64, data: &[u8], generic: bool) {
        let Ok(at) = self.locate(Access::Write, address, data.len() as u64) else { return };
        for i in self.granules(at, data.len()) {
            self.note_write(who, i, INIT | if generic { GENERIC } else { 0 });
        }
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    /// A landed copy that counts as written at `clock` of warp `who.warp`, when it was started.
    pub fn land_at(&mut self, who: Who, clock: u32, address: u64, data: &[u8]) {
        self.land(who, address, data, false);
        let Ok(at) = self.locate(Access::Write, address, data.len() as u64) else { return };
        for i in self.granules(at, data.len()) {
            self.cells[i].write.clock = clock;
        }
    }

    /// A read through the async proxy: threads' writes must be fenced. The bytes count as being
    /// read until `end_async_read`.
    pub fn async_read(&mut self, who: Who, address: u64, len: u64) -> Res<&[u8]> {
        let at = self.locate(Access::Read, address, len)?;
        for i in self.granules(at, len as usize) {
            self.read_cell(who, i, false)?;
            let c = &mut self.cells[i];
            c.reading = c.reading.saturating_add(1);
            let e = c.write;
            let fenced = self.clocks.warps[who.warp as usize].fenced[e.warp as usize];
            if self.check_races && c.flags & GENERIC != 0 && e.clock > fenced {
                return Err(FaultKind::ProxyFence { address: self.address(i), other: e.other() });
            }
        }
        Ok(&self.bytes[at..at + len as usize])
    }

    /// The asynchronous read ended.
    pub fn end_async_read(&mut self, who: Who, address: u64, len: u64) {
        let Ok(at) = self.locate(Access::Read, address, len) else { return };
        for i in self.granules(at, len as usize) {
            self.cells[i].reading = self.cells[i].reading.saturating_sub(1);
            self.note_read(who, i);
        }
    }

    /// The bytes of an object whose accesses are ordered by itself (an mbarrier): marked as
    /// written.
    pub fn claim(&mut self, who: Who, address: u64, len: u64) -> Res<()> {
        let at = self.locate(Access::Write, address, len)?;
        for i in self.granules(at, len as usize) {
            self.note_write(who, i, INIT | ATOMIC);
        }
        Ok(())
    }
}
