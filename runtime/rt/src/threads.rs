//! A pool of threads that run the same function side by side (SPMD) and meet at barriers.
//!
//! A step of a small model takes tens of microseconds and has a barrier after each kernel, so
//! waiting spins first. Who waits too long sleeps on a futex: between steps the workers cost
//! nothing, and more threads than cores make progress.
//!
//! How long is too long depends on the machine: where other programs take its processors, a thread
//! waits for one that does not run, and spinning keeps that one from running. So each event learns
//! from waits that ended asleep (`Event::learn`).

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};
use std::{mem, ptr};

use crate::cores::{self, Pinned};
use crate::error::{Error, Result};
use crate::spawn::Thread;

/// Most threads a pool may have.
pub const MAX_THREADS: usize = 1024;
/// Stack of a worker.
const STACK: usize = 2 << 20;
/// Most spins before sleeping: some 100 microseconds.
const SPIN: u32 = 4000;
/// Spins before sleeping with more threads than processors, and where all waits are long.
const SPIN_BRIEFLY: u32 = 20;
/// A sleep shorter than this would have been spared by [`SPIN`]: most of it is the time to wake.
const SHORT: Duration = Duration::from_micros(100);
/// A sleep longer than this is for a thread whose processor was taken away, or for a caller who does something else;
/// shares of a job that are not quite equal end sooner.
const LONG: Duration = Duration::from_millis(1);

/// A 32-bit event counter one can wait on: spin first, then sleep.
#[repr(align(128))]
struct Event {
    value: AtomicU32,
    sleepers: AtomicU32,
    /// Spins before the next sleep, and most of them.
    spin: AtomicU32,
    most: u32,
}

impl Event {
    /// With `most` spins before a sleep. It begins with few: a model may be opened for one step.
    const fn new(most: u32) -> Event {
        let first = if most > 8 * SPIN_BRIEFLY { most / 8 } else { most };
        Event { value: AtomicU32::new(0), sleepers: AtomicU32::new(0), spin: AtomicU32::new(first), most }
    }

    /// Increments the counter and wakes whoever sleeps. All of the caller's writes happen before
    /// the waiters return.
    fn advance(&self) {
        self.value.fetch_add(1, SeqCst);
        // Dekker: a sleeper counts itself before the kernel compares `value`, so either we see it
        // or it sees the new value.
        if self.sleepers.load(SeqCst) > 0 {
            futex(&self.value, libc::FUTEX_WAKE, i32::MAX as u32);
        }
    }

    /// Waits until the counter differs from `old`.
    fn wait_past(&self, old: u32) {
        let spin = self.spin.load(Relaxed);
        for _ in 0..spin {
            if self.value.load(Acquire) != old {
                return;
            }
            spin_loop();
        }
        let began = Instant::now();
        self.sleepers.fetch_add(1, SeqCst);
        while self.value.load(SeqCst) == old {
            futex(&self.value, libc::FUTEX_WAIT, old);
        }
        self.sleepers.fetch_sub(1, SeqCst);
        self.learn(spin, began.elapsed());
    }

    /// Spins twice as long after a short sleep, and an eighth less after a long one: a processor that is taken away now
    /// and then makes few waits long, another program that stays makes many. (Of two threads that learn at once, one
    /// counts.)
    fn learn(&self, spin: u32, slept: Duration) {
        let next = match slept {
            slept if slept < SHORT => spin.saturating_mul(2),
            slept if slept < LONG => spin,
            _ => spin - spin / 8,
        };
        self.spin.store(next.clamp(SPIN_BRIEFLY.min(self.most), self.most), Relaxed);
    }
}

fn futex(word: &AtomicU32, op: i32, value: u32) {
    // SAFETY: `word` is a live aligned 32-bit word; spurious returns are handled by the caller's
    // loop.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            op | libc::FUTEX_PRIVATE_FLAG,
            value,
            ptr::null::<libc::timespec>(),
        )
    };
}

/// A barrier for a fixed number of threads. The last to arrive flips the phase, on which the others
/// wait.
pub struct Barrier {
    phase: Event,
    arrived: Padded,
    /// Set before the first job, when it is known how many there are.
    threads: AtomicU32,
}

#[repr(align(128))]
struct Padded(AtomicU32);

impl Barrier {
    /// A barrier for one thread, which never waits.
    pub fn alone() -> Barrier {
        Barrier::new(1, 0)
    }

    fn new(threads: usize, spin: u32) -> Barrier {
        let threads = AtomicU32::new(threads as u32);
        Barrier { phase: Event::new(spin), arrived: Padded(AtomicU32::new(0)), threads }
    }

    /// Returns when all threads of the pool have called it. Their earlier writes are visible
    /// afterwards.
    pub fn wait(&self) {
        let threads = self.threads.load(Relaxed);
        if threads == 1 {
            return;
        }
        // Read before arriving: the phase cannot move without us.
        let phase = self.phase.value.load(Relaxed);
        if self.arrived.0.fetch_add(1, AcqRel) + 1 == threads {
            self.arrived.0.store(0, Relaxed);
            self.phase.advance();
        } else {
            self.phase.wait_past(phase);
        }
    }
}

/// Erased reference to the function of the current job.
type Job = *const (dyn Fn(usize, &Barrier) + Sync);

struct Shared {
    start: Event,
    barrier: Barrier,
    quit: AtomicBool,
    /// Written by the caller before `start` advances, read by workers after; alive until the job's
    /// last barrier.
    job: UnsafeCell<Option<Job>>,
}

// SAFETY: `job` is handed over through `start` and the barrier, see there.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` refers to a `Sync` function.
unsafe impl Send for Shared {}

/// `threads - 1` workers; the caller of [`Pool::run`] is the last thread.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<Thread>,
    process: u32,
    /// Where the caller stays while it computes.
    home: Option<usize>,
}

impl Pool {
    /// A pool of `threads` threads in all, or of as many as the system gives: the caller's alone, if
    /// need be. With `pin` each stays on a processor of its own (see
    /// [`cores::in_order`]; further threads share them), the caller only while it runs a job.
    pub fn new(threads: usize, pin: bool) -> Result<Pool> {
        if threads == 0 || threads > MAX_THREADS {
            return Err(Error::invalid(format!("threads is {threads}; use 1 to {MAX_THREADS}")));
        }
        // With more threads than processors spinning steals the time of those one waits for.
        let spin = if threads <= cores::available() { SPIN } else { SPIN_BRIEFLY };
        let shared = Arc::new(Shared {
            start: Event::new(spin),
            barrier: Barrier::new(threads, spin),
            quit: AtomicBool::new(false),
            job: UnsafeCell::new(None),
        });
        let homes = if pin { cores::in_order() } else { vec![] };
        let home = |index: usize| homes.get(index % homes.len().max(1)).copied();
        let mut pool =
            Pool { shared, workers: Vec::with_capacity(threads - 1), process: std::process::id(), home: home(0) };
        for index in 1..threads {
            let (shared, home) = (pool.shared.clone(), home(index));
            let spawned = Thread::spawn(&format!("llmcc-{index}"), STACK, move || {
                let _pinned = home.map(Pinned::to);
                worker(&shared, index);
            });
            match spawned {
                Ok(handle) => pool.workers.push(handle),
                // A limit of processes, say, or of address space for stacks.
                Err(_) => break,
            }
        }
        // Workers read it after the first job has begun.
        pool.shared.barrier.threads.store(pool.workers.len() as u32 + 1, SeqCst);
        Ok(pool)
    }

    /// Threads, the caller included.
    pub fn threads(&self) -> usize {
        self.shared.barrier.threads.load(Relaxed) as usize
    }

    /// Runs `job(thread, barrier)` on every thread, `thread` counting from 0 (the caller), and
    /// returns when all have finished. Every thread must pass the barrier equally often. Waits
    /// forever where [`Pool::check_process`] fails.
    pub fn run(&mut self, job: &(dyn Fn(usize, &Barrier) + Sync)) {
        let shared = &*self.shared;
        let _pinned = self.home.map(Pinned::to);
        if self.workers.is_empty() {
            return job(0, &shared.barrier);
        }
        // SAFETY: the workers are done with the previous job (its last barrier), and see this write
        // through `start`. The erased lifetime ends before this function returns, at the barrier
        // below.
        unsafe { *shared.job.get() = Some(mem::transmute::<&(dyn Fn(usize, &Barrier) + Sync), Job>(job)) };
        shared.start.advance();
        job(0, &shared.barrier);
        shared.barrier.wait();
    }

    /// Fails in a fork of the process that made the pool, which has none of its threads.
    pub fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(Error::invalid("the process was forked after llmcc_open; open the model in the child instead"))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A fork has no workers to join.
            return;
        }
        self.shared.quit.store(true, Release);
        self.shared.start.advance();
        for worker in self.workers.drain(..) {
            worker.join();
        }
    }
}

fn worker(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        shared.start.wait_past(seen);
        seen = seen.wrapping_add(1);
        if shared.quit.load(Acquire) {
            return;
        }
        // SAFETY: written before `start` advanced; the function lives until the barrier below, see
        // `Pool::run`.
        if let Some(job) = unsafe { *shared.job.get() } {
            // SAFETY: as above; it is `Sync`, so all threads may call it.
            unsafe { (*job)(index, &shared.barrier) };
        }
        shared.barrier.wait();
    }
}

/// Threads to use when nobody says: one per physical core this process may use. Hyper-threads share
/// the units the kernels keep busy.
pub fn default_threads() -> usize {
    cores::available().min(cores::physical().unwrap_or(usize::MAX)).clamp(1, MAX_THREADS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Each round, every thread adds up the numbers all threads wrote in the round before.
    fn rounds(threads: usize, jobs: usize, rounds: u64) {
        let mut pool = Pool::new(threads, threads.is_multiple_of(2)).unwrap();
        let cells: Vec<AtomicU64> = (0..2 * threads).map(|_| AtomicU64::new(0)).collect();
        for _ in 0..jobs {
            cells.iter().for_each(|c| c.store(1, Relaxed));
            pool.run(&|thread, barrier| {
                for round in 0..rounds as usize {
                    let (from, to) = if round % 2 == 0 { (0, threads) } else { (threads, 0) };
                    let sum: u64 = cells[from..from + threads].iter().map(|c| c.load(Relaxed)).sum();
                    cells[to + thread].store(sum % 1_000_003, Relaxed);
                    barrier.wait();
                }
            });
            let expected = (0..rounds).fold(1u64, |x, _| x * threads as u64 % 1_000_003);
            let last = if rounds.is_multiple_of(2) { 0 } else { threads };
            assert!(cells[last..last + threads].iter().all(|c| c.load(Relaxed) == expected));
        }
    }

    #[test]
    fn threads_agree_on_every_round() {
        for threads in [1, 2, 3] {
            rounds(threads, 50, 40);
        }
    }

    #[test]
    fn waits_spin_as_long_as_that_spares_sleeps() {
        let event = Event::new(SPIN);
        let sleeps = |count, slept| (0..count).for_each(|_| event.learn(event.spin.load(Relaxed), slept));
        sleeps(3, Duration::from_micros(30));
        assert_eq!(event.spin.load(Relaxed), SPIN, "a few short sleeps");
        sleeps(30, Duration::from_micros(300));
        assert_eq!(event.spin.load(Relaxed), SPIN, "shares that are not quite equal");
        sleeps(1, Duration::from_millis(4));
        assert!(event.spin.load(Relaxed) > SPIN / 2, "one long sleep");
        sleeps(60, Duration::from_millis(4));
        assert_eq!(event.spin.load(Relaxed), SPIN_BRIEFLY);
        let briefly = Event::new(SPIN_BRIEFLY);
        briefly.learn(SPIN_BRIEFLY, Duration::from_micros(30));
        assert_eq!(briefly.spin.load(Relaxed), SPIN_BRIEFLY, "more threads than processors");
    }

    #[test]
    fn more_threads_than_cores() {
        rounds(2 * cores::available() + 7, 20, 20);
    }

    #[test]
    fn idle_workers_sleep_and_wake() {
        let mut pool = Pool::new(3, false).unwrap();
        for pause in [0, 1, 20] {
            let hits = AtomicU64::new(0);
            pool.run(&|thread, _| {
                hits.fetch_add(1 << (8 * thread), Relaxed);
            });
            assert_eq!(hits.load(Relaxed), 0x01_01_01);
            std::thread::sleep(Duration::from_millis(pause));
        }
    }

    #[test]
    fn pools_end_and_bad_sizes_are_refused() {
        for _ in 0..20 {
            drop(Pool::new(4, true).unwrap());
        }
        assert!(Pool::new(0, false).is_err());
        assert!(Pool::new(MAX_THREADS + 1, true).is_err());
        assert!(default_threads() >= 1);
    }
}
