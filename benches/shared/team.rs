//! Threads that start together and are timed together.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Instant;

/// Threads for measurements.
#[derive(Clone, Copy)]
pub struct Team {
    threads: usize,
    /// Whether threads are timed by the processor's time that they get.
    own_time: bool,
}

/// Seconds of the processor's time that this thread has had.
fn thread_seconds() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is written to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

impl Team {
    /// `threads` threads, made anew for each measurement: their start is not part of the time.
    pub fn new(threads: usize) -> Team {
        Team { threads, own_time: false }
    }

    /// The same team, timed by the processor's time of its slowest thread: for machines with other
    /// work, whose share of the processor does not count then, while its use of memory does.
    pub fn with_own_time(self, own_time: bool) -> Team {
        Team { own_time, ..self }
    }

    /// See [`Team::with_own_time`].
    pub fn has_own_time(&self) -> bool {
        self.own_time
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
        let slowest = Mutex::new(0f64);
        let run = |thread: usize| {
            meet(&ready);
            let (start, own) = (Instant::now(), self.own_time.then(thread_seconds));
            work(thread);
            if let Some(own) = own.map(|start| thread_seconds() - start)
                && let Ok(mut slowest) = slowest.lock()
            {
                *slowest = slowest.max(own);
            }
            meet(&done);
            let all = start.elapsed().as_secs_f64();
            if self.own_time { slowest.lock().map_or(all, |own| *own) } else { all }
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
