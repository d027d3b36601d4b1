//! Cleaning up so that `dlclose` leaves nothing behind.
//!
//! A program may open and close thousands of artifacts, from any of its threads, and an artifact
//! that was closed must be gone: else its memory is lost, and the file of the same name that is
//! compiled next is never seen. Four things would keep a Rust library, or leave something of it:
//!
//! - **Destructors of thread-local storage.** The loader counts those that are registered and keeps
//!   the library mapped until their threads have ended: the host's threads, which may never. So
//!   nothing that has such a destructor may be touched on a thread of the host. The last error lies
//!   in plain bytes (`capi`), threads are started without `std` ([`crate::spawn`]), the tokenizer
//!   and templates work on threads of the model's own ([`crate::desk`]). There the destructors run
//!   when the model is closed, which waits for these threads.
//! - **Keys of pthreads.** `std::thread` makes one per copy of `std`, with a destructor inside the
//!   library, and never deletes it. Nothing here uses `std::thread` or calls
//!   `std::thread::current`.
//! - **Statics of crates** that are made on first use (regular expressions, tables of bytes) are
//!   never dropped. In an artifact all memory comes from a heap that counts it (`crate::heap`,
//!   cargo feature `heap`) and is given back whole here, by a function in `.fini_array`, which the
//!   loader calls last.
//! - **Handlers of `fork`** (`capi::handles`): the C library itself removes the handlers of a
//!   library that is unloaded.
//!
//! The other way, to collect all destructors in a list of our own and have a pthread key run them
//! at the end of a thread, cannot be made safe: a thread that ends while another calls `dlclose`
//! may have read the address of the key's destructor just before the code there is unmapped.
//!
//! `.fini_array` also runs when the process ends, while other threads may still be inside. So calls
//! and open models are counted: with any of them, all memory stays.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

static CALLS: AtomicUsize = AtomicUsize::new(0);
static ALIVE: AtomicUsize = AtomicUsize::new(0);
static GONE: AtomicBool = AtomicBool::new(false);

/// A call of the API under way.
pub struct Inside(());

/// Begins a call; `None` when the library's memory has been given back since the process is ending.
pub fn enter() -> Option<Inside> {
    // Counted before `GONE` is read, while `release` writes it before it reads the count: one of
    // the two sees the other.
    CALLS.fetch_add(1, SeqCst);
    let inside = Inside(());
    (!GONE.load(SeqCst)).then_some(inside)
}

impl Drop for Inside {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, SeqCst);
    }
}

/// Something that must not lose its memory: a model, a generation.
pub struct Alive(());

impl Alive {
    /// Counts one more.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Alive {
        ALIVE.fetch_add(1, SeqCst);
        Alive(())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, SeqCst);
    }
}

/// Called by the loader before the library is unmapped, and when the process ends.
#[cfg(feature = "heap")]
extern "C" fn release() {
    GONE.store(true, SeqCst);
    if CALLS.load(SeqCst) == 0 && ALIVE.load(SeqCst) == 0 {
        // SAFETY: nobody is inside, nobody gets in any more, and nothing is open that could be
        // used.
        unsafe { crate::heap::release() };
    } else {
        GONE.store(false, SeqCst);
    }
}

#[cfg(feature = "heap")]
#[used]
#[unsafe(link_section = ".fini_array")]
static RELEASE: extern "C" fn() = release;
