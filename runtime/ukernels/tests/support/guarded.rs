//! A buffer whose end touches memory that must not be accessed.

#[cfg(unix)]
pub struct Guarded {
    map: *mut u8,
    map_len: usize,
    start: usize,
    len: usize,
}

#[cfg(unix)]
impl Guarded {
    /// A copy of `bytes` that ends where an inaccessible page begins.
    pub fn from_bytes(bytes: &[u8]) -> Guarded {
        // SAFETY: plain calls; results are checked.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let used = bytes.len().next_multiple_of(page);
            let map_len = used + page;
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
            let map = libc::mmap(std::ptr::null_mut(), map_len, protection, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            let map = map.cast::<u8>();
            assert_eq!(libc::mprotect(map.add(used).cast(), page, libc::PROT_NONE), 0);
            let start = used - bytes.len();
            // The bytes before the buffer must not matter: NaN if read as a float.
            map.write_bytes(0xff, start);
            map.add(start).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            Guarded { map, map_len, start, len: bytes.len() }
        }
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.map.wrapping_add(self.start)
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.map.wrapping_add(self.start)
    }

    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable there and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

#[cfg(unix)]
impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours.
        unsafe { libc::munmap(self.map.cast(), self.map_len) };
    }
}

/// Without memory protection: an ordinary buffer.
#[cfg(not(unix))]
pub struct Guarded(Vec<u8>);

#[cfg(not(unix))]
impl Guarded {
    pub fn from_bytes(bytes: &[u8]) -> Guarded {
        Guarded(bytes.to_vec())
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
