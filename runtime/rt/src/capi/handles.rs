//! Handles of the C API and the objects they refer to.
//!
//! A handle is a number, not an address: it is looked up by every call. So a handle that was
//! closed, or never was one, is an error and nothing worse; closing twice does nothing; and an
//! object that another thread is using stays until that call has ended. Numbers are never used
//! again.
//!
//! A `fork` leaves the child with copies of objects whose threads it does not have, and whose locks
//! may be held for ever. Therefore the child starts with empty tables, and handles opened before
//! the fork are invalid there.

use std::cell::{Cell, UnsafeCell};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};

use super::{Gen, Guessing, Indexed, Model, Serving, null};
use crate::error::{Error, Result};

/// Handles of models.
pub static MODELS: Table<Model> = Table::new("model", 1);
/// Handles of generations.
pub static GENERATIONS: Table<Gen> = Table::new("gen", 2);
/// Handles of models that guess.
pub static DRAFTERS: Table<Guessing> = Table::new("drafter", 3);
/// Handles of texts to guess from. (A kind has two bits; that of drafters, whose table is elsewhere, serves both.)
pub static CORPORA: Table<Indexed> = Table::new("corpus", 3);
/// Handles of engines.
pub static ENGINES: Table<Serving> = Table::new("engine", 0);

/// Objects by number.
pub struct Table<T: 'static> {
    name: &'static str,
    kind: usize,
    /// The next number.
    next: AtomicU64,
    /// Numbers below it were given out before the process was forked.
    inherited: AtomicU64,
    inner: UnsafeCell<Inner<T>>,
}

struct Inner<T> {
    entries: Mutex<BTreeMap<u64, Entry<T>>>,
    /// A call has ended on an object that is being closed.
    ended: Condvar,
}

struct Entry<T> {
    object: Arc<T>,
    /// Calls that use it now.
    calls: usize,
    closing: Closing,
}

#[derive(Clone, Copy, PartialEq)]
enum Closing {
    No,
    /// The last call removes it.
    Later,
    /// The closing thread waits for the last call.
    Waiting,
}

// SAFETY: `inner` is replaced only in a forked child, which has one thread; it is otherwise shared
// by its own lock.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// An object in use by a call.
pub struct Held<T: 'static> {
    table: &'static Table<T>,
    number: u64,
    /// Taken on drop.
    object: Option<Arc<T>>,
}

impl<T> Deref for Held<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        match &self.object {
            Some(object) => object,
            None => unreachable!("taken on drop only"),
        }
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        // Before the call counts as ended: whoever waits for that wants to be the last owner.
        drop(self.object.take());
        let mut entries = self.table.lock();
        // In a forked child it is not there.
        let Some(entry) = entries.get_mut(&self.number) else { return };
        entry.calls -= 1;
        if entry.calls > 0 {
            return;
        }
        match entry.closing {
            Closing::No => {}
            Closing::Waiting => self.table.inner().ended.notify_all(),
            Closing::Later => {
                let entry = entries.remove(&self.number);
                drop(entries);
                drop(entry);
            }
        }
    }
}

impl<T: Send + Sync> Table<T> {
    const fn new(name: &'static str, kind: usize) -> Table<T> {
        Table {
            name,
            kind,
            next: AtomicU64::new(1),
            inherited: AtomicU64::new(0),
            inner: UnsafeCell::new(Inner::new()),
        }
    }

    /// A handle for `object`.
    pub fn insert(&'static self, object: Arc<T>) -> *mut c_void {
        watch_forks();
        let number = self.next.fetch_add(1, Relaxed);
        self.lock().insert(number, Entry { object, calls: 0, closing: Closing::No });
        ((number << 16) | self.tag()) as *mut c_void
    }

    /// The object behind a handle, which stays until the result is dropped.
    ///
    /// # Errors
    /// A null pointer; no such handle, or one that has been closed.
    pub fn get<H>(&'static self, handle: *const H) -> Result<Held<T>> {
        if handle.is_null() {
            return Err(null(self.name));
        }
        let number = self.number(handle.cast())?;
        let mut entries = self.lock();
        match entries.get_mut(&number) {
            Some(entry) if entry.closing == Closing::No => {
                entry.calls += 1;
                Ok(Held { table: self, number, object: Some(entry.object.clone()) })
            }
            _ if number < self.inherited.load(Relaxed) => {
                Err(Error::invalid("the process was forked after llmcc_open; open the model in the child instead"))
            }
            _ => Err(self.unknown("it has been closed or freed")),
        }
    }

    /// Ends a handle. Waits for the calls of other threads that use the object; but within a
    /// callback it does not wait, and the last of these calls ends the object. Returns whether
    /// there was such a handle.
    pub fn close<H>(&'static self, handle: *const H, announce: impl FnOnce(&T)) -> bool {
        let Ok(number) = self.number(handle.cast()) else { return false };
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(&number).filter(|e| e.closing == Closing::No) else { return false };
        announce(&entry.object);
        if entry.calls > 0 && in_callback() {
            entry.closing = Closing::Later;
            return true;
        }
        entry.closing = Closing::Waiting;
        while entries.get(&number).is_some_and(|e| e.calls > 0) {
            entries = self.inner().ended.wait(entries).unwrap_or_else(PoisonError::into_inner);
        }
        let entry = entries.remove(&number);
        drop(entries);
        drop(entry);
        true
    }

    fn number(&self, handle: *const c_void) -> Result<u64> {
        let bits = handle as u64;
        if bits & 0xffff == self.tag() { Ok(bits >> 16) } else { Err(self.unknown("it comes from elsewhere")) }
    }

    /// Tag that tells this table's handles from handles of other tables and (mostly) of other
    /// artifacts in the process.
    fn tag(&self) -> u64 {
        (((&raw const *self as usize >> 4) & 0x3fff) | (self.kind << 14)) as u64
    }

    fn unknown(&self, why: &str) -> Error {
        Error::invalid(format!("{} is not an open handle of this library: {why}", self.name))
    }
}

impl<T> Table<T> {
    fn inner(&self) -> &Inner<T> {
        // SAFETY: see `Sync`.
        unsafe { &*self.inner.get() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry<T>>> {
        // Nothing panics under the lock.
        self.inner().entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything, in a forked child.
    ///
    /// # Safety
    /// The process has one thread, which is in `fork`.
    unsafe fn abandon(&self) {
        // The parent's other threads may have been changing the old contents: they are not touched,
        // not even to free them. SAFETY: the caller's promise.
        unsafe { self.inner.get().write(Inner::new()) };
        self.inherited.store(self.next.load(Relaxed), Relaxed);
    }
}

impl<T> Inner<T> {
    const fn new() -> Inner<T> {
        Inner { entries: Mutex::new(BTreeMap::new()), ended: Condvar::new() }
    }
}

/// Has the tables emptied in forked children. The C library drops these handlers when it unloads
/// this library.
fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(feature = "heap")]
        let (before, parent) = (
            Some(crate::heap::before_fork as unsafe extern "C" fn()),
            Some(crate::heap::after_fork as unsafe extern "C" fn()),
        );
        #[cfg(not(feature = "heap"))]
        let (before, parent) = (None, None);
        // SAFETY: functions that may run in `fork`. Without memory for the entry, models still
        // check the process before they step.
        unsafe { libc::pthread_atfork(before, parent, Some(in_child)) };
    });
}

unsafe extern "C" fn in_child() {
    #[cfg(feature = "heap")]
    crate::heap::after_fork();
    // SAFETY: the only thread of the child, within `fork`.
    unsafe {
        MODELS.abandon();
        GENERATIONS.abandon();
        DRAFTERS.abandon();
        CORPORA.abandon();
        ENGINES.abandon();
    }
}

thread_local! {
    // Without a destructor: see `crate::unload`.
    static CALLBACKS: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is in a callback, that is, inside a call already.
fn in_callback() -> bool {
    CALLBACKS.get() > 0
}

/// Runs a callback of the caller.
pub fn callback<T>(run: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CALLBACKS.set(CALLBACKS.get() - 1);
        }
    }
    CALLBACKS.set(CALLBACKS.get() + 1);
    let _leave = Leave;
    run()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    /// Tells when it is dropped.
    struct Thing(Arc<AtomicBool>);

    impl Drop for Thing {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }

    fn thing(table: &'static Table<Thing>) -> (*mut c_void, Arc<AtomicBool>) {
        let gone = Arc::new(AtomicBool::new(false));
        (table.insert(Arc::new(Thing(gone.clone()))), gone)
    }

    #[test]
    fn closed_handles_are_noticed() {
        static TABLE: Table<Thing> = Table::new("thing", 3);
        static OTHER: Table<Thing> = Table::new("other", 2);
        let (a, gone) = thing(&TABLE);
        let (b, _) = thing(&TABLE);
        assert!(OTHER.get(a).is_err() && TABLE.get(a).is_ok());
        assert!(TABLE.close(a, |_| ()) && gone.load(SeqCst));
        assert!(!TABLE.close(a, |_| ()), "closing twice does nothing");
        let (c, _) = thing(&TABLE);
        assert!(a != c && TABLE.get(a).err().unwrap().message.contains("closed"));
        assert!(TABLE.get(null::<u8>()).err().unwrap().message.contains("thing is a null pointer"));
        // An address of somebody's object.
        assert!(TABLE.get(&raw const gone).is_err() && !TABLE.close(&raw const gone, |_| ()));
        assert!(TABLE.close(b, |_| ()) && TABLE.close(c, |_| ()));
    }

    #[test]
    fn closing_waits_for_calls_of_other_threads() {
        static TABLE: Table<Thing> = Table::new("thing", 3);
        let (a, gone) = thing(&TABLE);
        let held = TABLE.get(a).unwrap();
        let number = a as usize;
        let closer = std::thread::spawn(move || TABLE.close(number as *const u8, |_| ()));
        // New calls are refused at once; the one under way keeps the object.
        while TABLE.get(a).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!gone.load(SeqCst) && !closer.is_finished());
        assert!(!TABLE.close(a, |_| ()), "somebody else is closing it");
        drop(held);
        assert!(closer.join().unwrap() && gone.load(SeqCst));
    }

    #[test]
    fn closing_in_a_callback_takes_effect_after_the_call() {
        static TABLE: Table<Thing> = Table::new("thing", 3);
        let (a, gone) = thing(&TABLE);
        let held = TABLE.get(a).unwrap();
        assert!(callback(|| TABLE.close(a, |_| ())));
        assert!(!gone.load(SeqCst) && TABLE.get(a).is_err());
        drop(held);
        assert!(gone.load(SeqCst));
    }
}
