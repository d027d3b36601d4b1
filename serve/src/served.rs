//! A model of the server, with the requests that it has under way.

use crate::hub::Hub;
use crate::model::Model;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;

/// A served model. A request holds it until its reply is sent; the last one to let go closes the model.
pub(crate) struct Served {
    /// Its name for clients.
    pub(crate) name: String,
    /// Names the server's version and the model's bytes, for clients that compare answers.
    pub(crate) fingerprint: String,
    pub(crate) hub: Arc<Hub>,
    /// Seconds from 1970 until it was opened.
    pub(crate) created: u64,
    /// One request computes embeddings or scores at a time: others' prompts become tokens meanwhile.
    pub(crate) embeds: Semaphore,
    /// The hub's thread.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Served {
    /// Serves a model under a name.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn new(name: String, model: Arc<dyn Model>) -> io::Result<Served> {
        let mut hasher = DefaultHasher::new();
        model.manifest().to_string().hash(&mut hasher);
        let fingerprint = format!("b{}-{:08x}", env!("CARGO_PKG_VERSION"), hasher.finish() as u32);
        let (hub, thread) = Hub::start(model)?;
        let (embeds, thread) = (Semaphore::new(1), Mutex::new(Some(thread)));
        Ok(Served { name, fingerprint, hub, created: now(), embeds, thread })
    }

    /// Waits for its thread, whose hub has been closed.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // (A thread that panicked has said so.)
        let _ = thread.map(JoinHandle::join);
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
