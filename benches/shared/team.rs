//! Threads that start together and are timed together.

use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Instant;

/// Threads for measurements.
#[derive(Clone, Copy)]
pub struct Team {
    threads: usize,
}

impl Team {
    /// `threads` threads, made anew for each measurement: their start is not part of the time.
    pub fn new(threads: usize) -> Team {
        Team { threads }
    }

    /// Threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Seconds that `work(thread)` takes on all threads at once.
    pub fn time(&self, work: &(dyn Fn(usize) + Sync)) -> f64 {
        let (ready, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let meet = |count: &AtomicUsize| {
            count.fetch_add(1, SeqCst);
            while count.load(SeqCst) < self.threads {
                std::hint::spin_loop();
            }
        };
        let run = |thread: usize| {
            meet(&ready);
            let start = Instant::now();
            work(thread);
            meet(&done);
            start.elapsed().as_secs_f64()
        };
        std::thread::scope(|s| {
            for thread in 1..self.threads {
                let run = &run;
                s.spawn(move || run(thread));
            }
            run(0)
        })
    }

    /// The part of `n` things that is `thread`'s.
    pub fn part(&self, n: usize, thread: usize) -> std::ops::Range<usize> {
        n * thread / self.threads..n * (thread + 1) / self.threads
    }
}
