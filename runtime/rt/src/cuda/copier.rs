//! Threads that copy within the host's memory.
//!
//! One thread copies 4 to 10 GB a second, less where pages are touched for the first time; a GPU's
//! bus takes 50.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::cores;
use crate::threads::Pool;

/// More threads than these copy no faster.
const MOST: usize = 8;
/// Fewer parts are copied sooner than threads wake.
const FEW: usize = 4;

/// Several threads, which are started when they are needed for the first time.
pub struct Copier {
    threads: usize,
    pool: Option<Pool>,
}

impl Copier {
    /// Up to `threads` threads (0: as many as there are processors), the caller's among them.
    pub fn new(threads: usize) -> Copier {
        let threads = if threads == 0 { cores::available() } else { threads };
        Copier { threads: threads.clamp(1, MOST), pool: None }
    }

    /// Calls `part` with each number below `parts`, on several threads and in any order, and
    /// returns when all calls have. `beside` runs once, on the calling thread, before that takes
    /// parts as well.
    pub fn run(&mut self, parts: usize, beside: impl FnOnce() + Send, part: &(dyn Fn(usize) + Sync)) {
        if self.pool.is_none() && self.threads > 1 && parts >= FEW {
            // Without threads the caller does it all.
            self.pool = Pool::new(self.threads, false).ok();
        }
        let Some(pool) = self.pool.as_mut().filter(|_| parts >= FEW) else {
            beside();
            return (0..parts).for_each(part);
        };
        let (beside, next) = (Mutex::new(Some(beside)), AtomicUsize::new(0));
        pool.run(&|thread, _| {
            if thread == 0
                && let Some(beside) = beside.lock().ok().and_then(|mut b| b.take())
            {
                beside();
            }
            loop {
                let i = next.fetch_add(1, Relaxed);
                if i >= parts {
                    return;
                }
                part(i);
            }
        });
    }

    /// Ends the threads until they are needed again.
    pub fn rest(&mut self) {
        self.pool = None;
    }
}

/// Where several threads write, each its own part.
pub struct Disjoint<T>(*mut T);

// SAFETY: a place; who writes where is the business of `Disjoint::place`'s callers.
unsafe impl<T: Send> Sync for Disjoint<T> {}

impl<T> Disjoint<T> {
    /// Shares the memory at `start`.
    pub fn new(start: *mut T) -> Disjoint<T> {
        Disjoint(start)
    }

    /// The place of element `i`.
    pub fn place(&self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_done_once_and_what_runs_beside_too() {
        for threads in [1, 3] {
            let mut copier = Copier::new(threads);
            for parts in [0, 1, FEW - 1, FEW, 1000] {
                let done: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                let (caller, mut beside) = (std::thread::current().id(), None);
                copier.run(parts, || beside = Some(std::thread::current().id()), &|i| {
                    done[i].fetch_add(1, Relaxed);
                });
                assert_eq!(beside, Some(caller));
                assert!(done.iter().all(|d| d.load(Relaxed) == 1), "{threads} threads, {parts} parts");
            }
            assert_eq!(copier.pool.is_some(), threads > 1);
            copier.rest();
            assert!(copier.pool.is_none());
        }
    }
}
