//! One GPU: its primary context, a stream of our own, and memory on both sides.

use std::ffi::{CStr, c_int, c_uint};
use std::fmt::Display;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::ffi::{self, Api, CuDevice, CuHandle, CuPtr, CuResult, SUCCESS};
use crate::error::{Error, Result, Status};

/// Environment variable with the number of the GPU to use.
pub const DEVICE_VARIABLE: &str = "LLMCC_CUDA_DEVICE";

/// Properties of a GPU, read before anything is allocated on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its number among the GPUs of this process.
    pub ordinal: i32,
    /// Name by the driver.
    pub name: String,
    /// Compute capability times ten.
    pub capability: u32,
    /// Multiprocessors.
    pub sms: u32,
    /// Bytes per second between it and its memory: two transfers in a cycle of the memory's clock, on
    /// all lines of the bus. 0 where the driver does not say.
    pub memory_rate: u64,
    /// Most bytes of shared memory of a block.
    pub shared: u32,
    /// Newest CUDA version the driver knows, e.g. `(12, 4)`.
    pub driver: (i32, i32),
    /// How long the driver took to start.
    pub took: Duration,
}

/// An open GPU. Its functions make the context current on the calling thread for as long as they
/// run, so any thread may call them, whatever else the host program does with CUDA.
pub struct Device {
    api: Api,
    facts: Facts,
    device: CuDevice,
    context: CuHandle,
    stream: CuHandle,
    process: u32,
    /// How long the driver and its context took to start.
    took: Duration,
    /// The failure that lost the context.
    lost: OnceLock<String>,
}

// SAFETY: driver handles may be used from any thread that has made the context current.
unsafe impl Send for Device {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Device {}

impl Facts {
    /// Asks the driver about GPU `ordinal`. `Err` says why there is none that could be used.
    pub fn of(api: &Api, ordinal: i32) -> std::result::Result<Facts, String> {
        let start = Instant::now();
        let (mut count, mut version, mut device) = (0, 0, 0);
        let mut name = [0u8; 256];
        let attribute = |device: CuDevice, which: c_int| {
            let mut value = 0;
            // SAFETY: a device of this driver; `value` is writable.
            let code = unsafe { (api.device_attribute)(&mut value, which, device) };
            if code == SUCCESS { Ok(value) } else { Err(format!("the CUDA driver says {}", api.describe(code))) }
        };
        // SAFETY: all results are writable and the name buffer has the size given.
        unsafe {
            match (api.init)(0) {
                SUCCESS => {}
                ffi::NO_DEVICE => return Err("the CUDA driver finds no GPU".into()),
                code => return Err(format!("the CUDA driver does not start: {}", api.describe(code))),
            }
            if (api.device_count)(&mut count) != SUCCESS || count == 0 {
                return Err("the CUDA driver finds no GPU".into());
            }
            if ordinal < 0 || ordinal >= count || (api.device_get)(&mut device, ordinal) != SUCCESS {
                return Err(format!(
                    "there is no GPU with index {ordinal}: this process sees {count}, counted from 0; set \
                        {DEVICE_VARIABLE} to one of them"
                ));
            }
            // Neither call can fail after the ones above; a failure would only leave an empty name
            // or version in messages.
            (api.device_name)(name.as_mut_ptr().cast(), name.len() as c_int - 1, device);
            (api.driver_version)(&mut version);
        }
        let name = CStr::from_bytes_until_nul(&name).map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Facts {
            ordinal,
            name,
            capability: (10 * attribute(device, ffi::ATTRIBUTE_MAJOR)? + attribute(device, ffi::ATTRIBUTE_MINOR)?)
                as u32,
            sms: attribute(device, ffi::ATTRIBUTE_SMS)? as u32,
            // No kernel depends on it, so that it may be missing.
            memory_rate: memory_rate(
                attribute(device, ffi::ATTRIBUTE_MEMORY_CLOCK).unwrap_or(0),
                attribute(device, ffi::ATTRIBUTE_MEMORY_BUS).unwrap_or(0),
            ),
            shared: attribute(device, ffi::ATTRIBUTE_SHARED)? as u32,
            driver: (version / 1000, version % 1000 / 10),
            took: start.elapsed(),
        })
    }
}

/// Bytes per second of a memory with a clock of so many kHz and a bus of so many bits.
fn memory_rate(clock: c_int, bus: c_int) -> u64 {
    let (hertz, bytes) = (1000 * u64::try_from(clock).unwrap_or(0), u64::try_from(bus).unwrap_or(0) / 8);
    2 * hertz * bytes
}

impl Device {
    /// Opens the GPU that `facts` describe.
    pub fn open(api: Api, facts: Facts) -> Result<Arc<Device>> {
        let start = Instant::now();
        let (mut device, mut context, mut stream) = (0, ptr::null_mut(), ptr::null_mut());
        // SAFETY: all results are writable; `Facts::of` has initialised the driver.
        unsafe {
            check(
                &api,
                (api.device_get)(&mut device, facts.ordinal),
                format_args!("cannot open GPU {}", facts.ordinal),
            )?;
            check(&api, (api.context_retain)(&mut context, device), format_args!("cannot open {}", facts.name))?;
        }
        let took = facts.took;
        let mut opened =
            Device { api, facts, device, context, stream, process: std::process::id(), took, lost: OnceLock::new() };
        {
            let _current = opened.current()?;
            // SAFETY: the context is current.
            let code = unsafe { (api.stream_create)(&mut stream, ffi::STREAM_NON_BLOCKING) };
            opened.check(code, "cannot create a stream")?;
        }
        opened.stream = stream;
        opened.took += start.elapsed();
        Ok(Arc::new(opened))
    }

    /// The driver's functions.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The driver's description of this GPU.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// How long the driver and its context took to start.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The stream on which everything runs in order.
    pub fn stream(&self) -> CuHandle {
        self.stream
    }

    /// Turns a result of the driver into ours; `what` failed. Remembers when the context is lost by
    /// it.
    pub fn check(&self, code: CuResult, what: impl Display) -> Result<()> {
        check(&self.api, code, what).inspect_err(|e| {
            if ffi::loses_context(code) {
                // The first reason stays: the others follow from it.
                let _ = self.lost.set(e.message.clone());
            }
        })
    }

    /// Fails where nothing can run any more: after a fault that lost the context, or in a fork of
    /// the process.
    pub fn check_usable(&self) -> Result<()> {
        match self.lost.get() {
            Some(reason) => Err(Error::new(Status::System, reason.clone())),
            None => self.check_process(),
        }
    }

    /// Fails in a fork of the process that opened the device, where CUDA does not work.
    pub fn check_process(&self) -> Result<()> {
        if self.same_process() {
            return Ok(());
        }
        Err(Error::invalid("the process was forked after llmcc_open; open the model in the child instead"))
    }

    fn same_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Makes the context current on this thread until the result is dropped. As long, the driver
    /// lets the thread allocate and wait even if another thread of the host program captures a
    /// graph in the global mode (PyTorch's default): it would call that capture off.
    pub fn current(&self) -> Result<Current<'_>> {
        // SAFETY: a live context.
        let code = unsafe { (self.api.context_push)(self.context) };
        self.check(code, "cannot use the GPU on this thread")?;
        let mut current = Current { device: self, capture_mode: None, _this_thread: PhantomData };
        let mut mode = ffi::CAPTURE_RELAXED;
        // SAFETY: `mode` is read and written.
        let code = unsafe { (self.api.capture_exchange)(&mut mode) };
        self.check(code, "cannot use the GPU on this thread")?;
        current.capture_mode = Some(mode);
        Ok(current)
    }

    /// Waits until all work on the stream is done; reports its failures.
    pub fn synchronize(&self, what: impl Display) -> Result<()> {
        // SAFETY: our stream.
        self.check(unsafe { (self.api.stream_synchronize)(self.stream) }, what)
    }

    /// Bytes of device memory: free, in all. The context is current.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are writable.
        let code = unsafe { (self.api.memory_info)(&mut free, &mut total) };
        self.check(code, "cannot tell the free memory of the GPU")?;
        Ok((free, total))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.same_process() {
            // A fork has no CUDA: the driver would fail or hang.
            return;
        }
        if !self.stream.is_null()
            && let Ok(_current) = self.current()
        {
            // SAFETY: our stream, used by nobody any more. A failure cannot be helped.
            unsafe { (self.api.stream_destroy)(self.stream) };
        }
        // SAFETY: retained in `open`.
        unsafe { (self.api.context_release)(self.device) };
    }
}

fn check(api: &Api, code: CuResult, what: impl Display) -> Result<()> {
    if code == SUCCESS {
        return Ok(());
    }
    let mut message = format!("{what}: the CUDA driver says {}", api.describe(code));
    if ffi::loses_context(code) {
        message.push_str(LOST);
    }
    Err(Error::new(Status::System, message))
}

/// Consequence of a fault that loses the context.
const LOST: &str = ". The process has lost its context on the GPU: every call fails until all users of the \
    context (other models, PyTorch) have released it. Close them all and open the model again, or start a new \
    process";

/// The device's context is current on this thread while this lives.
pub struct Current<'a> {
    device: &'a Device,
    /// The thread's own mode, to be put back.
    capture_mode: Option<c_int>,
    /// Not `Send`: it is about this thread.
    _this_thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut old = ptr::null_mut();
        // SAFETY: pushed in `Device::current`, where the mode is from, too.
        unsafe {
            if let Some(mut mode) = self.capture_mode {
                (self.device.api.capture_exchange)(&mut mode);
            }
            (self.device.api.context_pop)(&mut old);
        }
    }
}

/// Device memory, freed when dropped.
pub struct DeviceMemory {
    device: Arc<Device>,
    address: CuPtr,
    len: usize,
}

impl DeviceMemory {
    /// Allocates `len` bytes, aligned to 256, for `purpose` (named in the error). No bytes: no
    /// allocation, address 0.
    pub fn new(device: &Arc<Device>, len: usize, purpose: &str) -> Result<DeviceMemory> {
        let mut address = 0;
        if len > 0 {
            let _current = device.current()?;
            // SAFETY: the context is current, `address` writable.
            let code = unsafe { (device.api.memory_alloc)(&mut address, len) };
            device.check(
                code,
                format_args!("cannot allocate {} MiB of GPU memory for {purpose}", len.div_ceil(1 << 20)),
            )?;
        }
        Ok(DeviceMemory { device: device.clone(), address, len })
    }

    /// As [`DeviceMemory::new`], all bytes zero.
    pub fn zeroed(device: &Arc<Device>, len: usize, purpose: &str) -> Result<DeviceMemory> {
        let memory = DeviceMemory::new(device, len, purpose)?;
        if len > 0 {
            let _current = device.current()?;
            // SAFETY: our memory, on our stream, on which all its users run later.
            let code = unsafe { (device.api.fill)(memory.address, 0, len, device.stream) };
            device.check(code, format_args!("cannot clear the GPU memory for {purpose}"))?;
        }
        Ok(memory)
    }

    /// Device address of the first byte.
    pub fn address(&self) -> CuPtr {
        self.address
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.len > 0
            && self.device.same_process()
            && let Ok(_current) = self.device.current()
        {
            // SAFETY: allocated in `new`. A failure (after a fault of a kernel, say) cannot be
            // helped: the context is lost then.
            unsafe { (self.device.api.memory_free)(self.address) };
        }
    }
}

/// Host memory that the GPU copies from and to directly.
pub struct Pinned {
    device: Arc<Device>,
    ptr: *mut u8,
    len: usize,
}

// SAFETY: plain memory; who may access it is decided by its owner.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Allocates `len` bytes for `purpose` (named in the error), page aligned and zero.
    pub fn zeroed(device: &Arc<Device>, len: usize, purpose: &str) -> Result<Pinned> {
        let block = Pinned::unwritten(device, len, purpose)?;
        // SAFETY: just allocated.
        unsafe { ptr::write_bytes(block.ptr, 0, block.len) };
        Ok(block)
    }

    /// Allocates `len` bytes for `purpose` (named in the error), page aligned. They have no value
    /// before somebody writes them. The system pins about 2 GB a second.
    pub fn unwritten(device: &Arc<Device>, len: usize, purpose: &str) -> Result<Pinned> {
        let len = len.max(1);
        let mut address = ptr::null_mut();
        let _current = device.current()?;
        // SAFETY: the context is current, `address` writable.
        let code = unsafe { (device.api.host_alloc)(&mut address, len, 0 as c_uint) };
        device
            .check(code, format_args!("cannot allocate {} KiB of pinned memory for {purpose}", len.div_ceil(1024)))?;
        Ok(Pinned { device: device.clone(), ptr: address.cast(), len })
    }

    /// First byte.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// The bytes of a block that was made by [`Pinned::zeroed`]. No copy to or from them is under
    /// way.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: our own memory, initialised.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.device.same_process()
            && let Ok(_current) = self.device.current()
        {
            // SAFETY: allocated in `new`; copies from and to it have been waited for.
            unsafe { (self.device.api.host_free)(self.ptr.cast()) };
        }
    }
}
