//! An engine of the artifact: many requests at once.

use super::Model;
use crate::Error;
use llmcc_model::Status;
use llmcc_model::sys::*;
use std::ptr;
use std::time::Duration;

/// Events that are taken at once.
const EVENTS: usize = 256;

/// Serves requests until it is dropped.
pub struct Engine<'a> {
    model: &'a Model,
    handle: *mut RawEngine,
}

/// A token of a request, or its end.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The request's number.
    pub request: u64,
    /// Whether it brings a token.
    pub token: bool,
    /// Whether it is the request's last event.
    pub ended: bool,
    /// Tokens of the prompt that others had computed; in the last event.
    pub reused: u64,
    /// Whether its deadline passed before its text ended; in the last event.
    pub late: bool,
}

/// A request for tokens after a prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The prompt.
    pub prompt: &'a [i32],
    /// Tokens of the text, whichever would end it.
    pub tokens: usize,
    /// Larger ones go first.
    pub priority: i32,
    /// When it ends at the latest, from now on.
    pub timeout: Option<Duration>,
    /// Whether tokens are guessed by earlier ones of the text.
    pub lookup: bool,
}

impl Model {
    /// Opens an engine that takes up to `running` requests into a step; 0: its own choice.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn engine(&self, running: u32) -> Result<Engine<'_>, Error> {
        let size = size_of::<llmcc_engine_options>();
        let options = llmcc_engine_options { size, max_running: running, ..llmcc_engine_options::default() };
        let mut handle = ptr::null_mut();
        // SAFETY: the model is open, the structure valid.
        self.check(unsafe { (self.api.llmcc_engine_open)(self.model, &options, &mut handle) })?;
        Ok(Engine { model: self, handle })
    }
}

impl Engine<'_> {
    /// Hands a request over. Returns its number.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn submit(&self, request: &Request) -> Result<u64, Error> {
        let params = llmcc_gen_params {
            size: size_of::<llmcc_gen_params>(),
            max_tokens: request.tokens as u64,
            flags: LLMCC_GEN_IGNORE_EOS | LLMCC_GEN_NO_TEXT | LLMCC_GEN_NO_DEFAULTS,
            guesses: if request.lookup { LLMCC_GUESS_LOOKUP } else { LLMCC_GUESS_OWN },
            // SAFETY: all other fields may be zero: numbers, null pointers and no function.
            ..unsafe { std::mem::zeroed() }
        };
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let request = llmcc_request {
            tokens: request.prompt.as_ptr(),
            n_tokens: request.prompt.len(),
            params: &params,
            priority: request.priority,
            timeout_ns: request.timeout.map_or(0, nanoseconds),
            ..llmcc_request::default()
        };
        let mut id = 0;
        // SAFETY: the engine is open; the arrays have their lengths and are copied.
        self.model.check(unsafe { (self.model.api.llmcc_engine_submit)(self.handle, &request, &mut id) })?;
        Ok(id)
    }

    /// The next events; waits for the first one, up to `timeout` (`None`: as long as it takes).
    ///
    /// # Errors
    /// A request failed; errors of the artifact.
    pub fn poll(&self, timeout: Option<Duration>) -> Result<Vec<Event>, Error> {
        let (mut raw, mut n) = (vec![llmcc_event::default(); EVENTS], 0);
        let timeout = timeout.map_or(-1, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        let poll = self.model.api.llmcc_engine_poll;
        // SAFETY: the engine is open, and the array has its length.
        self.model.check(unsafe { poll(self.handle, raw.as_mut_ptr(), EVENTS, &mut n, timeout) })?;
        let event = |raw: &llmcc_event| {
            let late = raw.status != 0 && Status::of(raw.status) == Status::Deadline;
            if raw.status != 0 && !late {
                return Err(Error::Artifact {
                    path: self.model.path.clone(),
                    // SAFETY: NUL-terminated, and valid until the next poll.
                    message: unsafe { std::ffi::CStr::from_ptr(raw.message) }.to_string_lossy().into_owned(),
                });
            }
            Ok(Event {
                request: raw.request,
                token: raw.token >= 0,
                ended: raw.ended != 0,
                reused: raw.reused_tokens,
                late,
            })
        };
        raw.iter().take(n).map(event).collect()
    }

    /// Counts since it was opened, JSON.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn stats(&self) -> Result<serde_json::Value, Error> {
        let text = self.model.text(|out, capacity, needed| {
            // SAFETY: `out` has room for `capacity` bytes.
            unsafe { (self.model.api.llmcc_engine_stats)(self.handle, out, capacity, needed) }
        })?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // SAFETY: closed once.
        unsafe { (self.model.api.llmcc_engine_close)(self.handle) };
    }
}
