//! Threads of our own, started with `pthread_create`.
//!
//! `std::thread` leaves traces of the library in the threads of the host program: a destructor of
//! thread-local storage in the thread that spawns (the loader keeps the library mapped until that
//! thread ends), and a pthread key per copy of `std` that is never deleted, while a process has
//! only 1024. See `unload` for the whole story.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

type Body = Box<dyn FnOnce() + Send>;

/// A running thread. [`Thread::join`] it: dropped, it would go on by itself.
#[must_use]
pub struct Thread(libc::pthread_t);

// SAFETY: an identifier that any thread may join.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

impl Thread {
    /// Starts `body` on a thread called `name` (at most 15 bytes are shown) with a stack of `stack`
    /// bytes. It runs with all signals blocked, so never the host program's handlers.
    pub fn spawn(name: &str, stack: usize, body: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
        let body: *mut Body = Box::into_raw(Box::new(Box::new(body)));
        let _masked = SignalsBlocked::new();
        // SAFETY: attributes are initialised before they are used, and destroyed; `start` takes the
        // body over if there is a thread.
        let (code, thread) = unsafe {
            let mut attributes: libc::pthread_attr_t = mem::zeroed();
            let mut thread: libc::pthread_t = mem::zeroed();
            let mut code = libc::pthread_attr_init(&mut attributes);
            if code == 0 {
                code = libc::pthread_attr_setstacksize(&mut attributes, stack);
                if code == 0 {
                    code = libc::pthread_create(&mut thread, &attributes, start, body.cast());
                }
                libc::pthread_attr_destroy(&mut attributes);
            }
            (code, thread)
        };
        if code != 0 {
            // SAFETY: no thread has taken it.
            drop(unsafe { Box::from_raw(body) });
            return Err(io::Error::from_raw_os_error(code));
        }
        let shown = &name.as_bytes()[..name.len().min(15)];
        if let Ok(shown) = CString::new(shown) {
            // SAFETY: a live thread and a C string; failure changes nothing.
            unsafe { libc::pthread_setname_np(thread, shown.as_ptr()) };
        }
        Ok(Thread(thread))
    }

    /// Waits for the thread's end.
    pub fn join(self) {
        // SAFETY: joined once, since `self` is consumed; not from the thread itself, which has no
        // handle of its own.
        let _: c_int = unsafe { libc::pthread_join(self.0, ptr::null_mut()) };
    }
}

extern "C" fn start(body: *mut c_void) -> *mut c_void {
    // SAFETY: given up by `spawn`.
    let body = unsafe { Box::from_raw(body.cast::<Body>()) };
    // A panic has reported itself; the shipped profile aborts. It must not unwind into C.
    let _ = catch_unwind(AssertUnwindSafe(body));
    ptr::null_mut()
}

/// Blocks all signals while it lives: threads inherit that.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> SignalsBlocked {
        // SAFETY: both sets are initialised before they are read.
        unsafe {
            let mut all: libc::sigset_t = mem::zeroed();
            let mut old: libc::sigset_t = mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
            SignalsBlocked(old)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: restores the mask saved in `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn threads_run_with_their_name_and_without_signals() {
        let (tell, told) = mpsc::channel();
        let thread = Thread::spawn("a name longer than fifteen", 1 << 20, move || {
            // SAFETY: the set is written before it is read.
            let blocked = unsafe {
                let mut set: libc::sigset_t = mem::zeroed();
                libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), &mut set);
                libc::sigismember(&set, libc::SIGTERM)
            };
            tell.send(blocked).unwrap();
        })
        .unwrap();
        thread.join();
        assert_eq!(told.recv(), Ok(1));
        assert!(Thread::spawn("no room", usize::MAX & !0xffff, || ()).is_err());
    }
}
