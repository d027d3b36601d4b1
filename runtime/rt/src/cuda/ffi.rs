//! The CUDA driver API as far as the runtime needs it: one table of entry points, filled from the
//! driver's own library at run time, so that an artifact depends on nothing but the driver. Names,
//! types and constants are as in `cuda.h`.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::ptr;

/// `CUresult`.
pub type CuResult = c_int;
/// `CUdevice`.
pub type CuDevice = c_int;
/// `CUdeviceptr`.
pub type CuPtr = u64;
/// `CUcontext`, `CUmodule`, `CUfunction`, `CUstream`, `CUevent`, `CUgraph`, `CUgraphExec`,
/// `CUgraphNode`.
pub type CuHandle = *mut c_void;

/// `CUDA_SUCCESS`.
pub const SUCCESS: CuResult = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: CuResult = 2;
/// `CUDA_ERROR_NO_DEVICE`.
pub const NO_DEVICE: CuResult = 100;
/// `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`.
pub const UNSUPPORTED_PTX_VERSION: CuResult = 222;

/// Whether every later call in this context fails as well: uncorrectable errors of memory or links,
/// and whatever ends a kernel from within (illegal addresses, time limits, assertions, illegal
/// instructions, misaligned addresses, ...).
pub const fn loses_context(code: CuResult) -> bool {
    matches!(code, 214 | 220 | 700 | 702 | 710 | 714..=719 | 721)
}

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
pub const ATTRIBUTE_SMS: c_int = 16;
/// `CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE`, in kHz.
pub const ATTRIBUTE_MEMORY_CLOCK: c_int = 36;
/// `CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH`, in bits.
pub const ATTRIBUTE_MEMORY_BUS: c_int = 37;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
pub const ATTRIBUTE_MAJOR: c_int = 75;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
pub const ATTRIBUTE_MINOR: c_int = 76;
/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`.
pub const ATTRIBUTE_SHARED: c_int = 97;
/// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`.
pub const FUNC_MAX_THREADS: c_int = 0;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub const FUNC_DYNAMIC_SHARED: c_int = 8;
/// `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`: percent of a multiprocessor's memory that
/// should be shared memory, the rest being first-level cache.
pub const FUNC_CARVEOUT: c_int = 9;
/// `CU_JIT_ERROR_LOG_BUFFER` and its size.
pub const JIT_ERROR: (c_int, c_int) = (5, 6);
/// `CU_STREAM_NON_BLOCKING`: the stream does not wait for the host program's default stream.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads of the host program do not disturb a
/// capture.
pub const CAPTURE_THREAD_LOCAL: c_int = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: this thread disturbs no capture of others, either.
pub const CAPTURE_RELAXED: c_int = 2;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: the launch may begin before the one before
/// has ended.
pub const LAUNCH_OVERLAPS: c_int = 6;
/// The first CUDA version whose graphs keep [`LAUNCH_OVERLAPS`] of the launches captured.
pub const OVERLAPS_IN_GRAPHS: (c_int, c_int) = (12, 3);
/// `CU_EVENT_DEFAULT`: with times.
pub const EVENT_DEFAULT: c_uint = 0;

/// `CUlaunchAttribute`.
#[repr(C)]
pub struct LaunchAttribute {
    /// Which attribute it is, [`LAUNCH_OVERLAPS`].
    pub id: c_int,
    padding: c_int,
    /// Its value, an `int` in the first bytes.
    pub value: [u64; 8],
}

impl LaunchAttribute {
    /// An attribute whose value is an `int`.
    pub const fn of_int(id: c_int, value: c_int) -> LaunchAttribute {
        // The first four bytes of a little-endian word.
        LaunchAttribute { id, padding: 0, value: [value as u64, 0, 0, 0, 0, 0, 0, 0] }
    }
}

/// `CUlaunchConfig`.
#[repr(C)]
#[allow(missing_docs, reason = "the names are those of `cuda.h`")]
pub struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub stream: CuHandle,
    pub attributes: *mut LaunchAttribute,
    pub attribute_count: c_uint,
}

/// `cuLaunchKernelEx`.
pub type LaunchWith = unsafe extern "C" fn(
    config: *const LaunchConfig,
    function: CuHandle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult;

macro_rules! entry_points {
    ($($field:ident: $symbol:literal ($($arg:ident: $ty:ty),*),)*) => {
        /// Addresses of the driver's functions. Every call needs the arguments `cuda.h` asks for.
        #[derive(Clone, Copy)]
        pub struct Api {
            $(#[doc = concat!("`", $symbol, "`")] pub $field: unsafe extern "C" fn($($arg: $ty),*) -> CuResult,)*
            /// `cuLaunchKernelEx`, which drivers before CUDA 11.8 lack.
            pub launch_with: Option<LaunchWith>,
        }

        /// Every function the runtime takes from the driver.
        pub const ENTRY_POINTS: &[&str] = &[$($symbol),*];

        impl Api {
            /// Fills the table by name; fails with the first name that `find` does not know.
            ///
            /// # Safety
            /// `find` returns the address of the function of that name and of `cuda.h`'s type.
            unsafe fn from_names(find: impl Fn(&'static str) -> *mut c_void) -> Result<Api, &'static str> {
                $(
                    let address = find($symbol);
                    if address.is_null() {
                        return Err($symbol);
                    }
                    // SAFETY: the caller's promise; an address has the size of a function pointer.
                    let $field = unsafe { transmute_copy::<*mut c_void, unsafe extern "C" fn($($ty),*) -> CuResult>(&address) };
                )*
                let address = find("cuLaunchKernelEx");
                let found = !address.is_null();
                // SAFETY: as above.
                let launch_with = found.then(|| unsafe { transmute_copy::<*mut c_void, LaunchWith>(&address) });
                Ok(Api { $($field,)* launch_with })
            }
        }
    };
}

entry_points! {
    init: "cuInit" (flags: c_uint),
    driver_version: "cuDriverGetVersion" (version: *mut c_int),
    error_name: "cuGetErrorName" (error: CuResult, name: *mut *const c_char),
    error_string: "cuGetErrorString" (error: CuResult, text: *mut *const c_char),
    device_count: "cuDeviceGetCount" (count: *mut c_int),
    device_get: "cuDeviceGet" (device: *mut CuDevice, ordinal: c_int),
    device_name: "cuDeviceGetName" (name: *mut c_char, len: c_int, device: CuDevice),
    device_attribute: "cuDeviceGetAttribute" (value: *mut c_int, attribute: c_int, device: CuDevice),
    context_retain: "cuDevicePrimaryCtxRetain" (context: *mut CuHandle, device: CuDevice),
    context_release: "cuDevicePrimaryCtxRelease_v2" (device: CuDevice),
    context_push: "cuCtxPushCurrent_v2" (context: CuHandle),
    context_pop: "cuCtxPopCurrent_v2" (context: *mut CuHandle),
    memory_info: "cuMemGetInfo_v2" (free: *mut usize, total: *mut usize),
    memory_alloc: "cuMemAlloc_v2" (address: *mut CuPtr, bytes: usize),
    memory_free: "cuMemFree_v2" (address: CuPtr),
    host_alloc: "cuMemHostAlloc" (address: *mut *mut c_void, bytes: usize, flags: c_uint),
    host_free: "cuMemFreeHost" (address: *mut c_void),
    copy_to_device: "cuMemcpyHtoDAsync_v2" (to: CuPtr, from: *const c_void, bytes: usize, stream: CuHandle),
    copy_to_host: "cuMemcpyDtoHAsync_v2" (to: *mut c_void, from: CuPtr, bytes: usize, stream: CuHandle),
    copy_on_device: "cuMemcpyDtoDAsync_v2" (to: CuPtr, from: CuPtr, bytes: usize, stream: CuHandle),
    fill: "cuMemsetD8Async" (address: CuPtr, value: u8, bytes: usize, stream: CuHandle),
    stream_create: "cuStreamCreate" (stream: *mut CuHandle, flags: c_uint),
    stream_destroy: "cuStreamDestroy_v2" (stream: CuHandle),
    stream_synchronize: "cuStreamSynchronize" (stream: CuHandle),
    capture_begin: "cuStreamBeginCapture_v2" (stream: CuHandle, mode: c_int),
    capture_end: "cuStreamEndCapture" (stream: CuHandle, graph: *mut CuHandle),
    capture_exchange: "cuThreadExchangeStreamCaptureMode" (mode: *mut c_int),
    graph_instantiate: "cuGraphInstantiateWithFlags" (exec: *mut CuHandle, graph: CuHandle, flags: u64),
    graph_launch: "cuGraphLaunch" (exec: CuHandle, stream: CuHandle),
    graph_destroy: "cuGraphDestroy" (graph: CuHandle),
    graph_exec_destroy: "cuGraphExecDestroy" (exec: CuHandle),
    module_load: "cuModuleLoadDataEx" (module: *mut CuHandle, image: *const c_void, n: c_uint, options: *mut c_int, values: *mut *mut c_void),
    module_unload: "cuModuleUnload" (module: CuHandle),
    module_function: "cuModuleGetFunction" (function: *mut CuHandle, module: CuHandle, name: *const c_char),
    function_get: "cuFuncGetAttribute" (value: *mut c_int, attribute: c_int, function: CuHandle),
    function_set: "cuFuncSetAttribute" (function: CuHandle, attribute: c_int, value: c_int),
    launch: "cuLaunchKernel" (function: CuHandle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: CuHandle, parameters: *mut *mut c_void, extra: *mut *mut c_void),
    event_create: "cuEventCreate" (event: *mut CuHandle, flags: c_uint),
    event_record: "cuEventRecord" (event: CuHandle, stream: CuHandle),
    event_synchronize: "cuEventSynchronize" (event: CuHandle),
    event_elapsed: "cuEventElapsedTime" (milliseconds: *mut f32, from: CuHandle, to: CuHandle),
    event_destroy: "cuEventDestroy_v2" (event: CuHandle),
}

/// Names under which the driver's library is looked for, unless [`LIBRARY_VARIABLE`] is set.
pub const LIBRARIES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
/// Environment variable with the path of the driver's library.
pub const LIBRARY_VARIABLE: &str = "LLMCC_CUDA_LIBRARY";

/// Why there is no driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// No library; the loader's reason.
    NoLibrary(String),
    /// The library lacks a function.
    NoFunction(&'static str),
}

impl Api {
    /// Opens the driver's library. It stays in the process: drivers do not survive being unloaded.
    pub fn load() -> Result<Api, LoadError> {
        let named = std::env::var(LIBRARY_VARIABLE).ok().filter(|name| !name.is_empty());
        let names = named.as_deref().map_or(LIBRARIES.to_vec(), |name| vec![name]);
        let mut reason = String::new();
        for name in names {
            let Ok(c_name) = CString::new(name) else { continue };
            // SAFETY: loading the driver's library runs its initialisers, as in every program that
            // uses CUDA.
            let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if handle.is_null() {
                // The reason for the first name: that of a system with a driver.
                if reason.is_empty() {
                    reason = loader_error();
                }
                continue;
            }
            let find = |symbol: &'static str| match CString::new(symbol) {
                // SAFETY: an open library.
                Ok(symbol) => unsafe { libc::dlsym(handle, symbol.as_ptr()) },
                Err(_) => ptr::null_mut(),
            };
            // SAFETY: a library with these names has functions of these types.
            return unsafe { Api::from_names(find) }.map_err(LoadError::NoFunction);
        }
        Err(LoadError::NoLibrary(reason))
    }

    /// The meaning of `code`: its name and the driver's text.
    pub fn describe(&self, code: CuResult) -> String {
        let text = |f: unsafe extern "C" fn(CuResult, *mut *const c_char) -> CuResult| {
            let mut p: *const c_char = ptr::null();
            // SAFETY: the driver stores a static string, or nothing for an unknown code.
            unsafe {
                (f(code, &mut p) == SUCCESS && !p.is_null()).then(|| CStr::from_ptr(p).to_string_lossy().into_owned())
            }
        };
        match (text(self.error_name), text(self.error_string)) {
            (Some(name), Some(string)) => format!("{name} ({string})"),
            (Some(name), None) => name,
            _ => format!("CUDA error {code}"),
        }
    }
}

fn loader_error() -> String {
    // SAFETY: after a failed dlopen; the text is copied at once.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            String::from("unknown reason")
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}
