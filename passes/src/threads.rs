//! The pool of threads that measures and packs weights.

use std::sync::Once;

/// Makes the pool, where the system has threads for one; else the calling thread is all of it.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A global pool that cannot be made is not made a second time, so another one is tried first.
        if rayon::ThreadPoolBuilder::new().build().is_ok() && rayon::ThreadPoolBuilder::new().build_global().is_ok() {
            return;
        }
        // (Whoever has made one before has threads.)
        if rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().is_ok() {
            // Another thread would wait for this one, which waits for it.
            llmcc_ir::threads::stay_alone();
        }
    });
}
