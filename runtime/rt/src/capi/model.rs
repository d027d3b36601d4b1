//! Opening, closing and describing a model; steps.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use std::{ptr, slice};

use super::handles::MODELS;
use super::types::*;
use super::{Out, OutStruct, array, guard, guard_freeing, null, put_text, read_struct};
use crate::desk::Desk;
use crate::engine::{Batch, Engine, Io, Keep, Options, STEP, Sink};
use crate::error::{Error, Result};
use crate::eyes::Eyes;
use crate::hearing::Ears;
use crate::image::{Entry, Image};
use crate::interrupt::{Interrupts, Watch};
use crate::reserve::need;
use crate::rules::Defaults;
use crate::select;
use crate::text::{Text, Tokenizer, no_tokenizer};
use crate::unload::Alive;
use llmcc_abi::{AXES, StateDesc, state};

/// Memory that work with a text takes, in its bytes: for a token a character, with offsets and the
/// text's copies.
const TEXT_BYTES: usize = 64;
/// Memory that a tokenizer takes, in bytes of its file.
const TOKENIZER_BYTES: usize = 12;

/// The object behind a model handle. Generations share it, so closing a model while some are alive
/// is harmless.
pub struct Model {
    engine: Mutex<Engine>,
    /// Calls that wait for the engine.
    waiting: AtomicUsize,
    text: Option<Arc<Text>>,
    defaults: Defaults,
    ears: Option<Ears>,
    eyes: Option<Eyes>,
    /// Where text is encoded and templates are rendered.
    desk: Desk,
    manifest: Arc<CString>,
    interrupts: Interrupts,
    vocab: usize,
    hidden: usize,
    /// Columns of the rows that come with the tokens of each entry; 0: none do.
    given: Vec<usize>,
    process: u32,
    /// How long `llmcc_open` took.
    opening: Duration,
    /// `llmcc_close` was called.
    closed: AtomicBool,
    tokenizer_read: AtomicBool,
    /// Dropped last.
    _alive: Alive,
}

/// An open model, as C sees it: a number of [`MODELS`].
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct llmcc_model {
    _opaque: [u8; 0],
}

impl Model {
    /// Opens the version of the model that suits this machine best.
    pub fn new(images: Vec<Image>, options: &Options) -> Result<Model> {
        let engine = select::open(images, options)?;
        let image = engine.shared_image();
        let text = Text::new(&image)?;
        let defaults = crate::text::defaults(&image)?;
        let ears = Ears::of(&image)?;
        let eyes = Eyes::of(&image)?;
        let manifest = CString::new(image.manifest())
            .map_err(|_| Error::artifact("the artifact's manifest holds a NUL; compile it again"))?;
        Ok(Model {
            interrupts: engine.interrupts().clone(),
            engine: Mutex::new(engine),
            waiting: AtomicUsize::new(0),
            text: text.map(Arc::new),
            defaults,
            ears,
            eyes,
            desk: Desk::default(),
            manifest: Arc::new(manifest),
            vocab: image.desc().vocab as usize,
            hidden: image.desc().hidden as usize,
            given: image.entries.iter().map(|e| e.given).collect(),
            process: std::process::id(),
            opening: Duration::ZERO,
            closed: AtomicBool::new(false),
            tokenizer_read: AtomicBool::new(false),
            _alive: Alive::new(),
        })
    }

    /// Fails in a fork of the process, where the engine may be locked for ever, and when the model
    /// has been closed.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.forked() {
            return Err(Error::invalid("the process was forked after llmcc_open; open the model in the child instead"));
        }
        if self.closed.load(Relaxed) {
            return Err(Error::invalid("the model was closed while it was generating"));
        }
        Ok(())
    }

    /// Whether this is a fork of the process that opened the model.
    pub(super) fn forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// The manifest's text.
    pub(super) fn manifest(&self) -> Arc<CString> {
        self.manifest.clone()
    }

    /// The interruptions from now on.
    pub(super) fn watch(&self) -> Watch {
        self.interrupts.watch()
    }

    /// Entries of the vocabulary.
    pub(super) fn vocab(&self) -> usize {
        self.vocab
    }

    /// Columns of hidden states.
    pub(super) fn hidden(&self) -> usize {
        self.hidden
    }

    /// Works with `bytes` of text, on a thread of the model's own.
    ///
    /// # Errors
    /// No tokenizer; errors of `work`; no memory; an interruption.
    pub(super) fn with_text<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&Text) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        need(bytes.saturating_mul(TEXT_BYTES))?;
        let text = self.need_shared_text()?.clone();
        self.desk.run(&self.watch(), move || work(&text))
    }

    /// Works on a thread of the model's own.
    ///
    /// # Errors
    /// Errors of `work`; no memory; an interruption.
    pub(super) fn elsewhere<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        self.desk.run(&self.watch(), work)
    }

    /// The tokenizer, which is read on a thread of the model's own.
    ///
    /// # Errors
    /// No tokenizer, or one that cannot be read.
    pub(super) fn tokenizer(&self) -> Result<&Tokenizer> {
        let text = self.need_shared_text()?;
        if !self.tokenizer_read.load(Acquire) {
            need(text.tokenizer_bytes().saturating_mul(TOKENIZER_BYTES))?;
            let own = text.clone();
            self.desk.run(&self.watch(), move || own.tokenizer().map(|_| ()))?;
            self.tokenizer_read.store(true, Release);
        }
        text.tokenizer()
    }

    fn need_shared_text(&self) -> Result<&Arc<Text>> {
        self.text.as_ref().ok_or_else(no_tokenizer)
    }

    /// The engine, for one caller at a time.
    pub fn engine(&self) -> MutexGuard<'_, Engine> {
        // A panic elsewhere (never in the shipped profile, which aborts) leaves the engine usable:
        // steps commit last.
        match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(engine)) => engine.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Relaxed);
                let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
                self.waiting.fetch_sub(1, Relaxed);
                engine
            }
        }
    }

    /// Whether a call waits for the engine.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// The model's defaults for generations.
    pub(super) fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// Its knowledge of sounds, if it hears.
    pub(super) fn ears(&self) -> Option<&Ears> {
        self.ears.as_ref()
    }

    /// Its knowledge of images, if it sees.
    pub(super) fn eyes(&self) -> Option<&Eyes> {
        self.eyes.as_ref()
    }

    /// Tokenizer and templates, if any.
    pub fn text(&self) -> Option<&Text> {
        self.text.as_deref()
    }

    /// Tokenizer and templates, or the error that there are none.
    pub fn need_text(&self) -> Result<&Text> {
        self.need_shared_text().map(|text| &**text)
    }
}

/// Turns a model into a handle for `llmcc_close`.
pub fn into_handle(model: Model) -> *mut llmcc_model {
    MODELS.insert(Arc::new(model)).cast()
}

/// Opens the model in this library.
///
/// # Safety
/// `options` is null or valid, `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_open(options: *const llmcc_options, out: *mut *mut llmcc_model) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (given, out) = unsafe { (read_struct(options)?, Out::new(out, "out")?) };
        if given.flags & !(LLMCC_OPEN_PROFILE | LLMCC_OPEN_PIN | LLMCC_OPEN_PORTABLE) != 0 {
            return Err(Error::invalid(format!("llmcc_options.flags has unknown bits: {:#x}", given.flags)));
        }
        let size = |x: u64, name: &str| {
            usize::try_from(x).map_err(|_| Error::invalid(format!("{name} is {x}, which is too large")))
        };
        let options = Options {
            threads: given.threads as usize,
            max_tokens: size(given.max_tokens, "max_tokens")?,
            max_batch_tokens: size(given.max_batch_tokens, "max_batch_tokens")?,
            profile: given.flags & LLMCC_OPEN_PROFILE != 0
                || std::env::var_os("LLMCC_PROFILE").is_some_and(|v| v != "0"),
            pin: given.flags & LLMCC_OPEN_PIN != 0,
            portable: given.flags & LLMCC_OPEN_PORTABLE != 0,
        };
        let start = Instant::now();
        let mut model = Model::new(Image::load()?, &options)?;
        model.opening = start.elapsed();
        out.set(into_handle(model));
        Ok(())
    })
}

/// Closes a model; null is fine.
///
/// # Safety
/// None: any value may be passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_close(model: *mut llmcc_model) {
    guard_freeing(|| {
        MODELS.close(model, |m| m.closed.store(true, Relaxed));
        Ok(())
    });
}

/// Ends the calls that other threads have under way on a model.
///
/// # Safety
/// `model` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_interrupt(model: *const llmcc_model) -> i32 {
    guard(|| {
        MODELS.get(model)?.interrupts.ring();
        Ok(())
    })
}

/// Describes a model.
///
/// # Safety
/// `model` is open, `info` valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_info(model: *const llmcc_model, info: *mut llmcc_model_info) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, info) = unsafe { (MODELS.get(model)?, OutStruct::new(info)?) };
        let engine = model.engine();
        let (image, config) = (engine.image(), model.text().map(Text::config));
        let (desc, step) = (image.desc(), image.step());
        let tokens_of_row = |s: &StateDesc| match s.kind {
            state::PAGED => Some(1),
            state::STRIDED => Some(u64::from(s.window).max(1)),
            _ => None,
        };
        let paged = || image.states.iter().filter_map(|s| Some((s.bytes, tokens_of_row(s)?)));
        let page: u64 = paged().map(|(bytes, tokens)| bytes.div_ceil(tokens)).sum();
        let has = |yes: bool, flag: u32| if yes { flag } else { 0 };
        let value = llmcc_model_info {
            size: size_of::<llmcc_model_info>(),
            vocab: desc.vocab,
            hidden: desc.hidden,
            layers: paged().count() as u64,
            max_context: desc.max_context,
            weights_bytes: image.weights_len(),
            code_bytes: image.code_len(),
            kv_bytes_per_token: page.div_ceil(llmcc_abi::PAGE_TOKENS as u64),
            max_tokens: engine.kv().max_tokens() as u64,
            max_batch_tokens: engine.max_batch_tokens() as u64,
            activation_bytes: engine.activation_bytes(engine.max_batch_tokens(), 1) as u64,
            threads: engine.threads() as u32,
            isa: desc.isa,
            bos_token: config.and_then(|c| c.bos_id()).unwrap_or(-1),
            flags: has(config.is_some(), LLMCC_HAS_TOKENIZER)
                | has(config.is_some_and(|c| c.has_template()), LLMCC_HAS_CHAT_TEMPLATE)
                | has(model.ears().is_some(), LLMCC_HEARS)
                | entry_flags(step),
            columns: step.columns() as u64,
            output: step.kind(),
            entries: image.entries.len() as u32,
            embed_columns: image.pooled().map_or(0, |entry| image.entries[entry].columns() as u64),
            image_token: engine.placeholder().unwrap_or(-1),
            reserved: 0,
        };
        info.set(&value)
    })
}

/// Properties of an entry.
fn entry_flags(entry: &Entry) -> u32 {
    let all = [
        (entry.normalizes(), LLMCC_IS_NORMALIZED),
        (entry.whole, LLMCC_IS_WHOLE),
        (entry.types > 0, LLMCC_HAS_TYPES),
        (entry.given > 0 && entry.placeholder.is_none(), LLMCC_NEEDS_HIDDEN),
        (entry.placeholder.is_some(), LLMCC_SEES),
        (entry.hidden.is_some(), LLMCC_HAS_HIDDEN),
        (!entry.reads.is_empty(), LLMCC_NEEDS_SOURCE),
    ];
    all.into_iter().filter(|(yes, _)| *yes).fold(0, |flags, (_, flag)| flags | flag)
}

/// Describes an entry of a model, and stores its name unless `name` and `needed` are null.
///
/// # Safety
/// `model` is open, `info` valid, `name` has `capacity` bytes, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_entry(
    model: *const llmcc_model,
    index: u32,
    info: *mut llmcc_entry_info,
    name: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, info) = unsafe { (MODELS.get(model)?, OutStruct::new(info)?) };
        let engine = model.engine();
        let entries = &engine.image().entries;
        let entry = entries.get(index as usize).ok_or_else(|| {
            Error::invalid(format!("entry {index} does not exist: the model has {}, counted from 0", entries.len()))
        })?;
        if !(name.is_null() && needed.is_null()) {
            // SAFETY: the caller's promise.
            unsafe { put_text(&entry.name, name, capacity, needed)? };
        }
        info.set(&llmcc_entry_info {
            size: size_of::<llmcc_entry_info>(),
            output: entry.kind(),
            pool: entry.output.map_or(0, |o| o.pool),
            columns: entry.columns() as u64,
            flags: entry_flags(entry),
            types: entry.types as u32,
            given: entry.given as u64,
            axes: entry.axes as u64,
            context: entry.context as u64,
        })
    })
}

/// The JSON manifest; valid while the model is open. Null if `model` is no open model.
///
/// # Safety
/// None: any value may be passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_manifest(model: *const llmcc_model) -> *const c_char {
    let mut manifest = ptr::null();
    guard(|| {
        manifest = MODELS.get(model)?.manifest.as_ptr();
        Ok(())
    });
    manifest
}

/// Memory in use and, when profiling, the time of every kernel, as JSON.
///
/// # Safety
/// `model` is open, `out` has `capacity` bytes, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_stats(
    model: *const llmcc_model,
    out: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        let model = MODELS.get(model)?;
        let engine = model.engine();
        // A line for each step of a profile.
        need(256 * engine.image().steps.len())?;
        let (kv, (sms, memory_rate)) = (engine.kv(), engine.rates());
        let json = format!(
            "{{\"sequences\":{},\"kv_pages_used\":{},\"kv_bytes_used\":{},\"kv_tokens_max\":{},\"activation_bytes\":{},\"threads\":{},\
             \"device\":{},\"multiprocessors\":{},\"memory_bytes_per_second\":{},\
             \"device_bytes\":{},\"fetched_bytes\":{},\"open_ns\":{},\"profile\":{}}}",
            kv.sequences(),
            kv.used_pages(),
            kv.used_bytes(),
            kv.max_tokens(),
            engine.arena_bytes(),
            engine.threads(),
            crate::json::string(engine.device()),
            sms,
            memory_rate,
            engine.device_bytes(),
            engine.fetched_bytes(),
            engine.opened().json(model.opening),
            engine.profile_json().unwrap_or_else(|| "null".into())
        );
        // SAFETY: the caller's promise.
        unsafe { put_text(&json, out, capacity, needed) }
    })
}

/// The rows that come with the tokens of a batch for an entry. Where it takes none, they are as wide as the model: the
/// engine refuses them.
///
/// # Safety
/// As of [`llmcc_step`].
pub(super) unsafe fn hidden_rows<'a>(model: &Model, entry: usize, given: &llmcc_batch) -> Result<&'a [f32]> {
    let n = if given.hidden.is_null() { 0 } else { given.n_tokens };
    let columns = model.given.get(entry).copied().filter(|n| *n > 0).unwrap_or(model.hidden);
    let n = n.checked_mul(columns).ok_or_else(|| Error::invalid("batch.n_tokens is too large; give fewer tokens"))?;
    // SAFETY: the caller's promise.
    unsafe { array(given.hidden, n, "batch.hidden") }
}

/// The positions along axes of the tokens of a batch. Entries without axes refuse them.
///
/// # Safety
/// As of [`llmcc_step`].
pub(super) unsafe fn positions<'a>(given: &llmcc_batch) -> Result<&'a [i32]> {
    let n = if given.positions.is_null() { 0 } else { given.n_tokens };
    let n = n.checked_mul(AXES).ok_or_else(|| Error::invalid("batch.n_tokens is too large; give fewer tokens"))?;
    // SAFETY: the caller's promise.
    unsafe { array(given.positions, n, "batch.positions") }
}

/// The callback that writes the hidden states of a batch's tokens, if the batch asks for them.
///
/// # Safety
/// As of [`llmcc_step`].
pub(super) unsafe fn hidden_out(
    model: &Model,
    given: &llmcc_batch,
) -> Result<Option<impl FnMut(usize, &[f32]) + use<>>> {
    if !given.hidden_out.is_aligned() {
        return Err(Error::invalid("batch.hidden_out is misaligned"));
    }
    let (out, width) = (given.hidden_out, model.hidden);
    // SAFETY: the caller's promise: there is a row for each token.
    let keep = move |from: usize, rows: &[f32]| unsafe {
        ptr::copy_nonoverlapping(rows.as_ptr(), out.add(from * width), rows.len());
    };
    Ok((!out.is_null()).then_some(keep))
}

/// The buffer for rows of the output: room for `capacity` floats, `wanted` needed.
///
/// # Safety
/// As of [`llmcc_step`].
unsafe fn logits_out<'a>(logits: *mut f32, capacity: usize, wanted: usize) -> Result<&'a mut [MaybeUninit<f32>]> {
    let n = wanted.min(capacity);
    if logits.is_null() && n > 0 {
        return Err(null("logits"));
    }
    if !logits.is_aligned() {
        return Err(Error::invalid("logits is misaligned"));
    }
    if n == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the caller's promise: a buffer of his own, which may hold anything.
    Ok(unsafe { slice::from_raw_parts_mut(logits.cast(), n) })
}

/// Appends a ragged batch and stores the wanted rows of the output, f32 `[n_out, columns]`.
///
/// # Safety
/// `model` is open, `batch` valid, `logits` has `capacity` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_step(
    model: *const llmcc_model,
    batch: *const llmcc_batch,
    logits: *mut f32,
    capacity: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    guard(|| unsafe { run(model, STEP, batch, (logits, capacity)) })
}

/// [`llmcc_step`] by any entry of the model, whose columns the rows have.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_run(
    model: *const llmcc_model,
    entry: u32,
    batch: *const llmcc_batch,
    rows: *mut f32,
    capacity: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    guard(|| unsafe { run(model, entry as usize, batch, (rows, capacity)) })
}

/// # Safety
/// As of [`llmcc_step`].
unsafe fn run(
    model: *const llmcc_model,
    entry: usize,
    batch: *const llmcc_batch,
    (out, capacity): (*mut f32, usize),
) -> Result<()> {
    // SAFETY: the caller's promise.
    let (model, given) = unsafe { (MODELS.get(model)?, read_struct(batch)?) };
    if batch.is_null() {
        return Err(null("batch"));
    }
    // SAFETY: the caller's promise.
    let batch = unsafe {
        Batch {
            tokens: array(given.tokens, given.n_tokens, "batch.tokens")?,
            seqs: array(given.seqs, given.n_tokens, "batch.seqs")?,
            out_rows: array(given.out_rows, given.n_out, "batch.out_rows")?,
            hidden: hidden_rows(&model, entry, &given)?,
            positions: positions(&given)?,
            ..Batch::default()
        }
    };
    let mut engine = model.engine();
    let columns = engine.image().entries.get(entry).map_or(0, Entry::columns);
    // SAFETY: the caller's promise.
    let out = unsafe { logits_out(out, capacity, batch.out_rows.len().saturating_mul(columns))? };
    // SAFETY: the caller's promise.
    let mut keep = unsafe { hidden_out(&model, &given)? };
    let keep = keep.as_mut().map(|keep| keep as Keep);
    engine.run(entry, Io { batch: &batch, wants: &[], rows: Sink::Memory(out), keep, taps: None })
}
