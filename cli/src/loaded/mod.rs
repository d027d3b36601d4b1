//! An artifact, opened through the C API inside it: the same entry points that C and Python
//! programs use.

mod adapters;
mod audio;
mod compress;
mod corpus;
mod engine;
mod generation;
mod images;
mod pairs;
mod sequences;
mod step;
mod taps;

pub use step::{stand_in_source, stand_ins};

use crate::Error;
use crate::stamp::Stamp;
pub use corpus::Corpus;
pub use engine::{Engine, Event, Request};
pub use generation::{Drafter, Form, GenOptions, Generation, Guesses, Piece};
use llmcc_codegen::artifact;
use llmcc_codegen::locate::locate;
use llmcc_ir::output::Pool;
use llmcc_ir::target::Machine;
pub use llmcc_model::Clip;
use llmcc_model::Version;
use llmcc_model::sys::*;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

/// `LLMCC_E_CPU` of the header: this machine runs no version of the model.
const NOT_THIS_MACHINE: i32 = 3;

/// How to open an artifact. Zero means: the runtime's default.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineOptions {
    /// Threads.
    pub threads: u32,
    /// Tokens in the KV cache.
    pub max_tokens: u64,
    /// Measure every kernel.
    pub profile: bool,
    /// Keep each thread on a processor of its own.
    pub pin: bool,
    /// The same bits on every processor.
    pub portable: bool,
}

/// Sizes of an opened model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Info {
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Model width.
    pub hidden: usize,
    /// Columns of the output.
    pub columns: usize,
    /// Columns of a row of pooled output; 0: the artifact makes none.
    pub embed_columns: usize,
    /// Its kind (`LLMCC_OUTPUT_*`).
    pub output: u32,
    /// Whether a sequence is computed in one step.
    pub whole: bool,
    /// Entries.
    pub entries: usize,
    /// Whether it writes texts about sources.
    pub needs_source: bool,
    /// Whether its sources are clips of sound.
    pub hears: bool,
    /// Longest sequence.
    pub max_context: usize,
    /// Threads in use.
    pub threads: usize,
    /// Tokens taken through the kernels at once.
    pub max_batch_tokens: usize,
    /// Tokens that the cache holds.
    pub cache_tokens: usize,
    /// Whether the artifact has a chat template.
    pub chat_template: bool,
    /// Instruction-set level of the version that runs (`llmcc_abi::isa`).
    pub isa: u32,
}

impl Info {
    fn of(info: &llmcc_model_info) -> Info {
        Info {
            vocab: info.vocab as usize,
            hidden: info.hidden as usize,
            columns: info.columns as usize,
            embed_columns: info.embed_columns as usize,
            output: info.output,
            whole: info.flags & LLMCC_IS_WHOLE != 0,
            entries: info.entries as usize,
            needs_source: info.flags & LLMCC_NEEDS_SOURCE != 0,
            hears: info.flags & LLMCC_HEARS != 0,
            max_context: info.max_context as usize,
            threads: info.threads as usize,
            max_batch_tokens: info.max_batch_tokens as usize,
            cache_tokens: info.max_tokens as usize,
            chat_template: info.flags & LLMCC_HAS_CHAT_TEMPLATE != 0,
            isa: info.isa,
        }
    }
}

/// An entry of a model.
#[derive(Clone, Copy, Debug)]
pub struct EntryInfo {
    /// Columns of its output.
    pub columns: usize,
    /// Whether a sequence is computed in one step.
    pub whole: bool,
    /// Columns of the rows that come with tokens (hidden states, of a draft head); 0: none do.
    pub given: usize,
    /// Whether it leaves hidden states.
    pub keeps_hidden: bool,
    /// Longest sequence, where that is not the model's.
    pub context: Option<usize>,
}

/// An open model.
pub struct Model {
    path: PathBuf,
    api: Api,
    model: *mut RawModel,
    info: Info,
    /// Its entries, by their numbers.
    entries: Vec<EntryInfo>,
    /// Minor version of its API.
    minor: u32,
    // Dropped last: the code of everything above.
    library: Arc<libloading::Library>,
}

impl Model {
    /// Opens an artifact. The file is checked before any of its code runs.
    ///
    /// # Errors
    /// Not an artifact, damaged, or not for this machine.
    pub fn open(path: &Path, options: EngineOptions) -> Result<Model, Error> {
        let stamp = Stamp::of(path);
        Model::open_checked(path, options).map_err(|e| stamp.explain(e))
    }

    fn open_checked(path: &Path, options: EngineOptions) -> Result<Model, Error> {
        locate(path)?;
        let fail = |message: String| Error::Artifact { path: path.to_owned(), message };
        // dlopen searches the system's folders for a name without a slash.
        let full = match path.starts_with("/proc/self/fd") {
            // It has no other name.
            true => path.to_owned(),
            false => std::fs::canonicalize(path).map_err(|e| Error::io("read", path, e))?,
        };
        // SAFETY: the file is an artifact made by this compiler; its initialisers do no more than
        // Rust's runtime.
        let library = unsafe { libloading::Library::new(&full) }.map_err(|e| fail(why_not_loaded(&full, &e)))?;
        // SAFETY: as above; the version is checked before anything else is called.
        let api = unsafe { Api::load(&library) }.map_err(|e| fail(e.message().to_owned()))?;
        // SAFETY: takes nothing.
        let minor = Version::of(unsafe { (api.llmcc_abi_version)() }).minor;
        let raw = llmcc_options {
            size: size_of::<llmcc_options>(),
            threads: options.threads,
            flags: [
                (options.profile, LLMCC_OPEN_PROFILE),
                (options.pin, LLMCC_OPEN_PIN),
                (options.portable, LLMCC_OPEN_PORTABLE),
            ]
            .into_iter()
            .map(|(on, flag)| if on { flag } else { 0 })
            .sum(),
            max_tokens: options.max_tokens,
            max_batch_tokens: 0,
        };
        let mut model = ptr::null_mut();
        // SAFETY: both pointers are valid during the call.
        let status = unsafe { (api.llmcc_open)(&raw, &mut model) };
        match status {
            0 => {}
            NOT_THIS_MACHINE => return Err(Error::Machine { path: path.to_owned(), message: last_error(&api) }),
            _ => return Err(fail(last_error(&api))),
        }
        let (info, entries) = (Info::default(), vec![]);
        let mut m = Model { path: path.to_owned(), api, model, info, entries, minor, library: Arc::new(library) };
        let mut info = llmcc_model_info { size: size_of::<llmcc_model_info>(), ..llmcc_model_info::default() };
        // SAFETY: the model is open; `info` is valid.
        m.check(unsafe { (m.api.llmcc_info)(m.model, &mut info) })?;
        m.info = Info::of(&info);
        m.entries = (0..m.info.entries).map(|entry| m.read_entry(entry)).collect::<Result<_, _>>()?;
        Ok(m)
    }

    fn check(&self, status: i32) -> Result<(), Error> {
        if status == 0 {
            Ok(())
        } else {
            Err(Error::Artifact { path: self.path.clone(), message: last_error(&self.api) })
        }
    }

    /// Name of the machine that computes: `CPU`, or the GPU's.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn device(&self) -> Result<String, Error> {
        Ok(self.statistic("device")?.as_str().unwrap_or("?").to_owned())
    }

    /// Bytes per second of the memory of the GPU that computes, as its driver says; `None` on a CPU, and
    /// where the driver does not say.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn memory_rate(&self) -> Result<Option<f64>, Error> {
        Ok(self.statistic("memory_bytes_per_second")?.as_f64().filter(|rate| *rate > 0.0))
    }

    /// A member of [`Model::stats`]; null where there is none.
    fn statistic(&self, name: &str) -> Result<serde_json::Value, Error> {
        let mut stats: serde_json::Value = serde_json::from_str(&self.stats()?).unwrap_or_default();
        Ok(stats.get_mut(name).map(serde_json::Value::take).unwrap_or_default())
    }

    /// Describes entry `entry`.
    ///
    /// # Errors
    /// There is no such entry.
    pub fn entry(&self, entry: usize) -> Result<EntryInfo, Error> {
        match self.entries.get(entry) {
            Some(known) => Ok(*known),
            // The artifact says why not.
            None => self.read_entry(entry),
        }
    }

    /// Asks the artifact about an entry.
    fn read_entry(&self, entry: usize) -> Result<EntryInfo, Error> {
        let mut info = llmcc_entry_info { size: size_of::<llmcc_entry_info>(), ..llmcc_entry_info::default() };
        let entry = u32::try_from(entry).unwrap_or(u32::MAX);
        // SAFETY: `info` is valid; no name is asked for.
        self.check(unsafe {
            (self.api.llmcc_entry)(self.model, entry, &mut info, ptr::null_mut(), 0, ptr::null_mut())
        })?;
        Ok(EntryInfo {
            columns: info.columns as usize,
            whole: info.flags & LLMCC_IS_WHOLE != 0,
            given: match info.given as usize {
                // An artifact of a version before 1.7.
                0 if info.flags & LLMCC_NEEDS_HIDDEN != 0 => self.info.hidden,
                given => given,
            },
            keeps_hidden: info.flags & LLMCC_HAS_HIDDEN != 0,
            context: Some(info.context as usize).filter(|n| *n > 0 && *n != self.info.max_context),
        })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sizes.
    pub fn info(&self) -> Info {
        self.info
    }

    /// The manifest, JSON.
    pub fn manifest(&self) -> String {
        // SAFETY: the string lives as long as the model.
        let text = unsafe { (self.api.llmcc_manifest)(self.model) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: NUL-terminated by contract.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Memory in use and, if asked for when opening, time per kernel; JSON.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn stats(&self) -> Result<String, Error> {
        self.text(|out, capacity, needed| {
            // SAFETY: `out` has room for `capacity` bytes.
            unsafe { (self.api.llmcc_stats)(self.model, out, capacity, needed) }
        })
    }

    /// The output of each row of tokens, pooled: `[rows.len(), columns]`. `normalize`: to length 1;
    /// `None`: as the model says.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn embed(&self, rows: &[Vec<i32>], normalize: Option<bool>) -> Result<Vec<f32>, Error> {
        self.embed_typed(rows, &[], normalize)
    }

    /// The same, pooled as `pooling` says; `None`: as the model says.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn embed_as(
        &self,
        rows: &[Vec<i32>],
        normalize: Option<bool>,
        pooling: Option<Pool>,
    ) -> Result<Vec<f32>, Error> {
        self.embedded(rows, &[], normalize, pooling.map_or(0, artifact::pool))
    }

    /// The same of tokens with types, as many as there are tokens, or none: as texts alone have them.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn embed_typed(
        &self,
        rows: &[Vec<i32>],
        types: &[Vec<i32>],
        normalize: Option<bool>,
    ) -> Result<Vec<f32>, Error> {
        self.embedded(rows, types, normalize, 0)
    }

    fn embedded(
        &self,
        rows: &[Vec<i32>],
        types: &[Vec<i32>],
        normalize: Option<bool>,
        pool: u32,
    ) -> Result<Vec<f32>, Error> {
        let (tokens, lengths) = (rows.concat(), rows.iter().map(Vec::len).collect::<Vec<_>>());
        let types = types.concat();
        assert!(types.is_empty() || types.len() == tokens.len(), "a type for each token");
        let mut out = vec![0f32; rows.len() * self.info.embed_columns];
        let given = llmcc_embed_rows {
            size: size_of::<llmcc_embed_rows>(),
            n_rows: rows.len(),
            lengths: lengths.as_ptr(),
            tokens: tokens.as_ptr(),
            flags: normalize.map_or(0, |yes| if yes { LLMCC_EMBED_NORMALIZE } else { LLMCC_EMBED_RAW }),
            pool,
            types: if types.is_empty() { ptr::null() } else { types.as_ptr() },
        };
        // SAFETY: arrays have the lengths stated.
        self.check(unsafe { (self.api.llmcc_embed)(self.model, &given, out.as_mut_ptr(), out.len()) })?;
        Ok(out)
    }

    /// Tokens of a text; `special` adds the special tokens around a plain prompt.
    ///
    /// # Errors
    /// No tokenizer in the artifact.
    pub fn tokenize(&self, text: &str, special: bool) -> Result<Vec<i32>, Error> {
        self.tokenize_with(text, if special { LLMCC_ADD_SPECIAL } else { 0 })
    }

    /// Tokens of an embedder's text that begins with the prompt that it is to have.
    ///
    /// # Errors
    /// As [`Model::tokenize`].
    pub fn tokenize_prompted(&self, text: &str) -> Result<Vec<i32>, Error> {
        self.tokenize_with(text, LLMCC_ADD_SPECIAL | LLMCC_NO_PROMPT)
    }

    fn tokenize_with(&self, text: &str, flags: u32) -> Result<Vec<i32>, Error> {
        let call = |out: *mut i32, capacity, needed: &mut usize| {
            // SAFETY: the text has the length stated, `out` room for `capacity` tokens.
            unsafe {
                (self.api.llmcc_tokenize)(self.model, text.as_ptr().cast(), text.len(), flags, out, capacity, needed)
            }
        };
        let mut needed = 0;
        self.check(call(ptr::null_mut(), 0, &mut needed))?;
        let mut ids = vec![0; needed];
        self.check(call(ids.as_mut_ptr(), needed, &mut needed))?;
        Ok(ids)
    }

    /// The text of tokens, without special ones. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// No tokenizer in the artifact, or a token outside the vocabulary.
    pub fn detokenize(&self, tokens: &[i32]) -> Result<String, Error> {
        self.text(|out, capacity, needed| {
            let (start, n) = (tokens.as_ptr(), tokens.len());
            // SAFETY: the array has this length, `out` room for `capacity` bytes.
            unsafe { (self.api.llmcc_detokenize)(self.model, start, n, 0, out, capacity, needed) }
        })
    }

    /// The prompt for a conversation (JSON messages).
    ///
    /// # Errors
    /// No chat template, or it refuses the conversation.
    pub fn apply_chat_template(&self, messages: &str) -> Result<String, Error> {
        self.text(|out, capacity, needed| {
            // SAFETY: as in `tokenize`.
            unsafe {
                (self.api.llmcc_apply_chat_template)(
                    self.model,
                    messages.as_ptr().cast(),
                    messages.len(),
                    out,
                    capacity,
                    needed,
                )
            }
        })
    }

    /// The elements that a call stores; `guess`: how many there may be. The call is made again where there are more.
    fn fetch<T: Copy + Default>(
        &self,
        guess: usize,
        call: impl Fn(*mut T, usize, &mut usize) -> i32,
    ) -> Result<Vec<T>, Error> {
        let (mut out, mut needed) = (vec![T::default(); guess.max(1)], 0);
        loop {
            let status = call(out.as_mut_ptr(), out.len(), &mut needed);
            if needed <= out.len() {
                self.check(status)?;
                out.truncate(needed);
                return Ok(out);
            }
            out.resize(needed, T::default());
        }
    }

    /// Asks for the length of a text, then for the text.
    fn text(&self, call: impl Fn(*mut c_char, usize, &mut usize) -> i32) -> Result<String, Error> {
        let mut needed = 0;
        self.check(call(ptr::null_mut(), 0, &mut needed))?;
        let mut bytes = vec![0u8; needed + 1];
        self.check(call(bytes.as_mut_ptr().cast(), bytes.len(), &mut needed))?;
        bytes.truncate(needed);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: generations borrow the model, so none is alive.
        unsafe { (self.api.llmcc_close)(self.model) }
    }
}

/// Why the loader refuses an artifact, in its words or better ones.
fn why_not_loaded(path: &Path, error: &libloading::Error) -> String {
    if let Ok(found) = machine(path)
        && found != std::env::consts::ARCH
    {
        return format!("it is for {found}, and this machine is {}; compile it for this one", std::env::consts::ARCH);
    }
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    format!("it cannot be loaded: {cause}")
}

/// The architecture in the header of an ELF file.
fn machine(path: &Path) -> std::io::Result<String> {
    let mut head = [0; 20];
    std::io::Read::read_exact(&mut std::fs::File::open(path)?, &mut head)?;
    let elf = u16::from_le_bytes([head[18], head[19]]);
    Ok(Machine::of_elf(elf).map_or_else(|| format!("ELF machine {elf}"), |machine| machine.name().into()))
}

fn last_error(api: &Api) -> String {
    // SAFETY: never null, NUL-terminated, valid until this thread's next failure.
    unsafe { CStr::from_ptr((api.llmcc_last_error)()) }.to_string_lossy().into_owned()
}
