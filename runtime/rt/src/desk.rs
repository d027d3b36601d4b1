//! Threads on which a model works with text.
//!
//! The tokenizer keeps a cache per thread, with a destructor: on a thread of the host program it
//! would stay, and with it the whole library, until that thread ends (see `unload`). So text is
//! encoded, and templates are rendered, on threads that end with the model. As many as callers at
//! the same time; each call costs two switches between threads, some ten microseconds per prompt.
//! Decoding, which happens per token, leaves nothing behind and stays on the caller's thread. Where
//! the system has no thread to give, the caller's works, and the library stays until it ends.
//!
//! How much memory work with text takes is not known before. Where the system has no more, and the
//! memory set aside (`crate::reserve`) is used up, the thread gives up: it tells its caller and
//! ends on the spot, with everything it holds. The data it was changing may be locked or half done,
//! so from then on the library refuses to work with text. A job that the caller does not wait for
//! any longer, because it was interrupted, goes on to its end, for nobody.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result, Status};
use crate::interrupt::{Watch, interrupted};
use crate::reserve::need;
use crate::spawn::Thread;

/// Stack of a thread, as large as a program's first thread has; only touched pages take memory.
const STACK: usize = 8 << 20;
/// How often a caller who waits asks whether it was interrupted.
const OFTEN: Duration = Duration::from_millis(20);

/// A thread has given up.
static GONE: AtomicBool = AtomicBool::new(false);

thread_local! {
    // Where the thread's job came from. Without a destructor: see `crate::unload`.
    static SEAT: Cell<*const Seat> = const { Cell::new(ptr::null()) };
}

/// The threads.
#[derive(Default)]
pub struct Desk {
    all: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    idle: Vec<Arc<Seat>>,
    threads: Vec<(Arc<Seat>, Thread)>,
}

/// Where a job is handed to a thread, and its end is told.
#[derive(Default)]
struct Seat {
    state: Mutex<State>,
    changed: Condvar,
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Job(Job),
    Working,
    Done,
    /// The thread has given up.
    #[cfg_attr(not(feature = "heap"), allow(dead_code))]
    Gone,
    /// The thread is to end, after its job.
    Quit,
}

impl Desk {
    /// Runs `work` on a thread of the desk and waits for its result, or until `watch` tells of an
    /// interruption.
    ///
    /// # Errors
    /// Errors of `work`; it has panicked, or memory ran out; the call was interrupted.
    pub fn run<T: Send + 'static>(
        &self,
        watch: &Watch,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        check()?;
        watch.check()?;
        let Ok(seat) = self.seat() else {
            // Unless it is for want of memory, which the work would want as well.
            need(STACK)?;
            return work();
        };
        let place = Arc::new(Mutex::new(None));
        let result = place.clone();
        let job: Job = Box::new(move || {
            let found = work();
            *lock(&result) = Some(found);
        });
        *lock(&seat.state) = State::Job(job);
        seat.changed.notify_all();
        let mut state = lock(&seat.state);
        loop {
            match &*state {
                State::Done => break,
                State::Gone => {
                    drop(state);
                    self.forget(&seat);
                    return Err(out_of_memory());
                }
                _ if watch.rung() => {
                    *state = State::Quit;
                    return Err(interrupted());
                }
                _ => {}
            }
            state = seat.changed.wait_timeout(state, OFTEN).unwrap_or_else(PoisonError::into_inner).0;
        }
        *state = State::Idle;
        drop(state);
        lock(&self.all).idle.push(seat);
        let found = lock(&place).take();
        found.unwrap_or_else(|| {
            Err(Error::new(Status::Internal, "working with text panicked: a bug in llmcc, please report it"))
        })
    }

    /// A thread with nothing to do.
    fn seat(&self) -> Result<Arc<Seat>> {
        let mut all = lock(&self.all);
        if let Some(seat) = all.idle.pop() {
            return Ok(seat);
        }
        let seat = Arc::new(Seat::default());
        let own = seat.clone();
        // So that giving the seat back takes no memory.
        let seats = all.threads.len() + 1;
        all.idle.reserve(seats);
        let thread = Thread::spawn("llmcc-text", STACK, move || own.serve())
            .map_err(|cause| Error::system("cannot start a thread for the tokenizer", cause))?;
        all.threads.push((seat.clone(), thread));
        Ok(seat)
    }

    /// Waits for the end of a thread that has given up.
    fn forget(&self, seat: &Arc<Seat>) {
        let mut all = lock(&self.all);
        if let Some(i) = all.threads.iter().position(|(s, _)| Arc::ptr_eq(s, seat)) {
            let (_, thread) = all.threads.swap_remove(i);
            drop(all);
            thread.join();
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let all = std::mem::take(self.all.get_mut().unwrap_or_else(PoisonError::into_inner));
        for (seat, _) in &all.threads {
            *lock(&seat.state) = State::Quit;
            seat.changed.notify_all();
        }
        all.threads.into_iter().for_each(|(_, thread)| thread.join());
    }
}

impl Seat {
    fn serve(&self) {
        SEAT.set(&raw const *self);
        let mut state = lock(&self.state);
        loop {
            match std::mem::replace(&mut *state, State::Working) {
                State::Quit => return,
                State::Job(job) => {
                    drop(state);
                    // Where panics unwind, the caller must hear of them.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                    state = lock(&self.state);
                    // (Unless the caller has gone.)
                    if matches!(*state, State::Working) {
                        *state = State::Done;
                        self.changed.notify_all();
                    }
                }
                other => {
                    *state = other;
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Fails once a thread has given up.
///
/// # Errors
/// It has.
pub fn check() -> Result<()> {
    if GONE.load(Relaxed) { Err(out_of_memory()) } else { Ok(()) }
}

fn out_of_memory() -> Error {
    Error::new(
        Status::System,
        "out of memory while working with text. What was under way may be half done, so this library works with no more text until the program is started again, with more memory",
    )
}

/// Ends this thread where it stands, if it is one of a desk: its allocation has failed. It frees
/// and unlocks nothing and runs no destructor.
#[cfg(feature = "heap")]
pub fn give_up() {
    let seat = SEAT.get();
    if seat.is_null() {
        return;
    }
    GONE.store(true, Relaxed);
    // SAFETY: the seat lives as long as its thread, which holds a reference to it for ever.
    let seat = unsafe { &*seat };
    let mut state = lock(&seat.state);
    if matches!(*state, State::Working) {
        *state = State::Gone;
        seat.changed.notify_all();
    }
    drop(state);
    // SAFETY: ends this thread alone. Its stack stays until it is joined, which the kernel's note in
    // the thread's descriptor allows, as after any other end.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupts;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;
    use std::time::Instant;

    #[test]
    fn work_is_done_elsewhere_and_comes_back() {
        let (desk, watch) = (Desk::default(), Interrupts::default().watch());
        let mut log = vec![std::thread::current().id()];
        for i in 0..100 {
            let (square, id) = desk.run(&watch, move || Ok((i * i, std::thread::current().id()))).unwrap();
            assert_eq!(square, i * i);
            log.push(id);
        }
        assert!(log[1..].iter().all(|id| *id == log[1] && *id != log[0]), "one thread serves one caller");
        assert_eq!(desk.run::<()>(&watch, || Err(Error::invalid("no"))), Err(Error::invalid("no")));
        assert_eq!(desk.run::<()>(&watch, || panic!("as intended")).unwrap_err().status, Status::Internal);
        assert_eq!(desk.run(&watch, || Ok(7)), Ok(7));
    }

    #[test]
    fn many_callers_at_once() {
        let (desk, sum) = (Desk::default(), Arc::new(AtomicUsize::new(0)));
        std::thread::scope(|scope| {
            for i in 0..8 {
                let (desk, sum) = (&desk, sum.clone());
                scope.spawn(move || {
                    let watch = Interrupts::default().watch();
                    for _ in 0..200 {
                        let sum = sum.clone();
                        desk.run(&watch, move || Ok(sum.fetch_add(i, Relaxed))).unwrap();
                    }
                });
            }
        });
        assert_eq!(sum.load(Relaxed), 200 * 28);
        assert!(lock(&desk.all).threads.len() <= 8);
    }

    #[test]
    fn an_interrupted_caller_does_not_wait() {
        let (desk, interrupts) = (Desk::default(), Interrupts::default());
        let (begun, has_begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let ring = interrupts.clone();
        let ringer = std::thread::spawn(move || {
            has_begun.recv().unwrap();
            ring.ring();
        });
        let start = Instant::now();
        let found = desk.run(&interrupts.watch(), move || {
            begun.send(()).unwrap();
            ended.recv().unwrap();
            Ok(())
        });
        assert_eq!(found.unwrap_err().status, Status::Interrupted);
        assert!(start.elapsed() < Duration::from_secs(1));
        ringer.join().unwrap();
        // Others are served by another thread meanwhile.
        assert_eq!(desk.run(&interrupts.watch(), || Ok(1)), Ok(1));
        end.send(()).unwrap();
        drop(desk);
    }
}
