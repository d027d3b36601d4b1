//! Anonymous memory straight from the kernel: zeroed, page aligned, and free of cost until touched.

use std::io;
use std::ptr;

use crate::error::{Error, Result};

/// Regions of at least this many bytes ask for huge pages.
const HUGE: usize = 2 << 20;

/// An owned, private, zero-initialised mapping, readable and writable. Large ones are aligned to 2
/// MiB.
pub struct Region {
    map: *mut u8,
    map_len: usize,
    ptr: *mut u8,
    len: usize,
}

// SAFETY: a region is plain memory; who may access which part is decided by its owner.
unsafe impl Send for Region {}
// SAFETY: as above; the region itself only hands out its address.
unsafe impl Sync for Region {}

impl Region {
    /// A region of no bytes.
    pub const fn empty() -> Region {
        Region { map: ptr::null_mut(), map_len: 0, ptr: ptr::dangling_mut::<u64>().cast(), len: 0 }
    }

    /// Reserves `len` bytes for `purpose` (named in the error). Pages nobody touches use no memory.
    pub fn reserve(len: usize, purpose: &str) -> Result<Region> {
        if len == 0 {
            return Ok(Region::empty());
        }
        let huge = len >= HUGE;
        let map_len = len
            .checked_next_multiple_of(4096)
            .and_then(|n| if huge { n.checked_add(HUGE) } else { Some(n) })
            .ok_or_else(|| too_large(len, purpose))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let map = unsafe { libc::mmap(ptr::null_mut(), map_len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            let cause = io::Error::last_os_error();
            return Err(Error::system(format_args!("cannot reserve {} MiB for {purpose}", len >> 20), cause));
        }
        let map: *mut u8 = map.cast();
        let skip = if huge { map.align_offset(HUGE) } else { 0 };
        // SAFETY: `skip < HUGE`, and `map_len >= len + HUGE` when it is not 0.
        let start = unsafe { map.add(skip) };
        if huge {
            // SAFETY: a hint about our own mapping; failure (no THP) changes nothing.
            unsafe { libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE) };
        }
        Ok(Region { map, map_len, ptr: start, len })
    }

    /// First byte; aligned to 4096 or more unless the region is empty.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Usable bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.map_len > 0 {
            // SAFETY: exactly the mapping made in `reserve`.
            unsafe { libc::munmap(self.map.cast(), self.map_len) };
        }
    }
}

fn too_large(len: usize, purpose: &str) -> Error {
    Error::system(format_args!("cannot reserve {len} bytes for {purpose}"), io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_zero_aligned_and_sparse() {
        let small = Region::reserve(100, "test").unwrap();
        assert_eq!(small.ptr() as usize % 4096, 0);
        // 1 TiB reserves fine because only touched pages count.
        let large = Region::reserve(1 << 40, "test").unwrap();
        assert_eq!(large.ptr() as usize % HUGE, 0);
        // SAFETY: inside the region.
        unsafe {
            assert_eq!(large.ptr().add((1 << 40) - 1).read(), 0);
            large.ptr().write(7);
        }
        let error = Region::reserve(usize::MAX, "the test").err().unwrap();
        assert!(error.message.contains("the test"), "{error}");
        assert!(Region::empty().is_empty());
    }
}
