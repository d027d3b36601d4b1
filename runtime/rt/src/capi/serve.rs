//! Engines: many requests at once, on a thread of the library's.

use std::ffi::c_char;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use llmcc_steps::RUNNING;

use super::generation::{Shown, gen_params};
use super::handles::{ENGINES, Held, MODELS};
use super::types::*;
use super::{Model, Out, array, checked_size, guard, guard_freeing, llmcc_model, null, owned, put_text, read_struct};
use super::{utf8, write_struct};
use crate::engine::Engine;
use crate::error::{Error, Result, Status};
use crate::generate::check_tokens;
use crate::reserve::need;
use crate::serve::disk::DEFAULT_BYTES;
use crate::serve::{Disk, Event, Host, Limits, Order, Service};
use crate::speculate::Guesses;
use crate::text::Text;
use crate::unload::Alive;

/// Most requests beside them by default.
const QUEUED: u64 = 4096;

/// An engine, as C sees it: a number of [`ENGINES`].
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct llmcc_engine {
    _opaque: [u8; 0],
}

/// The object behind an engine handle.
pub struct Serving {
    service: Service,
    model: Arc<Model>,
    /// Memory of the events that C reads.
    shown: Mutex<Vec<(Shown, Vec<u8>)>>,
    _alive: Alive,
}

impl Host for Model {
    fn check(&self) -> Result<()> {
        self.check_open()
    }

    fn engine(&self) -> MutexGuard<'_, Engine> {
        Model::engine(self)
    }

    fn is_wanted(&self) -> bool {
        Model::is_wanted(self)
    }

    fn text(&self) -> Option<&Text> {
        Model::text(self)
    }
}

impl Serving {
    /// # Safety
    /// The structure's pointers are valid.
    unsafe fn new(model: &Arc<Model>, options: &llmcc_engine_options) -> Result<Serving> {
        if options.flags & !LLMCC_ENGINE_NO_PREFIXES != 0 {
            let message = format!("llmcc_engine_options.flags has unknown bits: {:#x}", options.flags);
            return Err(Error::invalid(message));
        }
        model.engine().need_text()?;
        let or = |value: u64, default: u64| usize::try_from(if value == 0 { default } else { value });
        let limits = Limits {
            running: if options.max_running == 0 { RUNNING } else { options.max_running as usize },
            target: (options.target_ns > 0).then(|| Duration::from_nanos(options.target_ns)),
            kept_bytes: match options.flags & LLMCC_ENGINE_NO_PREFIXES {
                0 => or(options.prefix_bytes, u64::MAX).unwrap_or(usize::MAX),
                _ => 0,
            },
        };
        // SAFETY: the caller's promise.
        let disk = unsafe { disk(model, options)? };
        let queued = or(options.max_queued, QUEUED).unwrap_or(usize::MAX);
        let service = Service::new(model.clone(), limits, queued, disk)?;
        Ok(Serving { service, model: model.clone(), shown: Mutex::default(), _alive: Alive::new() })
    }

    /// Checks a request, and its prompt's tokens.
    ///
    /// # Safety
    /// The structure's pointers are valid.
    unsafe fn order(&self, request: &llmcc_request) -> Result<Order> {
        self.model.check_open()?;
        if request.reserved != 0 {
            return Err(Error::invalid("llmcc_request.reserved must be zero"));
        }
        let known = LLMCC_GEN_IGNORE_EOS
            | LLMCC_GEN_NO_TEXT
            | LLMCC_GEN_SHOW_SPECIAL
            | LLMCC_GEN_RAW_PROMPT
            | LLMCC_GEN_LOGPROBS
            | LLMCC_GEN_NO_DEFAULTS;
        // SAFETY: the caller's promise.
        let (raw, params) = unsafe {
            let raw = read_struct(request.params)?.flags & LLMCC_GEN_RAW_PROMPT != 0;
            (raw, gen_params(request.params, known, &self.model)?)
        };
        if matches!(params.guesses, Guesses::Caller(_)) {
            return Err(Error::invalid("an engine takes no guesses of the caller's: use another of LLMCC_GUESS_*"));
        }
        // A request that no engine could serve fails here, so that the caller hears of it at once.
        params.check(self.model.text().is_some())?;
        if self.model.text().is_some() && !params.no_text {
            self.model.tokenizer()?;
        }
        // SAFETY: the caller's promise.
        let prompt = unsafe { self.prompt(request, raw)? };
        check_tokens(&prompt, self.model.vocab())?;
        let deadline = (request.timeout_ns > 0).then(|| Duration::from_nanos(request.timeout_ns));
        let deadline = deadline.and_then(|timeout| Instant::now().checked_add(timeout));
        Ok(Order { id: 0, prompt, params, priority: request.priority, deadline, salt: request.salt })
    }

    /// # Safety
    /// The structure's pointers are valid.
    unsafe fn prompt(&self, request: &llmcc_request, raw: bool) -> Result<Vec<i32>> {
        // SAFETY: the caller's promise.
        let tokens = unsafe { array(request.tokens, request.n_tokens, "tokens")? };
        if request.text.is_null() {
            need(8 * tokens.len())?;
            return Ok(tokens.to_vec());
        }
        if !tokens.is_empty() {
            return Err(Error::invalid("llmcc_request has a text and tokens: give one of them"));
        }
        // SAFETY: the caller's promise.
        let own = owned(unsafe { utf8(request.text, request.len, "text")? })?;
        self.model.with_text(own.len(), move |t| t.tokenizer()?.encode(&own, !raw))
    }

    /// Keeps the memory of events that C reads until the next ones.
    fn show(&self, events: Vec<Event>, mut write: impl FnMut(usize, llmcc_event) -> Result<()>) -> Result<()> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.clear();
        for (i, event) in events.into_iter().enumerate() {
            let (finish, error) = (event.finish(), event.end.as_ref().and_then(|end| end.error.as_ref()));
            let mut message = error.map(|error| error.message.replace('\0', "?").into_bytes()).unwrap_or_default();
            message.push(0);
            let mut value = llmcc_event { request: event.request, ..llmcc_event::default() };
            if let Some(end) = &event.end {
                tell_end(&mut value, end);
            }
            shown.push((Shown::new(event.piece), message));
            let Some((piece, message)) = shown.last() else { continue };
            let piece = piece.piece(finish);
            write(
                i,
                llmcc_event {
                    text: piece.text,
                    text_len: piece.text_len,
                    token: piece.token,
                    finish: piece.finish,
                    logprob: piece.logprob,
                    top_tokens: piece.top_tokens,
                    top_logprobs: piece.top_logprobs,
                    n_top: piece.n_top,
                    message: message.as_ptr().cast(),
                    ..value
                },
            )?;
        }
        Ok(())
    }
}

/// The files of an engine's computed beginnings, if it has a folder for them.
///
/// # Safety
/// The structure's pointers are valid.
unsafe fn disk(model: &Model, options: &llmcc_engine_options) -> Result<Option<Disk>> {
    if options.cache_dir.is_null() {
        return match options.cache_dir_bytes {
            0 => Ok(None),
            _ => Err(Error::invalid("cache_dir_bytes is given without a cache_dir")),
        };
    }
    if options.flags & LLMCC_ENGINE_NO_PREFIXES != 0 {
        return Err(Error::invalid("LLMCC_ENGINE_NO_PREFIXES leaves nothing for a cache_dir: give one of them"));
    }
    // SAFETY: the caller's promise.
    let path = unsafe { utf8(options.cache_dir, options.cache_dir_len, "cache_dir")? };
    let engine = model.engine();
    if path.is_empty() {
        return Err(Error::invalid("cache_dir is empty: name a folder"));
    }
    let refused = |why| Error::new(Status::Unsupported, format!("cache_dir cannot be used: {why}"));
    if engine.has_source() {
        return Err(refused("a model that reads a source leaves nothing to later requests"));
    }
    let unknown = || refused("no hash covers this model's weights: compile it again with them");
    let identity = engine.identity().ok_or_else(unknown)?;
    let bytes = if options.cache_dir_bytes == 0 { DEFAULT_BYTES } else { options.cache_dir_bytes };
    Disk::open(Path::new(path), identity, &engine.kv().layout().groups, bytes).map(Some)
}

/// The end of a request, in its last event.
fn tell_end(value: &mut llmcc_event, end: &crate::serve::End) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    value.ended = 1;
    value.status = end.error.as_ref().map_or(0, |error| error.status as i32);
    value.prompt_tokens = end.stats.prompt_tokens;
    value.reused_tokens = end.stats.reused_tokens;
    value.generated_tokens = end.stats.generated_tokens;
    (value.waited_ns, value.first_token_ns, value.total_ns) = (ns(end.waited), ns(end.first), ns(end.total));
}

fn engine(handle: *const llmcc_engine) -> Result<Held<Serving>> {
    ENGINES.get(handle)
}

/// Opens an engine on a model.
///
/// # Safety
/// `model` is open, `options` is null or valid, `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_engine_open(
    model: *const llmcc_model,
    options: *const llmcc_engine_options,
    out: *mut *mut llmcc_engine,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (out, serving) = unsafe {
            let (out, options) = (Out::new(out, "out")?, read_struct(options)?);
            (out, Serving::new(&*MODELS.get(model)?, &options)?)
        };
        out.set(ENGINES.insert(Arc::new(serving)).cast());
        Ok(())
    })
}

/// Hands a request to an engine.
///
/// # Safety
/// `handle` is open, `request` is valid with valid pointers, `id` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_engine_submit(
    handle: *const llmcc_engine,
    request: *const llmcc_request,
    id: *mut u64,
) -> i32 {
    guard(|| {
        if request.is_null() {
            return Err(null("request"));
        }
        // SAFETY: the caller's promise.
        unsafe {
            let (id, engine) = (Out::new(id, "id")?, engine(handle)?);
            let order = engine.order(&read_struct(request)?)?;
            id.set(engine.service.submit(order)?);
        }
        Ok(())
    })
}

/// Takes events.
///
/// # Safety
/// `handle` is open, `events` has room for `capacity` structures of the size that the first says, `n` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_engine_poll(
    handle: *const llmcc_engine,
    events: *mut llmcc_event,
    capacity: usize,
    n: *mut usize,
    timeout_ns: i64,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (n, engine) = (Out::new(n, "n")?, engine(handle)?);
            if capacity == 0 || events.is_null() {
                return Err(Error::invalid("events has room for none: give memory for at least one"));
            }
            let size = checked_size(events.cast_const())?;
            if !size.is_multiple_of(align_of::<llmcc_event>()) {
                return Err(Error::invalid(format!("llmcc_event.size is {size}; set it to sizeof(llmcc_event)")));
            }
            let watch = engine.model.watch();
            let timeout = u64::try_from(timeout_ns).ok().map(Duration::from_nanos);
            let taken = engine.service.poll(capacity, timeout, &watch)?;
            let count = taken.len();
            engine.show(taken, |i, value| {
                let at = events.byte_add(i * size);
                at.cast::<usize>().write_unaligned(size);
                write_struct(at, &value)
            })?;
            n.set(count);
        }
        Ok(())
    })
}

/// Ends a request.
///
/// # Safety
/// `handle` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_engine_cancel(handle: *const llmcc_engine, request: u64) -> i32 {
    guard(|| {
        engine(handle)?.service.cancel(request);
        Ok(())
    })
}

/// Counts of an engine, as JSON.
///
/// # Safety
/// `handle` is open, `out` has room for `capacity` bytes, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_engine_stats(
    handle: *const llmcc_engine,
    out: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        let text = engine(handle)?.service.counts().json();
        // SAFETY: the caller's promise.
        unsafe { put_text(&text, out, capacity, needed) }
    })
}

/// A descriptor that is readable while there are events.
///
/// # Safety
/// `handle` is open, `fd` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_engine_fd(handle: *const llmcc_engine, fd: *mut i32) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let fd = unsafe { Out::new(fd, "fd")? };
        fd.set(engine(handle)?.service.fd()?);
        Ok(())
    })
}

/// Closes an engine; null is fine.
///
/// # Safety
/// None: any value may be passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_engine_close(handle: *mut llmcc_engine) {
    guard_freeing(|| {
        ENGINES.close(handle, |serving| serving.service.close());
        Ok(())
    });
}
