//! The driver's entry points, with the names and types of `cuda.h`.
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    missing_docs,
    clippy::undocumented_unsafe_blocks,
    reason = "the names and contracts are those of the CUDA driver API"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::time::Instant;

use crate::code::Code;
use crate::cubin;
use crate::driver::{
    CAPTURE_MODE, CONTEXT, CURRENT, Capture, Driver, Work, current, current_uncaptured, lock, settings,
};

type Handle = *mut c_void;

fn code(r: Result<(), Code>) -> Code {
    r.err().unwrap_or(Code::SUCCESS)
}

/// Writes a result, if there is a place for it.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller of the driver gives a place for the result.
    unsafe { to.write(value) };
    Ok(())
}

fn handle(h: usize) -> Handle {
    std::ptr::without_provenance_mut(h)
}

/// With a usable context.
fn with(f: impl FnOnce(&mut Driver) -> Result<(), Code>) -> Code {
    code(current().and_then(|mut d| f(&mut d)))
}

/// With a usable context, for calls that no capture in the global mode survives.
fn with_uncaptured(f: impl FnOnce(&mut Driver) -> Result<(), Code>) -> Code {
    code(current_uncaptured().and_then(|mut d| f(&mut d)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: c_uint) -> Code {
    if flags != 0 {
        return Code::INVALID_VALUE;
    }
    lock().started = true;
    Code::SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Code {
    code(unsafe { put(version, 12090) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: Code, name: *mut *const c_char) -> Code {
    match error.texts() {
        Some((n, _)) => code(unsafe { put(name, n.as_ptr()) }),
        None => Code::INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: Code, text: *mut *const c_char) -> Code {
    match error.texts() {
        Some((_, t)) => code(unsafe { put(text, t.as_ptr()) }),
        None => Code::INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Code {
    code(unsafe { put(count, 1) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Code {
    if !lock().started {
        return Code::NOT_INITIALIZED;
    }
    if ordinal == 0 { code(unsafe { put(device, 0) }) } else { Code::INVALID_DEVICE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> Code {
    let text = format!("PTX emulator (sm_{})", settings().sm);
    if device != 0 || name.is_null() || len <= 0 {
        return Code::INVALID_VALUE;
    }
    let n = text.len().min(len as usize - 1);
    // SAFETY: the caller gives `len` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast::<u8>(), n);
        name.add(n).write(0);
    }
    Code::SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> Code {
    if device != 0 {
        return Code::INVALID_DEVICE;
    }
    let sm = settings().sm as c_int;
    let v = match attribute {
        // Threads of a block, warp size, shared memory of a block, multiprocessors, threads of a
        // multiprocessor.
        1 => 1024,
        2 | 3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        8 => 48 * 1024,
        10 => 32,
        12 => 65536,
        16 => 132,
        // The memory's clock in kHz, and its bus in bits: an H200's.
        36 => 3_201_000,
        37 => 6144,
        39 => 2048,
        // Compute capability.
        75 => sm / 10,
        76 => sm % 10,
        // Shared memory of a multiprocessor and, on request, of a block.
        81 => 228 * 1024,
        97 => match sm {
            80 => 163 * 1024,
            86 | 89 => 99 * 1024,
            _ => 227 * 1024,
        },
        _ => return Code::INVALID_VALUE,
    };
    code(unsafe { put(value, v) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> Code {
    if device == 0 { code(unsafe { put(bytes, settings().memory as usize) }) } else { Code::INVALID_DEVICE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> Code {
    let mut d = lock();
    if !d.started {
        return Code::NOT_INITIALIZED;
    }
    if device != 0 {
        return Code::INVALID_DEVICE;
    }
    d.contexts += 1;
    code(unsafe { put(context, handle(CONTEXT)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Code {
    let mut d = lock();
    if device != 0 || d.contexts == 0 {
        return Code::INVALID_CONTEXT;
    }
    d.contexts -= 1;
    if d.contexts == 0 {
        d.reset();
    }
    Code::SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> Code {
    if context.addr() != CONTEXT || lock().contexts == 0 {
        return Code::INVALID_CONTEXT;
    }
    CURRENT.with_borrow_mut(|c| c.push(CONTEXT));
    Code::SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut Handle) -> Code {
    match CURRENT.with_borrow_mut(Vec::pop) {
        Some(c) => code(unsafe { put(context, handle(c)) }),
        None => Code::INVALID_CONTEXT,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: Handle) -> Code {
    CURRENT.with_borrow_mut(|c| {
        c.pop();
        if !context.is_null() {
            c.push(context.addr());
        }
    });
    Code::SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
    with(|d| unsafe { put(free, d.free() as usize).and_then(|()| put(total, settings().memory as usize)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> Code {
    with_uncaptured(|d| {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if bytes as u64 > d.free() {
            return Err(Code::OUT_OF_MEMORY);
        }
        let a = d.memory.alloc(bytes);
        unsafe { put(address, a) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: u64) -> Code {
    with_uncaptured(|d| d.memory.free(address).map_err(|_| Code::INVALID_VALUE))
}

/// Alignment of pinned memory.
const PAGE: usize = 4096;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, _flags: c_uint) -> Code {
    with_uncaptured(|d| {
        let layout = Layout::from_size_align(bytes.max(1), PAGE).map_err(|_| Code::INVALID_VALUE)?;
        // SAFETY: the layout has a size.
        let p = unsafe { alloc_zeroed(layout) };
        if p.is_null() {
            return Err(Code::OUT_OF_MEMORY);
        }
        d.hosts.insert(p.addr(), layout);
        unsafe { put(address, p.cast()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(address: *mut c_void) -> Code {
    // Also without a usable context, so that tests of faults do not leak.
    match lock().hosts.remove(&address.addr()) {
        Some(layout) => {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(address.cast(), layout) };
            Code::SUCCESS
        }
        None => Code::INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, len: usize, stream: Handle) -> Code {
    with(|d| d.submit(stream.addr(), Work::ToDevice { to, from: from.expose_provenance(), len }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, len: usize, stream: Handle) -> Code {
    with(|d| d.submit(stream.addr(), Work::ToHost { to: to.expose_provenance(), from, len }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, stream: Handle) -> Code {
    with(|d| d.submit(stream.addr(), Work::OnDevice { to, from, len }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(to: u64, value: u8, len: usize, stream: Handle) -> Code {
    with(|d| d.submit(stream.addr(), Work::Fill { to, value, len }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) -> Code {
    with(|d| {
        let h = d.handle();
        d.streams.insert(h, None);
        unsafe { put(stream, handle(h)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: Handle) -> Code {
    with(|d| d.streams.remove(&stream.addr()).map(drop).ok_or(Code::INVALID_HANDLE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: Handle) -> Code {
    // The driver takes a stream's context from the stream.
    let d = lock();
    match d.streams.get(&stream.addr()) {
        Some(Some(_)) => Code::CAPTURE_UNSUPPORTED,
        None if !stream.is_null() => Code::INVALID_HANDLE,
        _ => {
            drop(d);
            code(current_uncaptured().map(drop))
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: c_int) -> Code {
    with(|d| match d.streams.get_mut(&stream.addr()) {
        Some(s @ None) => {
            *s = Some(Capture { global: mode == 0, ..Capture::default() });
            Ok(())
        }
        Some(Some(_)) => Err(Code::INVALID_VALUE),
        None => Err(Code::INVALID_HANDLE),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> Code {
    with(|d| {
        let capture =
            d.streams.get_mut(&stream.addr()).ok_or(Code::INVALID_HANDLE)?.take().ok_or(Code::INVALID_VALUE)?;
        if capture.invalid {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        let h = d.handle();
        d.graphs.insert(h, capture.work);
        unsafe { put(graph, handle(h)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> Code {
    if mode.is_null() {
        return Code::INVALID_VALUE;
    }
    // SAFETY: the caller's variable.
    unsafe { mode.write(CAPTURE_MODE.replace(mode.read())) };
    Code::SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, _flags: u64) -> Code {
    with(|d| {
        let work = d.graphs.get(&graph.addr()).ok_or(Code::INVALID_HANDLE)?.clone();
        let h = d.handle();
        d.execs.insert(h, work);
        unsafe { put(exec, handle(h)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(exec: Handle, stream: Handle) -> Code {
    with(|d| {
        if d.streams.get(&stream.addr()).is_some_and(Option::is_some) {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        let work = d.execs.get(&exec.addr()).ok_or(Code::INVALID_HANDLE)?.clone();
        work.iter().try_for_each(|w| d.run(w))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: Handle) -> Code {
    with(|d| d.graphs.remove(&graph.addr()).map(drop).ok_or(Code::INVALID_HANDLE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(exec: Handle) -> Code {
    with(|d| d.execs.remove(&exec.addr()).map(drop).ok_or(Code::INVALID_HANDLE))
}

/// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const ERROR_LOG: (c_int, c_int) = (5, 6);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_void,
    n: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
) -> Code {
    with(|d| {
        if image.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: an image is a complete ELF file or a NUL-terminated text.
        let text = unsafe { CStr::from_ptr(image.cast()) };
        let elf = text.to_bytes().starts_with(b"\x7fELF");
        let text = if elf {
            // SAFETY: as above.
            unsafe { cubin::ptx(image.cast(), settings().sm) }.ok_or(Code::NO_BINARY_FOR_GPU)?.into()
        } else {
            text.to_string_lossy()
        };
        if settings().log {
            eprintln!("fake CUDA driver: a module from {}", if elf { "a cubin" } else { "PTX" });
        }
        match d.load(&text) {
            Ok(h) => unsafe { put(module, handle(h)) },
            Err((code, what)) => {
                // SAFETY: the caller gives `n` options and values.
                unsafe { write_log(&what, n, options, values) };
                Err(code)
            }
        }
    })
}

/// Writes `what` into the buffer that the options name.
unsafe fn write_log(what: &str, n: c_uint, options: *const c_int, values: *const *mut c_void) {
    let find = |wanted: c_int| {
        // SAFETY: as said by the caller.
        (0..n as usize).find(|i| unsafe { *options.add(*i) } == wanted).map(|i| unsafe { *values.add(i) })
    };
    if let (Some(buffer), Some(size)) = (find(ERROR_LOG.0), find(ERROR_LOG.1))
        && size.addr() > 0
    {
        let len = what.len().min(size.addr() - 1);
        // SAFETY: the buffer has the size given.
        unsafe {
            std::ptr::copy_nonoverlapping(what.as_ptr(), buffer.cast::<u8>(), len);
            buffer.cast::<u8>().add(len).write(0);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: Handle) -> Code {
    with(|d| {
        d.functions.retain(|_, f| f.module != module.addr());
        d.modules.remove(&module.addr()).map(drop).ok_or(Code::INVALID_HANDLE)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> Code {
    with(|d| {
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: a NUL-terminated name.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let h = d.function(module.addr(), &name)?;
        unsafe { put(function, handle(h)) }
    })
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DYNAMIC_SHARED: c_int = 8;
/// `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`.
const CARVEOUT: c_int = 9;
/// Limits of a multiprocessor: bytes of shared memory, threads, blocks; bytes that each block loses
/// to the system.
const SM_SHARED: u32 = 228 * 1024;
const SM_THREADS: u32 = 2048;
const SM_BLOCKS: u32 = 32;
const BLOCK_SHARED: u32 = 1024;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: Handle) -> Code {
    with(|d| {
        let f = d.functions.get(&function.addr()).ok_or(Code::INVALID_HANDLE)?;
        let kernel = d.modules.get(&f.module).and_then(|m| m.kernel(&f.name)).ok_or(Code::INVALID_HANDLE)?;
        let v = match attribute {
            0 => kernel.max_threads().unwrap_or(1024) as c_int,
            1 => kernel.static_shared() as c_int,
            // Constant and local bytes, registers: not known here.
            2..=4 => 0,
            DYNAMIC_SHARED => f.shared as c_int,
            CARVEOUT => f.carveout,
            _ => return Err(Code::INVALID_VALUE),
        };
        unsafe { put(value, v) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int) -> Code {
    with(|d| {
        let f = d.functions.get_mut(&function.addr()).ok_or(Code::INVALID_HANDLE)?;
        match attribute {
            DYNAMIC_SHARED if (0..=227 * 1024).contains(&value) => f.shared = value as u32,
            CARVEOUT if (-1..=100).contains(&value) => f.carveout = value,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: Handle,
    threads: c_int,
    shared: usize,
) -> Code {
    with(|d| {
        let f = d.functions.get(&function.addr()).ok_or(Code::INVALID_HANDLE)?;
        let kernel = d.modules.get(&f.module).and_then(|m| m.kernel(&f.name)).ok_or(Code::INVALID_HANDLE)?;
        let threads = u32::try_from(threads).ok().filter(|t| *t > 0).ok_or(Code::INVALID_VALUE)?;
        if shared > f.shared as usize {
            return unsafe { put(blocks, 0) };
        }
        let bytes = shared as u32 + kernel.static_shared() as u32 + BLOCK_SHARED;
        let most = (SM_SHARED / bytes).min(SM_THREADS / threads.next_multiple_of(32)).min(SM_BLOCKS);
        unsafe { put(blocks, most as c_int) }
    })
}

/// A launch, and whether it may begin before the launch before has ended.
unsafe fn launch(
    function: Handle,
    (grid, block): ([c_uint; 3], [c_uint; 3]),
    shared: c_uint,
    stream: Handle,
    (parameters, extra): (*mut *mut c_void, *mut *mut c_void),
    overlaps: bool,
) -> Code {
    with(|d| {
        let f = d.functions.get(&function.addr()).ok_or(Code::INVALID_HANDLE)?;
        let module = d.modules.get(&f.module).ok_or(Code::INVALID_HANDLE)?.clone();
        let kernel = module.kernel(&f.name).ok_or(Code::INVALID_HANDLE)?;
        let threads: u64 = block.iter().map(|b| u64::from(*b)).fold(1, u64::saturating_mul);
        let fits = threads > 0 && threads <= u64::from(kernel.max_threads().unwrap_or(1024));
        let far = grid.contains(&0) || grid[1..].iter().any(|n| *n > 65535);
        if shared > f.shared || !fits || far || !extra.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut params = vec![0; kernel.param_bytes()];
        for (i, p) in kernel.params().iter().enumerate() {
            // SAFETY: the caller gives the address of each parameter.
            unsafe {
                let from = *parameters.add(i);
                std::ptr::copy_nonoverlapping(from.cast::<u8>(), params[p.offset..].as_mut_ptr(), p.size);
            }
        }
        let name = f.name.clone();
        d.submit(stream.addr(), Work::Launch { module, name, grid, block, shared, params, overlaps })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    let size = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    unsafe { launch(function, size, shared, stream, (parameters, extra), false) }
}

/// `CUlaunchAttribute`.
#[repr(C)]
pub struct LaunchAttribute {
    id: c_int,
    padding: c_int,
    value: [u64; 8],
}

/// `CUlaunchConfig`.
#[repr(C)]
pub struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    attributes: *const LaunchAttribute,
    attribute_count: c_uint,
}

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const OVERLAPS: c_int = 6;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx(
    config: *const LaunchConfig,
    function: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    // SAFETY: the caller gives a configuration and its attributes.
    let (c, attributes) = unsafe {
        let c = &*config;
        let n = c.attribute_count as usize;
        (c, if n == 0 { &[] } else { std::slice::from_raw_parts(c.attributes, n) })
    };
    if attributes.iter().any(|a| a.id != OVERLAPS) {
        return Code::INVALID_VALUE;
    }
    let overlaps = attributes.iter().any(|a| a.value[0] as u32 != 0);
    unsafe { launch(function, (c.grid, c.block), c.shared, c.stream, (parameters, extra), overlaps) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut Handle, _flags: c_uint) -> Code {
    with(|d| {
        let h = d.handle();
        d.events.insert(h, None);
        unsafe { put(event, handle(h)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: Handle, _stream: Handle) -> Code {
    with(|d| d.events.get_mut(&event.addr()).map(|e| *e = Some(Instant::now())).ok_or(Code::INVALID_HANDLE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(event: Handle) -> Code {
    with(|d| d.events.get(&event.addr()).map(drop).ok_or(Code::INVALID_HANDLE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, from: Handle, to: Handle) -> Code {
    with(|d| {
        let at =
            |h: Handle| d.events.get(&h.addr()).ok_or(Code::INVALID_HANDLE).and_then(|e| e.ok_or(Code::INVALID_HANDLE));
        let (a, b) = (at(from)?, at(to)?);
        unsafe { put(milliseconds, b.saturating_duration_since(a).as_secs_f32() * 1e3) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: Handle) -> Code {
    with(|d| d.events.remove(&event.addr()).map(drop).ok_or(Code::INVALID_HANDLE))
}
