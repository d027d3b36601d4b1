//! Ctrl-C while a model answers.

use crate::Error;
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Ctrl-C: stops an answer, not the program. Where nobody edits lines, it ends the program between answers.
pub struct Interrupt {
    set: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    edited: bool,
}

impl Interrupt {
    /// Takes over the signal.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(edited: bool) -> Result<Interrupt, Error> {
        let it = Interrupt { set: Arc::default(), ends: Arc::default(), edited };
        // In this order: the handler that ends the program comes first.
        flag::register_conditional_default(SIGINT, it.ends.clone())
            .and_then(|_| flag::register(SIGINT, it.set.clone()))
            .map_err(|e| Error::io("handle", "interrupts from the terminal", e))?;
        Ok(it)
    }

    /// Between answers.
    pub fn wait(&self) {
        self.ends.store(!self.edited, Relaxed);
    }

    /// Before an answer.
    pub fn arm(&self) {
        self.ends.store(false, Relaxed);
        self.set.store(false, Relaxed);
    }

    /// Whether an answer is to stop.
    pub fn is_set(&self) -> bool {
        self.set.load(Relaxed)
    }
}
