//! Closing models and generations at the wrong moment: twice, during a call, in a callback, after a
//! fork.
#![cfg(feature = "text")]

use std::ffi::{c_char, c_void};
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::api::*;
use llmcc_rt::capi::types::*;
use llmcc_rt::capi::*;
use llmcc_rt::{Options, Status};

/// Text without an end.
fn endless() -> llmcc_gen_params {
    // SAFETY: all-zero is the default.
    let zero: llmcc_gen_params = unsafe { zeroed() };
    llmcc_gen_params { size: size_of::<llmcc_gen_params>(), flags: LLMCC_GEN_IGNORE_EOS, ..zero }
}

fn forget(model: Handle) -> *mut llmcc_model {
    let handle = model.0;
    std::mem::forget(model);
    handle
}

/// State shared by callbacks and the test.
struct Shared {
    model: *mut llmcc_model,
    calls: AtomicUsize,
}

// SAFETY: a handle may be used from any thread.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(model: *mut llmcc_model) -> Shared {
        Shared { model, calls: AtomicUsize::new(0) }
    }

    fn generate(&self, callback: unsafe extern "C" fn(*mut c_void, *const c_char, usize, i32) -> i32) -> i32 {
        // SAFETY: valid arguments; the callbacks take a `Shared`.
        unsafe {
            llmcc_generate(
                self.model,
                c"ab".as_ptr(),
                2,
                &endless(),
                Some(callback),
                (&raw const *self).cast_mut().cast(),
                null_mut(),
            )
        }
    }
}

unsafe extern "C" fn close_in_callback(user: *mut c_void, _: *const c_char, _: usize, _: i32) -> i32 {
    // SAFETY: the test's `Shared`.
    let shared = unsafe { &*user.cast::<Shared>() };
    if shared.calls.fetch_add(1, SeqCst) == 2 {
        // SAFETY: any value may be passed.
        unsafe {
            llmcc_close(shared.model);
            llmcc_close(shared.model);
            fails(llmcc_info(shared.model, null_mut()), Status::Invalid, "closed");
        }
    }
    0
}

#[test]
fn a_callback_may_close_its_model() {
    let shared = Shared::new(forget(open(Options { threads: 2, ..Options::default() })));
    fails(shared.generate(close_in_callback), Status::Invalid, "closed while it was generating");
    assert_eq!(shared.calls.load(SeqCst), 3, "the generation ends after the token");
    fails(shared.generate(close_in_callback), Status::Invalid, "closed");
}

unsafe extern "C" fn slowly(user: *mut c_void, _: *const c_char, _: usize, _: i32) -> i32 {
    // SAFETY: the test's `Shared`.
    unsafe { &*user.cast::<Shared>() }.calls.fetch_add(1, SeqCst);
    std::thread::sleep(Duration::from_millis(10));
    0
}

#[test]
fn closing_ends_the_generations_of_other_threads() {
    let shared = Shared::new(forget(open(Options { threads: 2, ..Options::default() })));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let status = shared.generate(slowly);
            (status, last_error())
        });
        while shared.calls.load(SeqCst) < 2 {
            std::thread::yield_now();
        }
        // SAFETY: any value may be passed.
        unsafe { llmcc_close(shared.model) };
        // No call is inside any more, so no callback comes.
        let calls = shared.calls.load(SeqCst);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(shared.calls.load(SeqCst), calls);
        let (status, message) = running.join().unwrap();
        assert!(status == Status::Invalid as i32 && message.contains("closed"), "{message}");
    });
}

#[test]
fn what_is_closed_stays_closed() {
    let model = forget(open(Options { threads: 2, ..Options::default() }));
    // SAFETY: valid arguments, or stale handles, which must be noticed.
    unsafe {
        let (mut generation, mut piece) = (null_mut(), llmcc_piece { size: size_of::<llmcc_piece>(), ..zeroed() });
        ok(llmcc_gen_new(model, -1, [1].as_ptr(), 1, &endless(), &mut generation));
        llmcc_close(model);
        llmcc_close(model);
        let mut seq = -1;
        fails(llmcc_seq_new(model, &mut seq), Status::Invalid, "closed");
        assert!(llmcc_manifest(model).is_null());
        // A generation keeps its resources alive.
        ok(llmcc_gen_next(generation, &mut piece));
        llmcc_gen_free(generation);
        llmcc_gen_free(generation);
        fails(llmcc_gen_next(generation, &mut piece), Status::Invalid, "freed");
        // New handles are other numbers.
        let next = open(Options { threads: 1, ..Options::default() });
        assert!(next.0 != model);
        llmcc_close(model);
        ok(llmcc_seq_new(next.0, &mut seq));
    }
}

/// The child of a fork, in the middle of everything: another thread is generating, this one is in a
/// callback.
#[test]
fn a_forked_child_is_told_so_and_opens_its_own() {
    let shared = Shared::new(forget(open(Options { threads: 2, ..Options::default() })));
    let other = Shared::new(shared.model);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| other.generate(slowly));
        while other.calls.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(shared.generate(fork_in_callback), 0, "{}", last_error());
        // SAFETY: any value may be passed.
        unsafe { llmcc_close(shared.model) };
        assert_eq!(running.join().unwrap(), Status::Invalid as i32);
    });
}

unsafe extern "C" fn fork_in_callback(user: *mut c_void, _: *const c_char, _: usize, _: i32) -> i32 {
    // SAFETY: the test's `Shared`; the child ends with `_exit`, or by the alarm.
    unsafe {
        let shared = &*user.cast::<Shared>();
        if shared.calls.fetch_add(1, SeqCst) != 3 {
            return i32::from(shared.calls.load(SeqCst) > 8);
        }
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            libc::_exit(in_child(shared.model));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "child: {status:#x}");
        0
    }
}

/// Which of the child's expectations fails; 0: none.
unsafe fn in_child(parents: *mut llmcc_model) -> i32 {
    // SAFETY: valid arguments, and a handle of the parent.
    unsafe {
        let mut seq = -1;
        if llmcc_seq_new(parents, &mut seq) != Status::Invalid as i32
            || !last_error().contains("forked after llmcc_open")
        {
            return 1;
        }
        llmcc_close(parents);
        let own = open(Options { threads: 2, ..Options::default() });
        let (mut ids, mut n) = ([0; 8], 0);
        if llmcc_tokenize(own.0, c"abe".as_ptr(), 3, 0, ids.as_mut_ptr(), 8, &mut n) != 0 || ids[..n] != [1, 2, 6] {
            return 2;
        }
        if llmcc_generate(own.0, c"a".as_ptr(), 1, null(), None, null_mut(), null_mut()) != 0 {
            return 3;
        }
        0
    }
}
