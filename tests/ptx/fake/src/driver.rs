//! The state of the driver: one device, its memory, and the objects behind handles.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use llmcc_ptx::{Memory, Module, Options, launch_bytes};

use crate::code::Code;

/// Shared memory that a kernel may have without asking for more.
const DEFAULT_SHARED: u32 = 48 * 1024;
/// No buffer is there.
const WILD: u64 = 1 << 60;
/// Copies and fills go in pieces of this size.
const PIECE: usize = 1 << 20;

/// Settings from the environment.
pub(crate) struct Settings {
    pub sm: u32,
    pub memory: u64,
    options: Options,
    pub log: bool,
    /// Faults to inject, with their kernels.
    inject: Vec<(Injected, String)>,
}

/// Faults on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Injected {
    Fault,
    Hang,
}

/// A kernel, and how much dynamic shared memory it may have.
pub(crate) struct Function {
    pub module: usize,
    pub name: String,
    pub shared: u32,
    /// Preferred percentage of shared memory; -1: the driver's choice.
    pub carveout: i32,
}

/// A capture under way on a stream.
#[derive(Default)]
pub(crate) struct Capture {
    pub work: Vec<Work>,
    /// In the global mode.
    pub global: bool,
    /// A thread made a forbidden call while this is under way.
    pub invalid: bool,
}

/// Something given to a stream.
#[derive(Clone)]
pub(crate) enum Work {
    Launch {
        module: Arc<Module>,
        name: String,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        params: Vec<u8>,
        /// It may begin before the launch before has ended.
        overlaps: bool,
    },
    /// From host memory, whose address is read when the work is done.
    ToDevice {
        to: u64,
        from: usize,
        len: usize,
    },
    ToHost {
        to: usize,
        from: u64,
        len: usize,
    },
    OnDevice {
        to: u64,
        from: u64,
        len: usize,
    },
    Fill {
        to: u64,
        value: u8,
        len: usize,
    },
}

/// The driver.
#[derive(Default)]
pub(crate) struct Driver {
    pub started: bool,
    /// Uses of the primary context.
    pub contexts: u32,
    /// A kernel failed: the context is of no use any more.
    lost: bool,
    pub memory: Memory,
    next: usize,
    pub modules: HashMap<usize, Arc<Module>>,
    pub functions: HashMap<usize, Function>,
    /// Streams, and the capture under way on each.
    pub streams: HashMap<usize, Option<Capture>>,
    pub graphs: HashMap<usize, Vec<Work>>,
    pub execs: HashMap<usize, Vec<Work>>,
    /// When each event was recorded.
    pub events: HashMap<usize, Option<Instant>>,
    /// Pinned host memory: address and layout.
    pub hosts: HashMap<usize, std::alloc::Layout>,
}

thread_local! {
    /// Stack of current contexts; there is only one context, but it must be current.
    pub(crate) static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// How captures elsewhere bind this thread.
    pub(crate) static CAPTURE_MODE: Cell<c_int> = const { Cell::new(0) };
}

/// Handle of the primary context.
pub(crate) const CONTEXT: usize = 0x1000;

pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let number =
            |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
        let allow = std::env::var("LLMCC_FAKE_CUDA_ALLOW").unwrap_or_default();
        let allowed = |what: &str| allow.split(',').any(|a| a.trim() == what);
        Settings {
            sm: number("LLMCC_FAKE_CUDA_SM", 90) as u32,
            memory: number("LLMCC_FAKE_CUDA_MEMORY", 16 << 30),
            options: Options {
                check_uninitialised: !allowed("uninitialised"),
                check_races: !allowed("races"),
                ..Options::default()
            },
            log: std::env::var_os("LLMCC_FAKE_CUDA_LOG").is_some(),
            inject: injected(&std::env::var("LLMCC_FAKE_CUDA_INJECT").unwrap_or_default()),
        }
    })
}

fn injected(text: &str) -> Vec<(Injected, String)> {
    let one = |item: &str| match item.trim().split_once(':') {
        Some(("fault", kernel)) => Some((Injected::Fault, kernel.to_owned())),
        Some(("hang", kernel)) => Some((Injected::Hang, kernel.to_owned())),
        _ => None,
    };
    text.split(',').filter_map(one).collect()
}

/// The mode of threads that are not bound by captures elsewhere.
const RELAXED: c_int = 2;

/// The driver, for one call.
pub(crate) fn lock() -> MutexGuard<'static, Driver> {
    static DRIVER: OnceLock<Mutex<Driver>> = OnceLock::new();
    DRIVER.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver with a usable context current on this thread.
pub(crate) fn current() -> Result<MutexGuard<'static, Driver>, Code> {
    let d = lock();
    if !d.started {
        return Err(Code::NOT_INITIALIZED);
    }
    if d.contexts == 0 || CURRENT.with_borrow(|c| c.last() != Some(&CONTEXT)) {
        return Err(Code::INVALID_CONTEXT);
    }
    if d.lost { Err(Code::ILLEGAL_ADDRESS) } else { Ok(d) }
}

/// The driver as [`current`], for a call that no capture in the global mode survives.
pub(crate) fn current_uncaptured() -> Result<MutexGuard<'static, Driver>, Code> {
    let mut d = current()?;
    if CAPTURE_MODE.get() != RELAXED
        && let Some(capture) = d.streams.values_mut().flatten().find(|c| c.global)
    {
        capture.invalid = true;
        return Err(Code::CAPTURE_UNSUPPORTED);
    }
    Ok(d)
}

fn report(what: &dyn std::fmt::Display) {
    eprintln!("fake CUDA driver: {what}");
}

impl Driver {
    /// A new handle.
    pub fn handle(&mut self) -> usize {
        self.next += 16;
        CONTEXT + self.next
    }

    /// Loads PTX text; `Err` has the text for the log.
    pub fn load(&mut self, text: &str) -> Result<usize, (Code, String)> {
        let module = Module::parse(text).map_err(|e| (Code::INVALID_PTX, e.to_string()))?;
        let target = module.target();
        let number: u32 = target
            .trim_start_matches("sm_")
            .trim_end_matches(|c: char| c.is_ascii_alphabetic())
            .parse()
            .unwrap_or(u32::MAX);
        let exact = target.ends_with(|c: char| c.is_ascii_alphabetic());
        let sm = settings().sm;
        if number > sm || (exact && number != sm) {
            return Err((Code::NO_BINARY_FOR_GPU, format!("PTX for {target} on a device of compute capability {sm}")));
        }
        let handle = self.handle();
        self.modules.insert(handle, Arc::new(module));
        Ok(handle)
    }

    /// A handle of kernel `name` of `module`.
    pub fn function(&mut self, module: usize, name: &str) -> Result<usize, Code> {
        let m = self.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        m.kernel(name).ok_or(Code::NOT_FOUND)?;
        let handle = self.handle();
        self.functions.insert(handle, Function { module, name: name.to_owned(), shared: DEFAULT_SHARED, carveout: -1 });
        Ok(handle)
    }

    /// Bytes that are not allocated.
    pub fn free(&self) -> u64 {
        settings().memory.saturating_sub(self.memory.allocated())
    }

    /// Does `work` now, or notes it if the stream is being captured.
    pub fn submit(&mut self, stream: usize, work: Work) -> Result<(), Code> {
        if stream != 0
            && let Some(captured) = self.streams.get_mut(&stream).ok_or(Code::INVALID_HANDLE)?
        {
            captured.work.push(work);
            return Ok(());
        }
        self.run(&work)
    }

    pub fn run(&mut self, work: &Work) -> Result<(), Code> {
        let done = match work {
            Work::Launch { module, name, grid, block, shared, params, overlaps } => {
                self.launch(module, name, *grid, *block, (*shared, *overlaps), params)
            }
            Work::ToDevice { to, from, len } => {
                // SAFETY: the caller of the driver says that `len` bytes are there when the work is
                // done.
                let data = unsafe { std::slice::from_raw_parts(*from as *const u8, *len) };
                self.memory.write(*to, data).map_err(|k| k.to_string())
            }
            Work::ToHost { to, from, len } => {
                // SAFETY: as above.
                let data = unsafe { std::slice::from_raw_parts_mut(*to as *mut u8, *len) };
                self.memory.read(*from, *len).map(|b| data.copy_from_slice(b)).map_err(|k| k.to_string())
            }
            Work::OnDevice { to, from, len } => self.memory.copy(*to, *from, *len).map_err(|k| k.to_string()),
            Work::Fill { to, value, len } => self.fill(*to, *value, *len),
        };
        done.map_err(|what| {
            report(&what);
            self.lost = true;
            Code::ILLEGAL_ADDRESS
        })
    }

    fn fill(&mut self, to: u64, value: u8, len: usize) -> Result<(), String> {
        let piece = vec![value; PIECE.min(len)];
        let mut at = 0;
        while at < len {
            let n = PIECE.min(len - at);
            self.memory.write(to + at as u64, &piece[..n]).map_err(|k| k.to_string())?;
            at += n;
        }
        Ok(())
    }

    fn launch(
        &mut self,
        module: &Module,
        name: &str,
        grid: [u32; 3],
        block: [u32; 3],
        (shared, overlaps): (u32, bool),
        params: &[u8],
    ) -> Result<(), String> {
        match settings().inject.iter().find(|(_, kernel)| kernel == name) {
            Some((Injected::Fault, _)) => self.memory.write(WILD, &[0]).map_err(|k| k.to_string())?,
            // The caller never comes back, as if it waited for the stream.
            Some((Injected::Hang, _)) => loop {
                std::thread::sleep(Duration::from_secs(60));
            },
            None => {}
        }
        let start = Instant::now();
        let options = Options { overlaps, ..settings().options.clone() };
        let stats = launch_bytes(module, name, grid, block, u64::from(shared), params, &mut self.memory, &options)
            .map_err(|f| f.to_string())?;
        if settings().log {
            let s = start.elapsed().as_secs_f64();
            let (n, c) = (stats.instructions, stats.bank_conflicts);
            let (r, w) = (stats.read, stats.written);
            eprintln!(
                "fake CUDA driver: {name} {grid:?} x {block:?}: {n} instructions, {c} bank conflicts, {r} bytes read, {w} written, {s:.4} s"
            );
        }
        Ok(())
    }

    /// The last user of the context left: everything on the device goes.
    pub fn reset(&mut self) {
        let (started, next, hosts) = (self.started, self.next, std::mem::take(&mut self.hosts));
        *self = Driver { started, next, hosts, ..Driver::default() };
    }
}
