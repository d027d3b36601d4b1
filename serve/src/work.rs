//! Requests under way: a server ends when there are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A count of requests under way, and whether further ones are taken.
#[derive(Default)]
pub struct Work {
    draining: AtomicBool,
    busy: Arc<AtomicUsize>,
}

/// A request under way.
pub struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Work {
    /// Takes no further requests.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Whether further requests are refused.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// How many requests are under way.
    pub fn under_way(&self) -> usize {
        self.busy.load(Ordering::SeqCst)
    }

    /// Begins a request; `None` where no further one is taken.
    pub fn begin(&self) -> Option<Busy> {
        // Counted first, so that whoever waits for the last one sees it.
        self.busy.fetch_add(1, Ordering::SeqCst);
        let busy = Busy(self.busy.clone());
        (!self.is_draining()).then_some(busy)
    }
}
