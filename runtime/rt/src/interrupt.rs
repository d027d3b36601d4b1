//! Ending calls from outside, by `llmcc_interrupt`.
//!
//! Whoever works long keeps a [`Watch`] and asks it now and then: between kernels of a step, chunks
//! of a batch, pairs of texts. It reports interruptions since the work began, so a call that begins
//! later goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Error, Result, Status};

/// Counts interruptions.
#[derive(Clone, Debug, Default)]
pub struct Interrupts(Arc<AtomicU64>);

/// The interruptions since some moment.
#[derive(Clone, Debug)]
pub struct Watch {
    interrupts: Interrupts,
    began: u64,
}

impl Interrupts {
    /// Interrupts all calls under way.
    pub fn ring(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Those from now on.
    pub fn watch(&self) -> Watch {
        Watch { interrupts: self.clone(), began: self.0.load(Relaxed) }
    }
}

impl Watch {
    /// Whether there was one.
    pub fn rung(&self) -> bool {
        self.interrupts.0.load(Relaxed) != self.began
    }

    /// Fails if there was one.
    pub fn check(&self) -> Result<()> {
        if self.rung() { Err(interrupted()) } else { Ok(()) }
    }
}

/// The error of a call that was interrupted.
pub fn interrupted() -> Error {
    Error::new(Status::Interrupted, "llmcc_interrupt ended the call")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_under_way_is_interrupted() {
        let interrupts = Interrupts::default();
        interrupts.ring();
        let watch = interrupts.watch();
        assert_eq!(watch.check(), Ok(()));
        interrupts.ring();
        assert!(watch.rung() && !interrupts.watch().rung());
        assert_eq!(watch.check().unwrap_err().status, Status::Interrupted);
    }
}
