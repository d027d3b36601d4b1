//! How fast this machine reads memory: the bound of decoding, measured when it is needed because it
//! drifts.
//!
//! `llmcc bench` and the benchmarks of kernels (`benches`) both include this file, so that they
//! mean the same by it.

use std::hint::black_box;
use std::ptr;
use std::sync::{Barrier, OnceLock};
use std::time::Instant;

const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// Anonymous memory, aligned to 2 MiB.
pub struct Memory {
    map: *mut libc::c_void,
    map_len: usize,
    start: *mut u8,
    len: usize,
}

// SAFETY: plain memory; who writes to it from several threads keeps to disjoint parts.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    /// `len` bytes in huge pages where the system has some, or expressly not, every page of them
    /// touched. `None`: there is not as much.
    pub fn new(len: usize, huge: bool) -> Option<Memory> {
        let map_len = len + HUGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let map = unsafe { libc::mmap(ptr::null_mut(), map_len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            return None;
        }
        let start = map.cast::<u8>().wrapping_add(map.cast::<u8>().align_offset(HUGE));
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: our own mapping; a hint.
        unsafe { libc::madvise(start.cast(), len, advice) };
        for page in (0..len).step_by(PAGE) {
            // SAFETY: within the mapping.
            unsafe { start.add(page).write(1) };
        }
        Some(Memory { map, map_len, start, len })
    }
}

#[allow(dead_code, reason = "benchmarks of kernels fill the memory, llmcc bench only reads it")]
impl Memory {
    /// First byte.
    pub fn ptr(&self) -> *mut u8 {
        self.start
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is ours, and initialised by the system.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// All of it, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made above.
        unsafe { libc::munmap(self.map, self.map_len) };
    }
}

/// Bytes per second of reading `memory` once with `threads` threads, each its own part from start
/// to end: the fastest of plain reading and of three distances of prefetching. The memory should be
/// larger than any cache.
pub fn bandwidth(memory: &Memory, threads: usize) -> f64 {
    let fastest = [0, 1024, 4096, 6144]
        .into_iter()
        .map(|distance| pass(memory, threads.max(1), distance))
        .fold(f64::INFINITY, f64::min);
    memory.len as f64 / fastest
}

/// Seconds of one pass, from the moment all threads are there until the last is done.
fn pass(memory: &Memory, threads: usize, distance: usize) -> f64 {
    let pages = memory.len / PAGE;
    // As many threads as could be started.
    let all = OnceLock::new();
    let work = |thread: usize| {
        let (meet, threads): &(Barrier, usize) = all.wait();
        let part = pages * thread / threads..pages * (thread + 1) / threads;
        meet.wait();
        let start = Instant::now();
        // SAFETY: the part lies in the mapping.
        unsafe { read(memory.start.add(part.start * PAGE), part.len() * PAGE, distance) };
        meet.wait();
        start.elapsed().as_secs_f64()
    };
    std::thread::scope(|s| {
        let start = |thread: usize| {
            let work = &work;
            std::thread::Builder::new().spawn_scoped(s, move || work(thread)).ok()
        };
        let started = (1..threads).map_while(start).count() + 1;
        all.get_or_init(|| (Barrier::new(started), started));
        work(0)
    })
}

/// Reads `len` bytes, a multiple of 256.
///
/// # Safety
/// They can be read.
unsafe fn read(p: *const u8, len: usize, distance: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: as for this function; the processor has the instructions.
        return unsafe { read_avx2(p, len, distance) };
    }
    let _ = distance;
    // SAFETY: as for this function.
    let words = unsafe { std::slice::from_raw_parts(p.cast::<u64>(), len / 8) };
    black_box(words.iter().fold(0u64, |a, b| a.wrapping_add(*b)));
}

/// See [`read`].
///
/// # Safety
/// As for [`read`]; the processor has the feature.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn read_avx2(p: *const u8, len: usize, distance: usize) {
    use core::arch::x86_64::*;
    let mut sums = [_mm256_setzero_si256(); 8];
    for at in (0..len).step_by(256) {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: within the bytes; a prefetch may point anywhere.
            unsafe {
                let p = p.add(at + i * 32);
                if distance > 0 && i % 2 == 0 {
                    _mm_prefetch::<_MM_HINT_T1>(p.wrapping_add(distance).cast());
                }
                *sum = _mm256_add_epi64(*sum, _mm256_loadu_si256(p.cast()));
            }
        }
    }
    black_box(sums);
}
