//! Who computes which blocks of a context. Nothing here touches a number of the result.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering::*};

use llmcc_abi::{ATTEND_BLOCK, ATTEND_PARTS, AttendArgs, AttendMore, AttendWith, attend_record};

/// Blocks that a call works on.
pub(crate) struct Share {
    /// Blocks that any of its tokens sees.
    pub all: Range<usize>,
    /// Blocks of its own.
    pub own: Range<usize>,
}

/// First slot that a token at `position` sees.
pub(crate) fn oldest(a: &AttendArgs, more: &AttendMore, position: usize) -> usize {
    match (a.window as usize, more.chunked) {
        (0, _) => 0,
        (window, 0) => (position + 1).saturating_sub(window),
        (chunk, _) => position / chunk * chunk,
    }
}

/// The slot after the last one that token `token` sees.
///
/// # Safety
/// As [`llmcc_abi::AttendFn`]; there is such a token.
pub(crate) unsafe fn end(a: &AttendArgs, more: &AttendMore, token: usize) -> usize {
    if !more.selected.is_null() {
        return more.selected_count as usize;
    }
    let position = unsafe { a.positions.add(token).read() as usize };
    if more.ends.is_null() {
        return more.seen(position);
    }
    let end = unsafe { more.ends.add(token).read() as usize };
    if a.window == 0 { end } else { end.min(position + a.window as usize) }
}

impl Share {
    /// Positions ascend, and so do slots: the first token sees the oldest slots, the last one the newest.
    ///
    /// # Safety
    /// As [`llmcc_abi::AttendFn`]; there is a token.
    pub unsafe fn new(a: &AttendArgs, more: &AttendMore) -> Share {
        let (first, end) = unsafe { (a.positions.read() as usize, end(a, more, a.tokens as usize - 1)) };
        let all = oldest(a, more, first) / ATTEND_BLOCK..end.div_ceil(ATTEND_BLOCK);
        Share::of_blocks(all, (a.part_from, a.part_to))
    }

    /// Parts `from..to` of blocks.
    pub fn of_blocks(all: Range<usize>, (from, to): (u64, u64)) -> Share {
        let at = |part: u64| all.start + (all.len() * part as usize).div_ceil(ATTEND_PARTS);
        Share { own: at(from)..at(to), all }
    }

    /// Whether nobody else has a part in the result.
    pub fn alone(&self) -> bool {
        self.own == self.all
    }

    /// Where the results of block `block` go, or lie, in the shared memory.
    pub fn record(&self, with: &AttendWith, block: usize) -> *mut f32 {
        let a = &with.args;
        let floats = (block - self.all.start) * (a.heads * a.tokens) as usize * attend_record(with.value_dim());
        a.shared.wrapping_add(64).cast::<f32>().wrapping_add(floats)
    }

    /// Says that the own blocks are in shared memory; whether all blocks are there now. Who is told
    /// so is the only one, sees them all, and the counter, with which the shared memory begins, is zero
    /// again.
    ///
    /// # Safety
    /// The counter is there; called once.
    pub unsafe fn arrive(&self, shared: *mut u8) -> bool {
        let done = unsafe { &*shared.cast::<AtomicU32>() };
        let own = self.own.len() as u32;
        let last = own > 0 && done.fetch_add(own, AcqRel) + own == self.all.len() as u32;
        if last {
            done.store(0, Relaxed);
        }
        last
    }
}
