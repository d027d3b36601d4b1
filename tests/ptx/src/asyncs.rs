//! Asynchronous copies. They land as late as the program allows, at the wait, so that nothing works
//! by luck.

use std::collections::VecDeque;

use crate::access::How;
use crate::fault::{Access, FaultKind};
use crate::machine::{Cx, lanes};
use crate::shared::Who;

/// A copy of one thread (`cp.async`), not yet landed.
struct Copy {
    group: u32,
    address: u64,
    /// At most 16 bytes.
    data: [u8; 16],
    bytes: usize,
    pc: u32,
}

/// A bulk store from shared to global memory, not yet landed.
struct Store {
    group: u32,
    from: u64,
    to: u64,
    data: Vec<u8>,
    pc: u32,
    /// Shared memory is still being read.
    reading: bool,
}

#[derive(Default)]
struct Lane {
    copies: VecDeque<Copy>,
    /// The group that the next copies belong to.
    open: u32,
    stores: VecDeque<Store>,
    open_store: u32,
}

/// Copies of the threads of a warp.
#[derive(Default)]
pub(crate) struct Copies {
    lanes: Vec<Lane>,
}

impl Copies {
    fn lane(&mut self, lane: u32) -> &mut Lane {
        if self.lanes.is_empty() {
            self.lanes.resize_with(32, Lane::default);
        }
        &mut self.lanes[lane as usize]
    }

    pub fn reset(&mut self) {
        self.lanes.clear();
    }
}

/// A bulk copy into shared memory that will complete an mbarrier's transaction.
pub(crate) struct Bulk {
    pub who: Who,
    pub clock: u32,
    pub to: u64,
    pub data: Vec<u8>,
    pub mbarrier: u64,
}

/// Pending arrivals of a block's mbarriers.
#[derive(Default)]
pub(crate) struct InFlight {
    pub bulk: Vec<Bulk>,
}

impl Cx<'_> {
    pub fn who(&self, lane: u32) -> Who {
        Who { warp: self.warp.index, lane, pc: self.pc }
    }

    /// `cp.async`: `bytes` bytes to shared `to`; the first `valid` come from global `from`, the
    /// others are zero.
    pub fn copy(&mut self, lane: u32, to: u64, from: u64, bytes: u64, valid: u64) -> Result<(), FaultKind> {
        for (space, address) in [("shared", to), ("global", from)] {
            if address % bytes != 0 && (space == "shared" || valid > 0) {
                return Err(FaultKind::Misaligned { space, address, bytes });
            }
        }
        let mut data = [0; 16];
        if valid > 0 {
            data[..valid as usize].copy_from_slice(self.load_global(from, valid, How::COPY)?);
            self.count.read += valid;
            *self.count.copied.entry(from / 128).or_default() += valid;
        }
        let (who, pc) = (self.who(lane), self.pc);
        self.cta.shared.begin_write(who, to, bytes)?;
        let queue = self.warp.copies.lane(lane);
        let group = queue.open;
        queue.copies.push_back(Copy { group, address: to, data, bytes: bytes as usize, pc });
        Ok(())
    }

    /// `cp.async.commit_group`.
    pub fn commit_copies(&mut self, mask: u32) {
        for lane in lanes(mask) {
            self.warp.copies.lane(lane).open += 1;
        }
    }

    /// `cp.async.wait_group`: lands all but the `left` newest groups; without `left` also those not
    /// committed.
    pub fn wait_copies(&mut self, mask: u32, left: Option<u32>) {
        for lane in lanes(mask) {
            self.land_copies(lane, left);
        }
    }

    pub fn land_copies(&mut self, lane: u32, left: Option<u32>) {
        let warp = self.warp.index;
        let queue = self.warp.copies.lane(lane);
        let done = left.map_or(u32::MAX, |n| queue.open.saturating_sub(n));
        while queue.copies.front().is_some_and(|c| c.group < done)
            && let Some(c) = queue.copies.pop_front()
        {
            self.cta.shared.land(Who { warp, lane, pc: c.pc }, c.address, &c.data[..c.bytes], true);
        }
    }

    /// `cp.async.bulk` from global to shared memory; it completes `bytes` of the transaction of
    /// `mbarrier`.
    pub fn bulk_load(&mut self, lane: u32, to: u64, from: u64, bytes: u64, mbarrier: u64) -> Result<(), FaultKind> {
        bulk_shape(to, from, bytes)?;
        let data = self.load_global(from, bytes, How::COPY)?.to_vec();
        self.count.read += bytes;
        self.bulk_data(lane, to, data, mbarrier)
    }

    /// The same for data already read.
    pub fn bulk_data(&mut self, lane: u32, to: u64, data: Vec<u8>, mbarrier: u64) -> Result<(), FaultKind> {
        let who = self.who(lane);
        self.mbarrier(lane, mbarrier)?;
        self.mbarrier_shown(mbarrier)?;
        self.cta.shared.begin_write(who, to, data.len() as u64)?;
        let clock = self.cta.shared.clocks.now(who.warp as usize);
        self.publish_to(mbarrier, who.warp);
        self.cta.flight.bulk.push(Bulk { who, clock, to, data, mbarrier });
        Ok(())
    }

    /// `cp.async.bulk` from shared to global memory.
    pub fn bulk_store(&mut self, lane: u32, to: u64, from: u64, bytes: u64) -> Result<(), FaultKind> {
        bulk_shape(from, to, bytes)?;
        let who = self.who(lane);
        let data = self.cta.shared.async_read(who, from, bytes)?.to_vec();
        // The range must be mapped already now.
        self.mem.load(to, bytes, false)?;
        self.touch(Access::Write, to, bytes, false)?;
        self.count.written += bytes;
        let queue = self.warp.copies.lane(lane);
        let group = queue.open_store;
        queue.stores.push_back(Store { group, from, to, data, pc: who.pc, reading: true });
        Ok(())
    }

    /// `cp.async.bulk.commit_group`.
    pub fn commit_stores(&mut self, mask: u32) {
        for lane in lanes(mask) {
            self.warp.copies.lane(lane).open_store += 1;
        }
    }

    /// `cp.async.bulk.wait_group`, with `read_only` its `.read` form: shared memory is free again,
    /// the data may not have arrived.
    pub fn wait_stores(&mut self, lane: u32, left: u32, read_only: bool) -> Result<(), FaultKind> {
        let warp = self.warp.index;
        let queue = self.warp.copies.lane(lane);
        let done = queue.open_store.saturating_sub(left);
        for s in queue.stores.iter_mut().filter(|s| s.group < done && s.reading) {
            s.reading = false;
            self.cta.shared.end_async_read(Who { warp, lane, pc: s.pc }, s.from, s.data.len() as u64);
        }
        while !read_only
            && queue.stores.front().is_some_and(|s| s.group < done)
            && let Some(s) = queue.stores.pop_front()
        {
            self.mem.store(s.to, &s.data)?;
        }
        Ok(())
    }

    /// The end of a thread: its stores arrive.
    pub fn finish_stores(&mut self, lane: u32) -> Result<(), FaultKind> {
        if self.warp.copies.lanes.is_empty() {
            return Ok(());
        }
        while let Some(s) = self.warp.copies.lane(lane).stores.pop_front() {
            if s.reading {
                let other = crate::fault::Other { thread: Some(self.warp.index * 32 + lane), line: s.pc };
                return Err(FaultKind::InFlight { access: Access::Read, address: s.from, other });
            }
            self.mem.store(s.to, &s.data)?;
        }
        Ok(())
    }
}

fn bulk_shape(shared: u64, global: u64, bytes: u64) -> Result<(), FaultKind> {
    if bytes == 0 || !bytes.is_multiple_of(16) {
        return Err(FaultKind::Operand(format!("a bulk copy of {bytes} bytes: the size must be a multiple of 16")));
    }
    for (space, address) in [("shared", shared), ("global", global)] {
        if address % 16 != 0 {
            return Err(FaultKind::Misaligned { space, address, bytes: 16 });
        }
    }
    Ok(())
}
