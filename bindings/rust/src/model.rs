//! An open model: how it is loaded, asked and closed.

use crate::capi::*;
use crate::error::{Error, Result, Status};
use crate::info::Info;
use crate::spelling::fresh;
use crate::sys::{Api, RawModel, RawStatus, flags};
use crate::version::Version;
use libloading::Library;
use std::ffi::{CStr, c_char};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How to open a model. The default leaves everything to the runtime.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Threads; 0: one per physical core that this process may use.
    pub threads: u32,
    /// Tokens that the cache holds for all sequences together; 0: the longest context, at least 16384,
    /// or as many as fit in half of the memory.
    pub max_tokens: u64,
    /// Tokens that are computed at once; 0: 512, on a GPU 2048.
    pub max_batch_tokens: u64,
    /// Measure every kernel: [`Model::stats`] has the times.
    pub profile: bool,
    /// Keep each thread on a processor of its own.
    pub pin: bool,
    /// The same bits of logits on every processor.
    pub portable: bool,
}

impl Options {
    fn raw(&self) -> llmcc_options {
        llmcc_options {
            size: size_of::<llmcc_options>(),
            threads: self.threads,
            flags: flags([
                (self.profile, LLMCC_OPEN_PROFILE),
                (self.pin, LLMCC_OPEN_PIN),
                (self.portable, LLMCC_OPEN_PORTABLE),
            ]),
            max_tokens: self.max_tokens,
            max_batch_tokens: self.max_batch_tokens,
        }
    }
}

/// An open model, with its threads and its cache. Calls of several threads wait for each other.
pub struct Model {
    api: Api,
    handle: *mut RawModel,
    info: Info,
    /// Generations that are not freed. One that was leaked keeps threads in the library's code.
    generations: AtomicUsize,
    // Dropped last and by hand: the code of everything above.
    library: ManuallyDrop<Library>,
}

// SAFETY: the C API may be called from any thread; its calls on one model wait for each other.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

impl Model {
    /// Loads the artifact at `path` and opens its model.
    ///
    /// # Errors
    /// No artifact, damaged, of another version of the C API, or not for this machine.
    ///
    /// # Safety
    /// An artifact is a program: its code runs in this process. The file must have been made by
    /// `llmcc compile`, nobody else may have changed it (`llmcc verify` tells), and nobody may cut it
    /// short or write into it while it is open.
    pub unsafe fn open(path: impl AsRef<Path>, options: &Options) -> Result<Model> {
        let path = path.as_ref();
        // SAFETY: as promised to this function.
        unsafe { Model::load(path, options) }.map_err(|e| e.of_file(path))
    }

    /// # Safety
    /// As [`Model::open`].
    unsafe fn load(path: &Path, options: &Options) -> Result<Model> {
        // The loader searches the system's folders for a name without a slash.
        let full = match path.starts_with("/proc/self/fd") {
            // It has no other name.
            true => path.to_owned(),
            false => {
                let found = std::fs::canonicalize(path);
                fresh(found.map_err(|e| Error::new(Status::System, format!("cannot read: {e}")))?)
            }
        };
        // SAFETY: as promised to this function; its initialisers do no more than Rust's runtime.
        let library = unsafe { Library::new(full) }.map_err(|e| Error::new(Status::Artifact, not_loaded(&e)))?;
        // SAFETY: as above.
        let api = unsafe { Api::load(&library) }?;
        let mut handle = ptr::null_mut();
        // SAFETY: both pointers are valid during the call.
        check(&api, unsafe { (api.llmcc_open)(&options.raw(), &mut handle) })?;
        let mut raw = llmcc_model_info { size: size_of::<llmcc_model_info>(), ..llmcc_model_info::default() };
        // SAFETY: the model is open, `raw` is valid.
        let asked = check(&api, unsafe { (api.llmcc_info)(handle, &mut raw) });
        let (info, generations) = (Info::of(&raw), AtomicUsize::new(0));
        let model = Model { api, handle, info, generations, library: ManuallyDrop::new(library) };
        asked.map(|()| model)
    }

    /// Sizes and abilities.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The version of the C API that the artifact speaks.
    pub fn version(&self) -> Version {
        // SAFETY: it takes nothing.
        Version::of(unsafe { (self.api.llmcc_abi_version)() })
    }

    /// The manifest, JSON: source, options, formats, hashes.
    pub fn manifest(&self) -> &str {
        // SAFETY: the model is open; the string is NUL-terminated and lives as long as the model.
        let text = unsafe {
            let text = (self.api.llmcc_manifest)(self.handle);
            if text.is_null() { c"" } else { CStr::from_ptr(text) }
        };
        text.to_str().unwrap_or_default()
    }

    /// Memory in use and, with [`Options::profile`], the time of every kernel; JSON.
    ///
    /// # Errors
    /// The system refuses memory.
    pub fn stats(&self) -> Result<String> {
        self.text(1024, |out, capacity, needed| {
            // SAFETY: `out` has room for `capacity` bytes.
            unsafe { (self.api.llmcc_stats)(self.handle, out, capacity, needed) }
        })
    }

    /// Ends the calls that other threads have under way: they fail with [`Status::Interrupted`].
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn interrupt(&self) -> Result<()> {
        // SAFETY: the model is open.
        self.check(unsafe { (self.api.llmcc_interrupt)(self.handle) })
    }

    /// The entry points of its artifact, for calls that this crate has no method for.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Its handle for the entry points. Closing it closes the model: then every method fails.
    pub fn handle(&self) -> *mut RawModel {
        self.handle
    }

    /// The error of a call that has just returned this status on this thread.
    ///
    /// # Errors
    /// A status other than 0.
    pub fn check(&self, status: RawStatus) -> Result<()> {
        check(&self.api, status)
    }

    /// How many generations and engines are not freed.
    pub(crate) fn generations(&self) -> &AtomicUsize {
        &self.generations
    }

    /// The elements that a call stores; `guess`: how many there may be.
    pub(crate) fn fetch<T: Copy + Default>(
        &self,
        guess: usize,
        call: impl Fn(*mut T, usize, &mut usize) -> RawStatus,
    ) -> Result<Vec<T>> {
        let mut out = vec![T::default(); guess.max(1)];
        loop {
            let mut needed = 0;
            match self.check(call(out.as_mut_ptr(), out.len(), &mut needed)) {
                // (Texts need one more, for their NUL.)
                Err(e) if e.status() == Status::Buffer && needed >= out.len() => out.resize(needed + 1, T::default()),
                Err(e) => return Err(e),
                Ok(()) => {
                    out.truncate(needed);
                    return Ok(out);
                }
            }
        }
    }

    /// The text that a call stores; `guess`: how many bytes it may have.
    pub(crate) fn text(
        &self,
        guess: usize,
        call: impl Fn(*mut c_char, usize, &mut usize) -> RawStatus,
    ) -> Result<String> {
        let bytes = self.fetch(guess + 1, |out: *mut u8, capacity, needed| call(out.cast(), capacity, needed))?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: closed once; the generations that are left keep what they need.
        unsafe { (self.api.llmcc_close)(self.handle) };
        // A leaked generation keeps the model's threads: their code must stay.
        if self.generations.load(Ordering::SeqCst) == 0 {
            // SAFETY: dropped once, and nothing of it is used any more.
            unsafe { ManuallyDrop::drop(&mut self.library) };
        }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("info", &self.info).field("version", &self.version()).finish_non_exhaustive()
    }
}

fn check(api: &Api, status: RawStatus) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: never null, NUL-terminated, valid until this thread's next failure.
    let message = unsafe { CStr::from_ptr((api.llmcc_last_error)()) };
    Err(Error::new(Status::of(status), message.to_string_lossy()))
}

/// Why the loader refuses a file, in its own words.
fn not_loaded(error: &libloading::Error) -> String {
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    format!("it cannot be loaded: {cause}")
}
