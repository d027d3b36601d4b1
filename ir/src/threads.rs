//! Threads, as far as the system gives some: work for which there is none is done by who asks for
//! it, before it goes on.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// The system has refused threads.
static ALONE: AtomicBool = AtomicBool::new(false);

/// From now on no thread is asked for: there is none, and those that there are wait for each other.
pub fn stay_alone() {
    ALONE.store(true, Relaxed);
}

/// Work beside other work, or done already.
pub enum Beside<'scope, T> {
    /// A thread does it.
    Thread(ScopedJoinHandle<'scope, T>),
    /// Its result.
    Done(T),
}

impl<T> Beside<'_, T> {
    /// Waits for the result. A panic goes on here.
    pub fn join(self) -> T {
        match self {
            Beside::Thread(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Beside::Done(result) => result,
        }
    }
}

/// Has a thread do `work`, if there is one.
pub fn beside<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Beside<'scope, T> {
    if ALONE.load(Relaxed) {
        return Beside::Done(work());
    }
    match try_beside(scope, work) {
        Ok(thread) => Beside::Thread(thread),
        Err(work) => Beside::Done(work()),
    }
}

/// Has a thread do `work`, or gives it back.
///
/// # Errors
/// There is no thread.
pub fn try_beside<'scope, T: Send + 'scope, F: FnOnce() -> T + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: F,
) -> Result<ScopedJoinHandle<'scope, T>, F> {
    // A thread that cannot be started drops its work.
    let place = Arc::new(Mutex::new(Some(work)));
    let own = place.clone();
    let taken = |place: &Mutex<Option<F>>| place.lock().unwrap_or_else(PoisonError::into_inner).take();
    let body = move || match taken(&own) {
        Some(work) => work(),
        None => unreachable!("taken here, or where no thread was started"),
    };
    Builder::new().spawn_scoped(scope, body).map_err(|_| match taken(&place) {
        Some(work) => work,
        None => unreachable!("no thread has taken it"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_with_and_without_threads() {
        let numbers = [1, 2, 3];
        let sums = std::thread::scope(|s| {
            let there = beside(s, || numbers.iter().sum::<i32>());
            let here = Beside::Done(numbers.len());
            (there.join(), here.join())
        });
        assert_eq!(sums, (6, 3));
        // A stack that no system gives.
        std::thread::scope(|s| {
            let refused = Builder::new().stack_size(usize::MAX / 2).spawn_scoped(s, || ());
            assert!(refused.is_err(), "a thread that cannot be started is an error and no panic");
        });
    }
}
