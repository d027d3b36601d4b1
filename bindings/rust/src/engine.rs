//! Engines: many requests on one model at once.

use crate::Token;
use crate::capi::*;
use crate::error::{Error, Result, Status};
use crate::generation::{Finish, slice};
use crate::guesses::Guesses;
use crate::model::Model;
use crate::params::Params;
use crate::sys::RawEngine;
use std::ffi::CStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Events that are taken at once.
const EVENTS: usize = 64;

/// Limits of an engine. The default is the engine's own choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineOptions {
    /// Most requests in a step; 0: 64.
    pub max_running: u32,
    /// Most requests beside these; 0: 4096.
    pub max_queued: u64,
    /// The longest time between two tokens of a request that prompts of others may cause.
    pub target: Option<Duration>,
    /// Most bytes of pages that stay after their requests; 0: as many as the cache has room for.
    pub prefix_bytes: u64,
    /// Requests share nothing.
    pub no_prefixes: bool,
    /// A folder in which computed beginnings survive the process.
    pub cache_dir: Option<PathBuf>,
    /// Most bytes of the files there; 0: 8 GiB.
    pub cache_dir_bytes: u64,
}

/// The place of a request among others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Requests of larger ones go first. Who waits for long rises.
    pub priority: i32,
    /// The request ends after so long.
    pub timeout: Option<Duration>,
    /// Computed tokens are shared among requests of the same number only.
    pub salt: u64,
}

/// A token of a request, or its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The request's number, as [`Engine::submit`] returned it.
    pub request: u64,
    /// The token and its text, unless the request ended without a further one.
    pub token: Option<Token>,
    /// Whole characters; may be empty.
    pub text: String,
    /// Why the text is finished, if it is.
    pub finish: Option<Finish>,
    /// With [`Params::logprobs`], the token's log-probability.
    pub logprob: f64,
    /// With [`Params::logprobs`], the most probable tokens with their log-probabilities.
    pub top: Vec<(Token, f64)>,
    /// Set in the last event.
    pub end: Option<End>,
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// Why it failed, was cancelled, or was too late. Its tokens so far are right.
    pub error: Option<Error>,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the prompt that others had computed.
    pub reused_tokens: u64,
    /// Generated tokens.
    pub generated_tokens: u64,
    /// From its arrival until it first took part in a step.
    pub waited: Duration,
    /// To its first token.
    pub first_token: Duration,
    /// To its end.
    pub total: Duration,
}

/// Serves requests on a thread of the artifact's, until it is dropped.
pub struct Engine<'m> {
    model: Served<'m>,
    handle: *mut RawEngine,
    /// Held while events are read: the next poll frees their texts.
    poll: Mutex<()>,
}

/// The model of an engine.
enum Served<'m> {
    Borrowed(&'m Model),
    Shared(Arc<Model>),
}

impl Deref for Served<'_> {
    type Target = Model;

    fn deref(&self) -> &Model {
        match self {
            Served::Borrowed(model) => model,
            Served::Shared(model) => model,
        }
    }
}

// SAFETY: the C API may be called from any thread, and polls wait for each other.
unsafe impl Send for Engine<'_> {}
// SAFETY: as above.
unsafe impl Sync for Engine<'_> {}

impl Model {
    /// Opens an engine.
    ///
    /// # Errors
    /// A model that writes no text; the system has no thread to give.
    pub fn engine(&self, options: &EngineOptions) -> Result<Engine<'_>> {
        Engine::open(Served::Borrowed(self), options)
    }
}

impl Engine<'static> {
    /// Opens an engine that keeps its model open.
    ///
    /// # Errors
    /// As [`Model::engine`].
    pub fn of(model: &Arc<Model>, options: &EngineOptions) -> Result<Engine<'static>> {
        Engine::open(Served::Shared(model.clone()), options)
    }
}

impl<'m> Engine<'m> {
    fn open(model: Served<'m>, options: &EngineOptions) -> Result<Engine<'m>> {
        let folder =
            options.cache_dir.as_deref().map(|path| path.to_str().ok_or_else(|| not_utf8(path))).transpose()?;
        let raw = llmcc_engine_options {
            size: size_of::<llmcc_engine_options>(),
            max_running: options.max_running,
            flags: if options.no_prefixes { LLMCC_ENGINE_NO_PREFIXES } else { 0 },
            max_queued: options.max_queued,
            target_ns: options.target.map_or(0, nanoseconds),
            prefix_bytes: options.prefix_bytes,
            cache_dir: folder.map_or(ptr::null(), |path| path.as_ptr().cast()),
            cache_dir_len: folder.map_or(0, str::len),
            cache_dir_bytes: options.cache_dir_bytes,
        };
        let mut handle = ptr::null_mut();
        // SAFETY: the model is open, the structure valid.
        model.check(unsafe { (model.api().llmcc_engine_open)(model.handle(), &raw, &mut handle) })?;
        model.generations().fetch_add(1, Ordering::SeqCst);
        Ok(Engine { model, handle, poll: Mutex::new(()) })
    }

    /// Hands a request over. Returns its number.
    ///
    /// # Errors
    /// A wrong prompt or parameter; the engine has as many requests as it may.
    pub fn submit(&self, prompt: &[Token], params: &Params, terms: &Terms) -> Result<u64> {
        if matches!(params.guesses, Guesses::Model(_)) {
            return Err(Error::new(Status::Invalid, "an engine takes no other model as drafter: use other guesses"));
        }
        let held = params.held(true)?;
        let raw = llmcc_request {
            tokens: prompt.as_ptr(),
            n_tokens: prompt.len(),
            params: &held.raw,
            priority: terms.priority,
            timeout_ns: terms.timeout.map_or(0, nanoseconds),
            salt: terms.salt,
            ..llmcc_request::default()
        };
        let mut id = 0;
        // SAFETY: the engine is open, and all arrays live through the call, which copies them.
        self.model.check(unsafe { (self.model.api().llmcc_engine_submit)(self.handle, &raw, &mut id) })?;
        Ok(id)
    }

    /// Ends a request after the step under way, if it has not ended.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn cancel(&self, request: u64) -> Result<()> {
        // SAFETY: the engine is open.
        self.model.check(unsafe { (self.model.api().llmcc_engine_cancel)(self.handle, request) })
    }

    /// The next events, in their order. Waits for the first one for up to `timeout` (`None`: as long as it takes).
    ///
    /// # Errors
    /// [`Model::interrupt`] ended the wait.
    pub fn poll(&self, timeout: Option<Duration>) -> Result<Vec<Event>> {
        // (Nothing panics while it is held.)
        let _held = self.poll.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (mut raw, mut n) = ([llmcc_event::default(); EVENTS], 0);
        let timeout = timeout.map_or(-1, |t| i64::try_from(t.as_nanos()).unwrap_or(i64::MAX));
        // SAFETY: the engine is open, and the array has its length.
        self.model.check(unsafe {
            (self.model.api().llmcc_engine_poll)(self.handle, raw.as_mut_ptr(), EVENTS, &mut n, timeout)
        })?;
        // SAFETY: the call has filled them, and no other poll has begun.
        Ok(raw.iter().take(n).map(|raw| unsafe { event(raw) }).collect())
    }

    /// Counts since it was opened, as JSON.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn stats(&self) -> Result<String> {
        // SAFETY: the engine is open; the buffer has its capacity.
        self.model.text(512, |out, capacity, needed| unsafe {
            (self.model.api().llmcc_engine_stats)(self.handle, out, capacity, needed)
        })
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // SAFETY: closed once.
        unsafe { (self.model.api().llmcc_engine_close)(self.handle) };
        self.model.generations().fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Engine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

fn not_utf8(path: &Path) -> Error {
    Error::new(Status::Invalid, format!("{} is not UTF-8: name another folder", path.display()))
}

fn nanoseconds(time: Duration) -> u64 {
    // 0 would mean none.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// # Safety
/// A call has filled it, and no poll has begun since.
unsafe fn event(raw: &llmcc_event) -> Event {
    // SAFETY: as promised, each array has its length, and texts end with NUL.
    let (written, tokens, logprobs, message) = unsafe {
        (
            slice(raw.text.cast::<u8>(), raw.text_len),
            slice(raw.top_tokens, raw.n_top),
            slice(raw.top_logprobs, raw.n_top),
            (raw.status != 0 && !raw.message.is_null())
                .then(|| CStr::from_ptr(raw.message).to_string_lossy().into_owned()),
        )
    };
    let end = (raw.ended != 0).then(|| End {
        error: message.map(|message| Error::new(Status::of(raw.status), message)),
        prompt_tokens: raw.prompt_tokens,
        reused_tokens: raw.reused_tokens,
        generated_tokens: raw.generated_tokens,
        waited: Duration::from_nanos(raw.waited_ns),
        first_token: Duration::from_nanos(raw.first_token_ns),
        total: Duration::from_nanos(raw.total_ns),
    });
    Event {
        request: raw.request,
        token: (raw.token >= 0).then_some(raw.token),
        text: String::from_utf8_lossy(written).into_owned(),
        finish: Finish::of(raw.finish),
        logprob: raw.logprob,
        top: tokens.iter().copied().zip(logprobs.iter().copied()).collect(),
        end,
    }
}
