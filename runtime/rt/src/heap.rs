//! The heap of an artifact: the C library's, with a list of all that is allocated, so that it can
//! be given back when the library is unloaded.
//!
//! Each block begins with the links of a doubly linked list, 16 bytes. There are 64 lists, chosen
//! by the block's address, each with a lock that is held for a few instructions, so threads hardly
//! ever meet. See `unload` for why.
//!
//! Where the C library has no more memory, blocks come from the memory calls have set aside
//! ([`crate::reserve`]). They have no links.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::hint::spin_loop;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::*};

#[cfg(feature = "heap")]
use crate::reserve::RESERVE;
use crate::reserve::Reserve;

const LISTS: usize = 64;
/// Alignment of `malloc`.
const ALIGN: usize = 16;
/// Bytes in front of the caller's block.
const HEADER: usize = size_of::<Node>();

/// Links of a block; `at` is the pointer that leads here.
#[repr(C, align(16))]
struct Node {
    next: *mut Node,
    at: *mut *mut Node,
}

/// A block for a type of larger alignment: the node lies behind padding, and `base` is the address
/// from `malloc`.
#[repr(C, align(16))]
struct Aligned {
    base: *mut c_void,
    node: Node,
}

/// A list and its lock.
#[repr(align(64))]
struct List {
    locked: AtomicBool,
    first: UnsafeCell<*mut Node>,
}

// SAFETY: `first`, and all links that can be reached from it, are accessed under the lock.
unsafe impl Sync for List {}

impl List {
    const fn new() -> List {
        List { locked: AtomicBool::new(false), first: UnsafeCell::new(ptr::null_mut()) }
    }

    fn lock(&self) {
        let mut tries = 0u32;
        while self.locked.swap(true, Acquire) {
            tries += 1;
            if tries.is_multiple_of(128) {
                // SAFETY: no preconditions. The owner may wait for this processor.
                unsafe { libc::sched_yield() };
            }
            spin_loop();
        }
    }

    fn unlock(&self) {
        self.locked.store(false, Release);
    }

    /// # Safety
    /// `node` is valid and in no list.
    unsafe fn insert(&self, node: *mut Node) {
        self.lock();
        // SAFETY: under the lock; nodes in the list are valid.
        unsafe {
            let first = self.first.get();
            node.write(Node { next: *first, at: first });
            if !(*first).is_null() {
                (**first).at = &raw mut (*node).next;
            }
            *first = node;
        }
        self.unlock();
    }

    /// # Safety
    /// `node` is in this list.
    unsafe fn remove(&self, node: *mut Node) {
        self.lock();
        // SAFETY: under the lock; nodes in the list are valid.
        unsafe {
            let Node { next, at } = node.read();
            *at = next;
            if !next.is_null() {
                (*next).at = at;
            }
        }
        self.unlock();
    }

    /// Takes the first node out.
    fn pop(&self) -> Option<*mut Node> {
        // SAFETY: reads a pointer, under no lock since nobody else is there (`Heap::release`); a
        // node in the list is valid.
        unsafe {
            let first = *self.first.get();
            if first.is_null() {
                return None;
            }
            self.remove(first);
            Some(first)
        }
    }
}

/// All blocks.
struct Heap {
    plain: [List; LISTS],
    /// Types of larger alignment than `malloc` has, which are rare.
    aligned: List,
    reserve: &'static Reserve,
}

impl Heap {
    const fn new(reserve: &'static Reserve) -> Heap {
        Heap { plain: [const { List::new() }; LISTS], aligned: List::new(), reserve }
    }

    /// A block where the C library has none; null if nothing was put by, either.
    fn last_resort(&self, layout: Layout) -> *mut u8 {
        let block = self.reserve.take(layout.size(), layout.align());
        #[cfg(feature = "heap")]
        if block.is_null() {
            // Does not return on threads that can be done without.
            crate::desk::give_up();
        }
        block
    }

    /// # Safety
    /// As [`GlobalAlloc::alloc`].
    unsafe fn plain(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; sizes of layouts are below `isize::MAX`.
        unsafe {
            if layout.align() > ALIGN {
                self.alloc_aligned(layout)
            } else {
                self.adopt(libc::malloc(layout.size() + HEADER))
            }
        }
    }

    /// # Safety
    /// As [`GlobalAlloc::alloc_zeroed`].
    unsafe fn zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above. `calloc` knows which memory is zero already.
        unsafe {
            if layout.align() <= ALIGN {
                return self.adopt(libc::calloc(1, layout.size() + HEADER));
            }
            let block = self.alloc_aligned(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    /// # Safety
    /// As [`GlobalAlloc::realloc`], of a block of the C library.
    unsafe fn resize(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise; a block moves only while it is in no list.
        unsafe {
            if layout.align() > ALIGN {
                let new = self.alloc_aligned(Layout::from_size_align_unchecked(size, layout.align()));
                if !new.is_null() {
                    ptr::copy_nonoverlapping(block, new, size.min(layout.size()));
                    self.dealloc(block, layout);
                }
                return new;
            }
            let node = block.sub(HEADER).cast::<Node>();
            self.list(node).remove(node);
            let moved = libc::realloc(node.cast(), size + HEADER);
            if moved.is_null() {
                self.list(node).insert(node);
                return ptr::null_mut();
            }
            self.adopt(moved)
        }
    }

    fn list(&self, block: *mut Node) -> &List {
        // Neighbours go to different lists: Fibonacci hashing of the block's number.
        let hash = (block as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.plain[hash as usize % LISTS]
    }

    fn lists(&self) -> impl Iterator<Item = &List> {
        self.plain.iter().chain([&self.aligned])
    }

    /// Adds a block of `malloc`; returns the caller's part.
    ///
    /// # Safety
    /// `block` is null or fresh, with room for the node.
    unsafe fn adopt(&self, block: *mut c_void) -> *mut u8 {
        let node: *mut Node = block.cast();
        if node.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.list(node).insert(node);
            node.cast::<u8>().add(HEADER)
        }
    }

    /// # Safety
    /// As [`GlobalAlloc::alloc`].
    unsafe fn alloc_aligned(&self, layout: Layout) -> *mut u8 {
        let Some(size) = layout.size().checked_add(layout.align() + size_of::<Aligned>()) else {
            return ptr::null_mut();
        };
        // SAFETY: `size` bytes hold the header, padding up to the alignment, and the block.
        unsafe {
            let base = libc::malloc(size);
            if base.is_null() {
                return ptr::null_mut();
            }
            let start = (base as usize + size_of::<Aligned>()).next_multiple_of(layout.align());
            let user = base.cast::<u8>().add(start - base as usize);
            let header = user.sub(size_of::<Aligned>()).cast::<Aligned>();
            (&raw mut (*header).base).write(base);
            self.aligned.insert(&raw mut (*header).node);
            user
        }
    }

    /// Frees everything.
    ///
    /// # Safety
    /// Nobody uses any of it any more, and nobody else is using the heap.
    unsafe fn release(&self) {
        for list in &self.plain {
            while let Some(node) = list.pop() {
                // SAFETY: a block of `malloc` begins with its node.
                unsafe { libc::free(node.cast()) };
            }
        }
        while let Some(node) = self.aligned.pop() {
            // SAFETY: nodes of this list lie in such a header.
            unsafe { libc::free((*node.byte_sub(std::mem::offset_of!(Aligned, node)).cast::<Aligned>()).base) };
        }
    }
}

// SAFETY: blocks come from `malloc`, at least as large and as aligned as asked for.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { self.plain(layout) };
        if block.is_null() { self.last_resort(layout) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; reserved memory may have been used before.
        unsafe {
            let mut block = self.zeroed(layout);
            if block.is_null() {
                block = self.last_resort(layout);
                if !block.is_null() {
                    block.write_bytes(0, layout.size());
                }
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's block has the header that `alloc` has put before it.
        unsafe {
            if self.reserve.owns(block) {
                self.reserve.give(block);
            } else if layout.align() > ALIGN {
                let header = block.sub(size_of::<Aligned>()).cast::<Aligned>();
                self.aligned.remove(&raw mut (*header).node);
                libc::free((*header).base);
            } else {
                let node = block.sub(HEADER).cast::<Node>();
                self.list(node).remove(node);
                libc::free(node.cast());
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            let as_asked = Layout::from_size_align_unchecked(size, layout.align());
            let new = match self.reserve.owns(block) {
                true => self.plain(as_asked),
                false => match self.resize(block, layout, size) {
                    moved if moved.is_null() => ptr::null_mut(),
                    moved => return moved,
                },
            };
            let new = if new.is_null() { self.last_resort(as_asked) } else { new };
            if !new.is_null() {
                ptr::copy_nonoverlapping(block, new, size.min(layout.size()));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(feature = "heap")]
#[global_allocator]
static HEAP: Heap = Heap::new(&RESERVE);

/// Gives all memory of the library back.
///
/// # Safety
/// Nobody uses any of it any more, and no thread is inside the library.
#[cfg(feature = "heap")]
pub unsafe fn release() {
    // SAFETY: the caller's promise.
    unsafe {
        HEAP.release();
        RESERVE.release();
    }
}

/// Before a `fork` waits for all locks: half-done changes of another thread would stay half done in
/// the child.
#[cfg(feature = "heap")]
pub extern "C" fn before_fork() {
    HEAP.lists().for_each(List::lock);
    RESERVE.lock();
}

/// After a `fork`, on both sides.
#[cfg(feature = "heap")]
pub extern "C" fn after_fork() {
    RESERVE.unlock();
    HEAP.lists().for_each(List::unlock);
}

#[cfg(test)]
mod tests {
    use super::*;

    static NOTHING: Reserve = Reserve::new();

    fn count(heap: &Heap) -> usize {
        let mut n = 0;
        for list in heap.lists() {
            // SAFETY: one thread.
            let mut node = unsafe { *list.first.get() };
            while !node.is_null() {
                n += 1;
                // SAFETY: as above.
                node = unsafe { (*node).next };
            }
        }
        n
    }

    /// Random blocks of all alignments keep their contents, and the lists hold exactly those that
    /// are alive.
    #[test]
    fn blocks_are_separate_and_listed() {
        let heap = Heap::new(&NOTHING);
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let mut live: Vec<(*mut u8, Layout, u8)> = vec![];
        let whole = |p: *mut u8, n: usize, tag: u8| {
            // SAFETY: `n` bytes are the block's.
            unsafe { std::slice::from_raw_parts(p, n) }.iter().all(|b| *b == tag)
        };
        for i in 0..20_000 {
            let tag = i as u8;
            match random(4) {
                0 | 1 => {
                    let layout = Layout::from_size_align(1 + random(5000), 1 << random(9)).unwrap();
                    // SAFETY: the layout is not empty; blocks are written within it.
                    unsafe {
                        let block = if random(2) == 0 { heap.alloc(layout) } else { heap.alloc_zeroed(layout) };
                        assert!(!block.is_null() && (block as usize).is_multiple_of(layout.align()));
                        block.write_bytes(tag, layout.size());
                        live.push((block, layout, tag));
                    }
                }
                2 if !live.is_empty() => {
                    let at = random(live.len());
                    let (block, layout, tag) = live[at];
                    let size = 1 + random(9000);
                    // SAFETY: a live block of this layout.
                    let moved = unsafe { heap.realloc(block, layout, size) };
                    assert!(
                        (moved as usize).is_multiple_of(layout.align()) && whole(moved, size.min(layout.size()), tag)
                    );
                    // SAFETY: `size` bytes are the block's.
                    unsafe { moved.write_bytes(tag, size) };
                    live[at] = (moved, Layout::from_size_align(size, layout.align()).unwrap(), tag);
                }
                _ if !live.is_empty() => {
                    let (block, layout, tag) = live.swap_remove(random(live.len()));
                    assert!(whole(block, layout.size(), tag));
                    // SAFETY: a live block of this layout.
                    unsafe { heap.dealloc(block, layout) };
                }
                _ => {}
            }
        }
        assert_eq!(count(&heap), live.len());
        assert!(live.iter().all(|(block, layout, tag)| whole(*block, layout.size(), *tag)));
        // SAFETY: the blocks are not used any more.
        unsafe { heap.release() };
        assert_eq!(count(&heap), 0);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let heap = Heap::new(&NOTHING);
        let huge = Layout::from_size_align(isize::MAX as usize - 4096, 64).unwrap();
        // SAFETY: layouts are not empty.
        unsafe {
            assert!(heap.alloc(huge).is_null() && heap.alloc_zeroed(huge).is_null());
            let layout = Layout::from_size_align(8, 8).unwrap();
            let block = heap.alloc(layout);
            block.write_bytes(7, 8);
            assert!(heap.realloc(block, layout, isize::MAX as usize - 4096).is_null());
            assert_eq!(block.read(), 7);
            heap.dealloc(block, layout);
        }
        assert_eq!(count(&heap), 0);
    }

    /// Where the C library refuses, blocks come from the reserve, and go back there.
    #[test]
    fn the_reserve_is_the_last_resort() {
        static PUT_BY: Reserve = Reserve::new();
        let heap = Heap::new(&PUT_BY);
        // Sizes that `malloc` refuses are not those that can be put by: the reserve is asked directly.
        assert!(PUT_BY.put_by(1 << 20));
        let layout = Layout::from_size_align(1000, 64).unwrap();
        // SAFETY: blocks are used within their sizes.
        unsafe {
            let block = heap.last_resort(layout);
            assert!(PUT_BY.owns(block) && (block as usize).is_multiple_of(64));
            block.write_bytes(7, 1000);
            // Growing moves it to where there is memory.
            let moved = heap.realloc(block, layout, 5000);
            assert!(!PUT_BY.owns(moved) && moved.add(999).read() == 7);
            heap.dealloc(moved, Layout::from_size_align(5000, 64).unwrap());
            let small = heap.last_resort(Layout::new::<u64>());
            heap.dealloc(small, Layout::new::<u64>());
            assert!(!PUT_BY.owns(small), "nothing is in use");
            PUT_BY.release();
        }
        assert_eq!(count(&heap), 0);
    }
}
