//! A CUDA driver for tests: its functions behind the runtime's table, device memory in this
//! process, kernels as Rust functions. All state belongs to the calling thread, so tests do not
//! disturb each other. It refuses the same calls as a real driver: calls without a context,
//! launches of sizes that do not exist, memory it has not given out.
#![allow(dead_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use llmcc_rt::cuda::ffi::{Api, CuHandle, CuPtr, CuResult};

pub const ILLEGAL_ADDRESS: CuResult = 700;
pub const INVALID_CONTEXT: CuResult = 201;
pub const INVALID_PTX: CuResult = 218;
pub const UNSUPPORTED_PTX: CuResult = 222;
pub const NO_BINARY: CuResult = 209;
pub const NOT_FOUND: CuResult = 500;
const INVALID_VALUE: CuResult = 1;
const OUT_OF_MEMORY: CuResult = 2;

/// A kernel: parameters and launch.
pub type Kernel = fn(&Launch);

/// One launch.
#[derive(Clone, Debug)]
pub struct Launch {
    pub name: String,
    pub parameters: Vec<u64>,
    pub grid: [u32; 3],
    pub threads: u32,
    pub shared: u32,
}

/// The driver's state.
pub struct Mock {
    pub devices: i32,
    pub capability: (i32, i32),
    pub memory: usize,
    /// Answer to cubins.
    pub cubin: CuResult,
    /// Answer to PTX, with a log.
    pub ptx: (CuResult, &'static str),
    /// The function that fails, after this many calls, with this code.
    pub fail: Option<(&'static str, usize, CuResult)>,
    pub calls: HashMap<&'static str, usize>,
    /// Kernels by entry, with their number of parameters.
    pub kernels: HashMap<&'static str, (Kernel, usize)>,
    pub launches: Vec<Launch>,
    allocations: BTreeMap<u64, Vec<u64>>,
    bytes: usize,
    contexts: usize,
    retained: usize,
    handles: HashMap<usize, Handle>,
    next: usize,
    capture: Option<Vec<Launch>>,
    /// How captures elsewhere bind this thread: 0 is CUDA's global mode.
    pub capture_mode: c_int,
    /// Preferred share of shared memory, of the functions that were given one.
    pub carveouts: Vec<c_int>,
    clock: f32,
    /// Copies between host and device that were started and not waited for: they take place as late
    /// as they may.
    queue: VecDeque<Copy>,
    /// Copies that were started so far.
    started: usize,
}

/// A copy under way.
struct Copy {
    number: usize,
    from: *const u8,
    to: *mut u8,
    bytes: usize,
}

enum Handle {
    Module,
    Function(String),
    Stream,
    /// Time, and copies that had been started.
    Event(f32, usize),
    Graph(Vec<Launch>),
    Host(#[allow(dead_code)] Vec<u64>),
}

thread_local! {
    static MOCK: RefCell<Mock> = RefCell::new(Mock::new());
}

impl Mock {
    fn new() -> Mock {
        Mock {
            devices: 1,
            capability: (9, 0),
            memory: 1 << 30,
            cubin: 0,
            ptx: (0, ""),
            fail: None,
            calls: HashMap::new(),
            kernels: HashMap::new(),
            launches: Vec::new(),
            allocations: BTreeMap::new(),
            bytes: 0,
            contexts: 0,
            retained: 0,
            handles: HashMap::new(),
            next: 1,
            capture: None,
            capture_mode: 0,
            carveouts: Vec::new(),
            clock: 0.0,
            queue: VecDeque::new(),
            started: 0,
        }
    }

    fn handle(&mut self, handle: Handle) -> CuHandle {
        self.next += 1;
        self.handles.insert(self.next, handle);
        ptr::without_provenance_mut(self.next)
    }

    fn close(&mut self, handle: CuHandle) -> CuResult {
        if self.handles.remove(&handle.addr()).is_some() { 0 } else { INVALID_VALUE }
    }
}

/// Starts afresh with `kernels`.
pub fn reset(kernels: &[(&'static str, Kernel, usize)]) {
    with(|m| {
        *m = Mock::new();
        m.kernels = kernels.iter().map(|(name, k, n)| (*name, (*k, *n))).collect();
    });
}

/// Looks at or changes the state.
pub fn with<T>(f: impl FnOnce(&mut Mock) -> T) -> T {
    MOCK.with_borrow_mut(f)
}

/// Calls of `name` so far.
pub fn calls(name: &str) -> usize {
    with(|m| m.calls.get(name).copied().unwrap_or(0))
}

/// Everything given out has come back, and no context is left on the thread.
pub fn assert_clean() {
    with(|m| {
        assert!(
            m.allocations.is_empty() && m.handles.is_empty(),
            "{} allocations, {} handles left",
            m.allocations.len(),
            m.handles.len()
        );
        assert_eq!((m.contexts, m.retained, m.capture.is_some(), m.capture_mode), (0, 0, false, 0));
    });
}

/// A pointer to `len` bytes of device memory, which must lie in one allocation.
pub fn device(address: u64, len: usize) -> *mut u8 {
    with(|m| m.check(address, len)).unwrap_or_else(|_| panic!("no device memory at {address:#x}, {len} bytes"));
    ptr::with_exposed_provenance_mut(address as usize)
}

impl Mock {
    /// Bytes of device memory in use.
    pub fn used(&self) -> usize {
        self.bytes
    }

    /// Bytes of pinned memory in use.
    pub fn pinned(&self) -> usize {
        self.handles.values().map(|h| if let Handle::Host(memory) = h { 8 * memory.len() } else { 0 }).sum()
    }

    /// The first `len` bytes of the only allocation of device memory that has so many.
    pub fn contents(&self, len: usize) -> Vec<u8> {
        let mut large = self.allocations.values().filter(|memory| 8 * memory.len() >= len);
        let (Some(found), None) = (large.next(), large.next()) else { panic!("not one allocation of {len} bytes") };
        found.iter().flat_map(|word| word.to_ne_bytes()).take(len).collect()
    }

    fn start_copy(&mut self, from: *const u8, to: *mut u8, bytes: usize) {
        self.started += 1;
        self.queue.push_back(Copy { number: self.started, from, to, bytes });
    }

    /// The first so many copies take place.
    fn copy_until(&mut self, number: usize) {
        while let Some(copy) = self.queue.front().filter(|c| c.number <= number) {
            // SAFETY: both sides were checked, and live on: nothing is freed before all copies.
            unsafe { ptr::copy_nonoverlapping(copy.from, copy.to, copy.bytes) };
            self.queue.pop_front();
        }
    }

    fn check(&self, address: u64, len: usize) -> Result<(), CuResult> {
        let (start, memory) = self.allocations.range(..=address).next_back().ok_or(INVALID_VALUE)?;
        if address + len as u64 <= start + 8 * memory.len() as u64 { Ok(()) } else { Err(INVALID_VALUE) }
    }
}

/// Counts a call and lets it fail if it should; then `f`.
fn call(name: &'static str, needs_context: bool, f: impl FnOnce(&mut Mock) -> Result<(), CuResult>) -> CuResult {
    with(|m| {
        let count = m.calls.entry(name).or_default();
        *count += 1;
        if let Some((_, after, code)) = m.fail.filter(|(which, ..)| *which == name) {
            if after == 0 {
                if name == "cuStreamEndCapture" {
                    // It ends in any case.
                    m.capture = None;
                }
                return code;
            }
            m.fail = Some((name, after - 1, code));
        }
        if needs_context && m.contexts == 0 {
            return INVALID_CONTEXT;
        }
        // Calls that another thread's capture would not survive.
        let unsafe_call = [
            "cuMemAlloc_v2",
            "cuMemFree_v2",
            "cuMemHostAlloc",
            "cuMemFreeHost",
            "cuStreamSynchronize",
            "cuEventSynchronize",
        ]
        .contains(&name);
        assert!(!unsafe_call || m.capture_mode == 2, "{name} in capture mode {}", m.capture_mode);
        f(m).err().unwrap_or(0)
    })
}

/// Defines functions of the driver: `name(arguments) context? |mock| body;`
macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),*) $needs:literal |$m:ident| $body:expr;)*) => {
        $(
            #[allow(non_snake_case)]
            unsafe extern "C" fn $name($($arg: $ty),*) -> CuResult {
                #[allow(unused_unsafe)]
                // SAFETY: the runtime passes arguments as cuda.h requires; that is under test.
                call(stringify!($name), $needs, |$m| unsafe { $body })
            }
        )*
    };
}

fn put<T>(at: *mut T, value: T) -> Result<(), CuResult> {
    // SAFETY: a result the caller of the driver provides.
    unsafe { at.write(value) };
    Ok(())
}

fn text(code: CuResult, at: *mut *const c_char, name: bool) -> Result<(), CuResult> {
    let (short, long) = match code {
        OUT_OF_MEMORY => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        ILLEGAL_ADDRESS => (c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
        INVALID_PTX => (c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
        _ => return Err(INVALID_VALUE),
    };
    put(at, if name { short.as_ptr() } else { long.as_ptr() })
}

functions! {
    cuInit(_flags: c_uint) false |m| { let _ = m; Ok(()) };
    cuDriverGetVersion(version: *mut c_int) false |_m| put(version, 12040);
    cuGetErrorName(code: CuResult, at: *mut *const c_char) false |_m| text(code, at, true);
    cuGetErrorString(code: CuResult, at: *mut *const c_char) false |_m| text(code, at, false);
    cuDeviceGetCount(count: *mut c_int) false |m| put(count, m.devices);
    cuDeviceGet(device: *mut c_int, ordinal: c_int) false |m| if ordinal < m.devices { put(device, ordinal) } else { Err(101) };
    cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) false |_m| {
        assert!(len > 8);
        ptr::copy_nonoverlapping(c"Mock GPU".as_ptr(), name, 9);
        Ok(())
    };
    cuDeviceGetAttribute(value: *mut c_int, which: c_int, _device: c_int) false |m| put(value, match which {
        16 => 4,
        75 => m.capability.0,
        76 => m.capability.1,
        97 => 227 << 10,
        _ => return Err(INVALID_VALUE),
    });
    cuDevicePrimaryCtxRetain(context: *mut CuHandle, _device: c_int) false |m| {
        m.retained += 1;
        put(context, ptr::without_provenance_mut(1))
    };
    cuDevicePrimaryCtxRelease_v2(_device: c_int) false |m| { m.retained -= 1; Ok(()) };
    cuCtxPushCurrent_v2(_context: CuHandle) false |m| { m.contexts += 1; Ok(()) };
    cuCtxPopCurrent_v2(_context: *mut CuHandle) true |m| { m.contexts -= 1; Ok(()) };
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) true |m| { put(total, m.memory)?; put(free, m.memory - m.bytes) };
    cuMemAlloc_v2(address: *mut CuPtr, bytes: usize) true |m| {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if m.bytes + bytes > m.memory {
            return Err(OUT_OF_MEMORY);
        }
        // Not zero, so that reads of unwritten memory show.
        let memory = vec![0xa5a5_a5a5_a5a5_a5a5_u64; bytes.div_ceil(8)];
        m.bytes += 8 * memory.len();
        let at = memory.as_ptr().expose_provenance() as u64;
        m.allocations.insert(at, memory);
        put(address, at)
    };
    cuMemFree_v2(address: CuPtr) true |m| {
        m.copy_until(usize::MAX);
        let memory = m.allocations.remove(&address).ok_or(INVALID_VALUE)?;
        m.bytes -= 8 * memory.len();
        Ok(())
    };
    cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, _flags: c_uint) true |m| {
        let mut memory = vec![u64::MAX; bytes.div_ceil(8)];
        let at: *mut c_void = memory.as_mut_ptr().cast();
        m.handles.insert(at.addr(), Handle::Host(memory));
        put(address, at)
    };
    cuMemFreeHost(address: *mut c_void) true |m| {
        m.copy_until(usize::MAX);
        if m.close(address) == 0 { Ok(()) } else { Err(INVALID_VALUE) }
    };
    cuMemcpyHtoDAsync_v2(to: CuPtr, from: *const c_void, bytes: usize, _stream: CuHandle) true |m| {
        assert!(m.capture.is_none());
        m.check(to, bytes)?;
        m.start_copy(from.cast(), ptr::with_exposed_provenance_mut(to as usize), bytes);
        Ok(())
    };
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CuPtr, bytes: usize, _stream: CuHandle) true |m| {
        assert!(m.capture.is_none());
        m.check(from, bytes)?;
        m.start_copy(ptr::with_exposed_provenance(from as usize), to.cast(), bytes);
        Ok(())
    };
    cuMemcpyDtoDAsync_v2(to: CuPtr, from: CuPtr, bytes: usize, _stream: CuHandle) true |m| {
        m.check(from, bytes)?;
        m.check(to, bytes)?;
        m.copy_until(usize::MAX);
        ptr::copy_nonoverlapping(ptr::with_exposed_provenance::<u8>(from as usize), ptr::with_exposed_provenance_mut(to as usize), bytes);
        Ok(())
    };
    cuMemsetD8Async(address: CuPtr, value: u8, bytes: usize, _stream: CuHandle) true |m| {
        m.check(address, bytes)?;
        m.copy_until(usize::MAX);
        ptr::write_bytes(ptr::with_exposed_provenance_mut::<u8>(address as usize), value, bytes);
        Ok(())
    };
    cuStreamCreate(stream: *mut CuHandle, _flags: c_uint) true |m| put(stream, m.handle(Handle::Stream));
    cuStreamDestroy_v2(stream: CuHandle) true |m| { assert_eq!(m.close(stream), 0); Ok(()) };
    cuStreamSynchronize(_stream: CuHandle) true |m| { assert!(m.capture.is_none()); m.copy_until(usize::MAX); Ok(()) };
    cuStreamBeginCapture_v2(_stream: CuHandle, _mode: c_int) true |m| {
        assert!(m.capture.is_none());
        m.capture = Some(Vec::new());
        Ok(())
    };
    cuStreamEndCapture(_stream: CuHandle, graph: *mut CuHandle) true |m| {
        let launches = m.capture.take().ok_or(INVALID_VALUE)?;
        put(graph, m.handle(Handle::Graph(launches)))
    };
    cuThreadExchangeStreamCaptureMode(mode: *mut c_int) false |m| { ptr::swap(mode, &mut m.capture_mode); Ok(()) };
    cuGraphInstantiateWithFlags(exec: *mut CuHandle, graph: CuHandle, _flags: u64) true |m| {
        let Some(Handle::Graph(launches)) = m.handles.get(&graph.addr()) else { return Err(INVALID_VALUE) };
        let launches = launches.clone();
        put(exec, m.handle(Handle::Graph(launches)))
    };
    cuGraphDestroy(graph: CuHandle) true |m| { assert_eq!(m.close(graph), 0); Ok(()) };
    cuGraphExecDestroy(graph: CuHandle) true |m| { assert_eq!(m.close(graph), 0); Ok(()) };
    cuModuleLoadDataEx(module: *mut CuHandle, image: *const c_void, n: c_uint, options: *mut c_int, values: *mut *mut c_void) true |m| {
        if image.cast::<[u8; 4]>().read() == *b"\x7fELF" {
            return if m.cubin == 0 { put(module, m.handle(Handle::Module)) } else { Err(m.cubin) };
        }
        assert!(CStr::from_ptr(image.cast()).to_str().unwrap().contains(".entry"));
        if m.ptx.0 != 0 {
            let options = std::slice::from_raw_parts(options, n as usize);
            let at = options.iter().position(|o| *o == 5).unwrap();
            let room = values.add(options.iter().position(|o| *o == 6).unwrap()).read().addr();
            assert!(m.ptx.1.len() < room);
            ptr::copy_nonoverlapping(m.ptx.1.as_ptr(), values.add(at).read().cast(), m.ptx.1.len());
            return Err(m.ptx.0);
        }
        put(module, m.handle(Handle::Module))
    };
    cuModuleUnload(module: CuHandle) true |m| {
        assert_eq!(m.close(module), 0);
        // Functions go with their module.
        m.handles.retain(|_, h| !matches!(h, Handle::Function(_)));
        Ok(())
    };
    cuModuleGetFunction(function: *mut CuHandle, module: CuHandle, name: *const c_char) true |m| {
        assert!(m.handles.contains_key(&module.addr()));
        let name = CStr::from_ptr(name).to_str().unwrap().to_owned();
        if !m.kernels.contains_key(name.as_str()) {
            return Err(NOT_FOUND);
        }
        put(function, m.handle(Handle::Function(name)))
    };
    cuFuncGetAttribute(value: *mut c_int, which: c_int, _function: CuHandle) true |_m| {
        assert_eq!(which, 0);
        put(value, 1024)
    };
    cuFuncSetAttribute(_function: CuHandle, which: c_int, value: c_int) true |m| {
        match which {
            8 => {}
            9 => m.carveouts.push(value),
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    };
    cuEventCreate(event: *mut CuHandle, _flags: c_uint) true |m| put(event, m.handle(Handle::Event(0.0, 0)));
    cuEventRecord(event: CuHandle, _stream: CuHandle) true |m| {
        m.clock += 0.5;
        m.handles.insert(event.addr(), Handle::Event(m.clock, m.started));
        Ok(())
    };
    cuEventSynchronize(event: CuHandle) true |m| {
        let Some(Handle::Event(_, copies)) = m.handles.get(&event.addr()) else { panic!("no event") };
        m.copy_until(*copies);
        Ok(())
    };
    cuEventElapsedTime(ms: *mut f32, from: CuHandle, to: CuHandle) true |m| {
        match (&m.handles[&from.addr()], &m.handles[&to.addr()]) {
            (Handle::Event(from, _), Handle::Event(to, _)) => put(ms, to - from),
            _ => Err(INVALID_VALUE),
        }
    };
    cuEventDestroy_v2(event: CuHandle) true |m| { assert_eq!(m.close(event), 0); Ok(()) };
}

/// Runs launches, outside the borrow of the state: kernels look into device memory.
fn execute(launches: Vec<Launch>) {
    for launch in launches {
        let (kernel, _) = with(|m| m.kernels[launch.name.as_str()]);
        kernel(&launch);
        with(|m| m.launches.push(launch));
    }
}

#[allow(non_snake_case)]
unsafe extern "C" fn cuGraphLaunch(exec: CuHandle, _stream: CuHandle) -> CuResult {
    let mut launches = Vec::new();
    let code = call("cuGraphLaunch", true, |m| match m.handles.get(&exec.addr()) {
        Some(Handle::Graph(l)) => {
            launches = l.clone();
            m.copy_until(usize::MAX);
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    });
    execute(launches);
    code
}

#[allow(non_snake_case, clippy::too_many_arguments)]
unsafe extern "C" fn cuLaunchKernel(
    function: CuHandle,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    threads: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    shared: c_uint,
    _stream: CuHandle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    let mut now = None;
    let code = call("cuLaunchKernel", true, |m| {
        let Some(Handle::Function(name)) = m.handles.get(&function.addr()) else { return Err(INVALID_VALUE) };
        assert!(extra.is_null() && (threads_y, threads_z) == (1, 1));
        if x == 0 || y == 0 || z == 0 || y > 65535 || z > 65535 || threads == 0 || threads > 1024 {
            return Err(INVALID_VALUE);
        }
        let (_, count) = m.kernels[name.as_str()];
        // SAFETY: one pointer per parameter of the kernel, each to 8 bytes.
        let parameters = unsafe { (0..count).map(|i| parameters.add(i).read().cast::<u64>().read()).collect() };
        let launch = Launch { name: name.clone(), parameters, grid: [x, y, z], threads, shared };
        match &mut m.capture {
            Some(capture) => capture.push(launch),
            None => {
                now = Some(launch);
                m.copy_until(usize::MAX);
            }
        }
        Ok(())
    });
    execute(now.into_iter().collect());
    code
}

/// The table of this driver.
pub fn api() -> Api {
    Api {
        init: cuInit,
        driver_version: cuDriverGetVersion,
        error_name: cuGetErrorName,
        error_string: cuGetErrorString,
        device_count: cuDeviceGetCount,
        device_get: cuDeviceGet,
        device_name: cuDeviceGetName,
        device_attribute: cuDeviceGetAttribute,
        context_retain: cuDevicePrimaryCtxRetain,
        context_release: cuDevicePrimaryCtxRelease_v2,
        context_push: cuCtxPushCurrent_v2,
        context_pop: cuCtxPopCurrent_v2,
        memory_info: cuMemGetInfo_v2,
        memory_alloc: cuMemAlloc_v2,
        memory_free: cuMemFree_v2,
        host_alloc: cuMemHostAlloc,
        host_free: cuMemFreeHost,
        copy_to_device: cuMemcpyHtoDAsync_v2,
        copy_to_host: cuMemcpyDtoHAsync_v2,
        copy_on_device: cuMemcpyDtoDAsync_v2,
        fill: cuMemsetD8Async,
        stream_create: cuStreamCreate,
        stream_destroy: cuStreamDestroy_v2,
        stream_synchronize: cuStreamSynchronize,
        capture_begin: cuStreamBeginCapture_v2,
        capture_end: cuStreamEndCapture,
        capture_exchange: cuThreadExchangeStreamCaptureMode,
        graph_instantiate: cuGraphInstantiateWithFlags,
        graph_launch: cuGraphLaunch,
        graph_destroy: cuGraphDestroy,
        graph_exec_destroy: cuGraphExecDestroy,
        module_load: cuModuleLoadDataEx,
        module_unload: cuModuleUnload,
        module_function: cuModuleGetFunction,
        function_get: cuFuncGetAttribute,
        function_set: cuFuncSetAttribute,
        launch: cuLaunchKernel,
        event_create: cuEventCreate,
        event_record: cuEventRecord,
        event_synchronize: cuEventSynchronize,
        event_elapsed: cuEventElapsedTime,
        event_destroy: cuEventDestroy_v2,
        launch_with: None,
    }
}
