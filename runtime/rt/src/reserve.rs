//! Memory that is put by for calls, so that one for which the system has no more ends with an error
//! and not with the process.
//!
//! Rust ends the process where an allocation fails that cannot say so, and most cannot. So each
//! call of the API puts memory by before it changes anything: some for its small matters
//! ([`Call::begin`]), more where it knows that it takes more ([`need`]). It is mapped and not
//! touched, which costs address space only. While the C library has memory, none of it is used;
//! where that fails, the heap takes blocks from here. The reserve is at least the sum requested by
//! all calls under way, less the amount they have taken; the next call fails with a message when
//! the rest does not suffice and the system gives no more.
//!
//! (Memory that the system promises and does not have, so that it ends processes, is not seen by
//! any of this.)

use crate::error::{Error, Result, Status};
#[cfg(any(feature = "heap", test))]
pub use pieces::Reserve;

/// Bytes for the small matters of a call: messages, short lists, the text of a token.
pub const BASE: usize = 1 << 20;

/// Puts `bytes` more by, until the call of this thread ends.
///
/// # Errors
/// The system has no more.
pub fn need(bytes: usize) -> Result<()> {
    #[cfg(feature = "heap")]
    return calls::need(bytes);
    #[cfg(not(feature = "heap"))]
    {
        let _ = bytes;
        Ok(())
    }
}

/// No memory for so many bytes.
pub fn exhausted(bytes: usize) -> Error {
    let message =
        format!("out of memory: the system refuses {bytes} bytes that the call may need; free memory and call again");
    Error::new(Status::System, message)
}

/// As [`need`], until the result is dropped: for steps repeated within a call that each take as
/// much.
///
/// # Errors
/// The system has no more.
pub fn need_for_now(bytes: usize) -> Result<Call> {
    let call = Call::begin().ok_or_else(|| exhausted(BASE))?;
    need(bytes)?;
    Ok(call)
}

/// A call under way, or a part of one, with [`BASE`] bytes and its own needs set aside.
pub struct Call {
    #[cfg(feature = "heap")]
    before: usize,
}

impl Call {
    /// Begins a call; `None` if the system has no memory for it.
    pub fn begin() -> Option<Call> {
        #[cfg(feature = "heap")]
        return calls::begin().map(|before| Call { before });
        #[cfg(not(feature = "heap"))]
        Some(Call {})
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        #[cfg(feature = "heap")]
        calls::end(self.before);
    }
}

/// The memory that calls have set aside.
#[cfg(feature = "heap")]
pub static RESERVE: Reserve = Reserve::new();

#[cfg(feature = "heap")]
mod calls {
    use super::{BASE, RESERVE, exhausted};
    use crate::error::Result;
    use std::cell::Cell;

    thread_local! {
        // Bytes that the calls of this thread have put by. Without a destructor: see `crate::unload`.
        static MINE: Cell<usize> = const { Cell::new(0) };
    }

    pub fn need(bytes: usize) -> Result<()> {
        if !RESERVE.put_by(bytes) {
            return Err(exhausted(bytes));
        }
        MINE.set(MINE.get() + bytes);
        Ok(())
    }

    pub fn begin() -> Option<usize> {
        let before = MINE.get();
        RESERVE.put_by(BASE).then(|| {
            MINE.set(before + BASE);
            before
        })
    }

    pub fn end(before: usize) {
        RESERVE.let_go(MINE.get() - before);
        MINE.set(before);
    }
}

#[cfg(any(feature = "heap", test))]
mod pieces {
    use std::cell::UnsafeCell;
    use std::hint::spin_loop;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

    /// Most mappings.
    const PIECES: usize = 64;
    /// Least size of a mapping; sizes are multiples of it.
    const LEAST: usize = 1 << 20;
    /// Bytes that stay mapped while no call needs them.
    const KEPT: usize = 16 << 20;
    /// Sizes of blocks are multiples of this.
    const UNIT: usize = 16;
    /// Bytes of a block beside its owner's: its head, and the pointer to the head.
    const AROUND: usize = 2 * UNIT;

    /// Head of a block; the next one follows it.
    #[repr(C, align(16))]
    struct Block {
        /// Bytes, with this head.
        len: usize,
        used: bool,
    }

    /// The pointer in front of an owner's bytes.
    #[repr(C, align(16))]
    struct Back(*mut Block);

    /// A mapping, cut into blocks from its start to its end.
    #[derive(Clone, Copy)]
    struct Piece {
        start: *mut u8,
        len: usize,
        /// Bytes of blocks that are in use; with none, its blocks may not have been made.
        used: usize,
    }

    const NONE: Piece = Piece { start: ptr::null_mut(), len: 0, used: 0 };

    /// The memory put by.
    pub struct Reserve {
        locked: AtomicBool,
        pieces: UnsafeCell<[Piece; PIECES]>,
        /// Bytes that calls under way have asked for.
        wanted: UnsafeCell<usize>,
        /// Blocks in use.
        blocks: AtomicUsize,
    }

    // SAFETY: the cells are accessed under the lock.
    unsafe impl Sync for Reserve {}

    impl Reserve {
        /// Nothing yet.
        #[allow(clippy::new_without_default)]
        pub const fn new() -> Reserve {
            Reserve {
                locked: AtomicBool::new(false),
                pieces: UnsafeCell::new([NONE; PIECES]),
                wanted: UnsafeCell::new(0),
                blocks: AtomicUsize::new(0),
            }
        }

        pub(crate) fn lock(&self) {
            while self.locked.swap(true, Acquire) {
                // SAFETY: no preconditions. The owner may wait for this processor.
                unsafe { libc::sched_yield() };
                spin_loop();
            }
        }

        pub(crate) fn unlock(&self) {
            self.locked.store(false, Release);
        }

        fn with<T>(&self, work: impl FnOnce(&mut [Piece; PIECES], &mut usize) -> T) -> T {
            self.lock();
            // SAFETY: under the lock, and `work` does not come back here.
            let done = unsafe { work(&mut *self.pieces.get(), &mut *self.wanted.get()) };
            self.unlock();
            done
        }

        /// Makes sure of `bytes` more, in one block if need be. Returns whether the system had them.
        pub fn put_by(&self, bytes: usize) -> bool {
            self.with(|pieces, wanted| {
                let free: usize = pieces.iter().map(|p| p.len - p.used).sum();
                let Some(all) = wanted.checked_add(bytes) else { return false };
                // Many small blocks take more than their bytes.
                let Some(whole) = bytes.checked_add(bytes / 4 + AROUND) else { return false };
                let enough = free >= all.saturating_add(all / 4)
                    && pieces.iter().any(|p| p.len - p.used >= whole && p.used == 0);
                if !enough && !grow(pieces, whole) {
                    return false;
                }
                *wanted = all;
                true
            })
        }

        /// A call has ended that had put so much by.
        pub fn let_go(&self, bytes: usize) {
            self.with(|pieces, wanted| {
                *wanted -= bytes;
                let mut free: usize = pieces.iter().map(|p| p.len - p.used).sum();
                let most = KEPT.max(*wanted + *wanted / 4);
                // The largest first: unusual calls asked for them.
                while let Some(p) = pieces.iter_mut().filter(|p| p.len > 0 && p.used == 0).max_by_key(|p| p.len) {
                    if free <= most || free - p.len < *wanted + *wanted / 4 {
                        break;
                    }
                    free -= p.len;
                    p.unmap();
                }
            })
        }

        /// A block of `size` bytes; null if there is none.
        pub fn take(&self, size: usize, align: usize) -> *mut u8 {
            let Some(len) = size.checked_add(AROUND + align.max(UNIT)).and_then(|n| n.checked_next_multiple_of(UNIT))
            else {
                return ptr::null_mut();
            };
            self.with(|pieces, _| {
                for piece in pieces.iter_mut().filter(|p| p.len - p.used >= len) {
                    // SAFETY: under the lock; the piece is mapped.
                    let block = unsafe { piece.take(len) };
                    if block.is_null() {
                        continue;
                    }
                    self.blocks.fetch_add(1, Relaxed);
                    let start = (block as usize + AROUND).next_multiple_of(align.max(UNIT));
                    // SAFETY: the block has room for the padding.
                    unsafe {
                        let user = block.cast::<u8>().add(start - block as usize);
                        user.cast::<Back>().sub(1).write(Back(block));
                        return user;
                    }
                }
                ptr::null_mut()
            })
        }

        /// Whether a block is from here.
        pub fn owns(&self, user: *mut u8) -> bool {
            // Whoever has one has seen it counted.
            self.blocks.load(Relaxed) > 0 && self.with(|pieces, _| pieces.iter().any(|p| p.has(user)))
        }

        /// Gives a block back.
        ///
        /// # Safety
        /// It is from here, and is not used any more.
        pub unsafe fn give(&self, user: *mut u8) {
            self.with(|pieces, _| {
                // SAFETY: the caller's promise.
                unsafe {
                    let block = user.cast::<Back>().sub(1).read().0;
                    (*block).used = false;
                    let len = (*block).len;
                    if let Some(p) = pieces.iter_mut().find(|p| p.has(user)) {
                        p.used -= len;
                    }
                }
                self.blocks.fetch_sub(1, Relaxed);
            })
        }

        /// Unmaps everything.
        ///
        /// # Safety
        /// No block is used any more.
        pub unsafe fn release(&self) {
            self.with(|pieces, _| pieces.iter_mut().filter(|p| p.len > 0).for_each(Piece::unmap));
        }

        /// Bytes mapped.
        #[cfg(test)]
        pub fn mapped(&self) -> usize {
            self.with(|pieces, _| pieces.iter().map(|p| p.len).sum())
        }
    }

    /// Maps a piece of `bytes` or more; false if the system refuses. From half of the pieces on
    /// each is as large as all before it, so that there are always enough of them.
    fn grow(pieces: &mut [Piece; PIECES], bytes: usize) -> bool {
        let (count, mapped) = (pieces.iter().filter(|p| p.len > 0).count(), pieces.iter().map(|p| p.len).sum());
        let Some(free) = pieces.iter_mut().find(|p| p.len == 0) else { return false };
        (count >= PIECES / 2 && free.map(bytes.max(mapped))) || free.map(bytes)
    }

    impl Piece {
        fn has(&self, user: *mut u8) -> bool {
            (self.start as usize..self.start as usize + self.len).contains(&(user as usize))
        }

        /// Maps `bytes` or more; false if the system refuses.
        fn map(&mut self, bytes: usize) -> bool {
            let Some(len) = bytes.checked_next_multiple_of(LEAST) else { return false };
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a fresh mapping at an address of the kernel's choice.
            let map = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
            if map == libc::MAP_FAILED {
                return false;
            }
            *self = Piece { start: map.cast(), len, used: 0 };
            true
        }

        fn unmap(&mut self) {
            // SAFETY: exactly the range that `map` has mapped.
            unsafe { libc::munmap(self.start.cast(), self.len) };
            *self = NONE;
        }

        /// The first free block of `len` bytes; null if there is none.
        ///
        /// # Safety
        /// Mapped, and under the lock.
        unsafe fn take(&mut self, len: usize) -> *mut Block {
            // SAFETY: blocks follow each other up to the end of the mapping, `start` is aligned to pages.
            unsafe {
                let first = self.start.cast::<Block>();
                if self.used == 0 {
                    first.write(Block { len: self.len, used: false });
                }
                let end = self.start.add(self.len);
                let mut at = first;
                while at.cast::<u8>() < end {
                    let mut next = at.byte_add((*at).len);
                    if !(*at).used {
                        // Neighbours that are free are one.
                        while next.cast::<u8>() < end && !(*next).used {
                            (*at).len += (*next).len;
                            next = at.byte_add((*at).len);
                        }
                        if (*at).len >= len {
                            let rest = (*at).len - len;
                            if rest >= 4 * UNIT {
                                (*at).len = len;
                                at.byte_add(len).write(Block { len: rest, used: false });
                            }
                            (*at).used = true;
                            self.used += (*at).len;
                            return at;
                        }
                    }
                    at = next;
                }
                ptr::null_mut()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random blocks keep their contents and alignment, and all memory comes back.
    #[test]
    fn blocks_are_separate_and_come_back() {
        let reserve = Reserve::new();
        assert!(reserve.take(1, 1).is_null() && !reserve.owns((&raw const reserve).cast_mut().cast()));
        assert!(reserve.put_by(3 << 20) && reserve.put_by(1 << 20));
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let mut live: Vec<(*mut u8, usize, u8)> = vec![];
        // SAFETY: blocks are written and read within their sizes, and given back once.
        unsafe {
            for i in 0..20_000 {
                if random(2) == 0 || live.is_empty() {
                    let (size, align) = (random(9000), 1 << random(9));
                    let block = reserve.take(size, align);
                    if block.is_null() {
                        continue;
                    }
                    assert!((block as usize).is_multiple_of(align) && reserve.owns(block));
                    block.write_bytes(i as u8, size);
                    live.push((block, size, i as u8));
                } else {
                    let (block, size, tag) = live.swap_remove(random(live.len()));
                    assert!(std::slice::from_raw_parts(block, size).iter().all(|b| *b == tag));
                    reserve.give(block);
                }
            }
            assert!(live.len() > 50);
            live.into_iter().for_each(|(block, ..)| reserve.give(block));
            // Free neighbours merge into one block.
            let whole = reserve.take(3 << 20, 16);
            assert!(!whole.is_null());
            reserve.give(whole);
            reserve.release();
        }
    }

    /// A step of many sequences chooses each one's token from a large vocabulary.
    #[test]
    fn a_call_may_need_memory_many_times() {
        let reserve = Reserve::new();
        for i in 0..512 {
            assert!(reserve.put_by(64 * 128_256), "{i}");
        }
        reserve.let_go(512 * 64 * 128_256);
        assert!(reserve.mapped() <= 20 << 20, "{}", reserve.mapped());
        // SAFETY: no block was taken.
        unsafe { reserve.release() };
    }

    #[test]
    fn what_is_put_by_is_there_and_goes_with_its_call() {
        let reserve = Reserve::new();
        assert!(!reserve.put_by(usize::MAX) && !reserve.put_by(1 << 60), "more than there is");
        assert!(reserve.put_by(1 << 20) && reserve.put_by(100 << 20));
        assert!(reserve.mapped() >= 101 << 20);
        let large = reserve.take(100 << 20, 16);
        assert!(!large.is_null());
        // Memory reserved for a call stays mapped after it.
        reserve.let_go(100 << 20);
        // SAFETY: within the block, which is given back once.
        unsafe {
            large.add((100 << 20) - 1).write(7);
            reserve.give(large);
        }
        reserve.let_go(1 << 20);
        assert!(reserve.mapped() <= 17 << 20, "{}", reserve.mapped());
        // SAFETY: no block is left.
        unsafe { reserve.release() };
        assert_eq!(reserve.mapped(), 0);
    }
}
