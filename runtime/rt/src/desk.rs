//! Threads on which a model works with text.
//!
//! The tokenizer keeps a cache per thread, with a destructor: on a thread of the host program it
//! would stay, and with it the whole library, until that thread ends (see `unload`). So text is
//! encoded, and templates are rendered, on threads that end with the model. As many as callers at
//! the same time; each call costs two switches between threads, some ten microseconds per prompt.
//! Decoding, which happens per token, leaves nothing behind and stays on the caller's thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result, Status};
use crate::spawn::Thread;

/// Stack of a thread, of which only what is used takes memory: as much as a program's first thread
/// has.
const STACK: usize = 8 << 20;

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

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Job(Job),
    Done,
    Quit,
}

/// A function on the stack of a caller, who waits until it has run.
struct Job(*mut (dyn FnMut() + Send));

// SAFETY: the function is `Send` and its owner waits.
unsafe impl Send for Job {}

impl Desk {
    /// Runs `work` on a thread of the desk and waits for its result.
    ///
    /// # Errors
    /// The system refuses a thread, or `work` has panicked.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let seat = self.seat()?;
        let (mut work, mut result) = (Some(work), None);
        let mut body = || result = work.take().map(|work| work());
        let body: &mut (dyn FnMut() + Send) = &mut body;
        // SAFETY: only the lifetime changes; this function returns after the thread has said that
        // it is done.
        let body: *mut (dyn FnMut() + Send) = unsafe { std::mem::transmute(body) };
        *lock(&seat.state) = State::Job(Job(body));
        seat.changed.notify_all();
        let mut state = lock(&seat.state);
        while !matches!(*state, State::Done) {
            state = seat.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        *state = State::Idle;
        drop(state);
        lock(&self.all).idle.push(seat);
        result.unwrap_or_else(|| {
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
        let thread = Thread::spawn("llmcc-text", STACK, move || own.serve())
            .map_err(|cause| Error::system("cannot start a thread for the tokenizer", cause))?;
        all.threads.push((seat.clone(), thread));
        Ok(seat)
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
        let mut state = lock(&self.state);
        loop {
            match &*state {
                State::Quit => return,
                State::Job(job) => {
                    let job = job.0;
                    drop(state);
                    // SAFETY: alive until `Done` is told. Where panics unwind, the caller must hear
                    // of them.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unsafe { (*job)() }));
                    state = lock(&self.state);
                    *state = State::Done;
                    self.changed.notify_all();
                }
                State::Idle | State::Done => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn work_is_done_elsewhere_and_comes_back() {
        let desk = Desk::default();
        let mut log = vec![std::thread::current().id()];
        for i in 0..100 {
            let got = desk.run(|| {
                log.push(std::thread::current().id());
                Ok(i * i)
            });
            assert_eq!(got, Ok(i * i));
        }
        assert!(log[1..].iter().all(|id| *id == log[1] && *id != log[0]), "one thread serves one caller");
        assert_eq!(desk.run::<()>(|| Err(Error::invalid("no"))), Err(Error::invalid("no")));
        assert_eq!(desk.run::<()>(|| panic!("as intended")).unwrap_err().status, Status::Internal);
        assert_eq!(desk.run(|| Ok(7)), Ok(7));
    }

    #[test]
    fn many_callers_at_once() {
        let (desk, sum) = (Desk::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for i in 0..8 {
                let (desk, sum) = (&desk, &sum);
                scope.spawn(move || {
                    for _ in 0..200 {
                        desk.run(|| Ok(sum.fetch_add(i, Relaxed))).unwrap();
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 200 * 28);
        assert!(lock(&desk.all).threads.len() <= 8);
    }
}
