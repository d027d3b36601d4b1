//! Memory with pages of a chosen size, filled with random bytes.

use std::ptr;

const HUGE: usize = 2 << 20;

/// An anonymous mapping, aligned to 2 MiB.
pub struct Memory {
    map: *mut libc::c_void,
    map_len: usize,
    start: *mut u8,
}

// SAFETY: plain memory; who writes to it from several threads keeps to disjoint parts.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    /// `len` bytes of noise.
    pub fn new(len: usize, huge: bool) -> Memory {
        let map_len = len + HUGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let map = unsafe { libc::mmap(ptr::null_mut(), map_len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert!(map != libc::MAP_FAILED, "no memory for {len} bytes");
        let start = map.cast::<u8>().wrapping_add(map.cast::<u8>().align_offset(HUGE));
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: our own mapping.
        unsafe { libc::madvise(start.cast(), len, advice) };
        let memory = Memory { map, map_len, start };
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        for word in 0..len / 8 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            // Halves and floats of moderate size: no bit of an exponent's top is set, so that nothing becomes infinite or subnormal for long.
            // SAFETY: within the mapping.
            unsafe { start.cast::<u64>().add(word).write(x & 0x3f7f_3f7f_3f7f_3f7f) };
        }
        memory
    }

    /// First byte.
    pub fn ptr(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made above.
        unsafe { libc::munmap(self.map, self.map_len) };
    }
}
