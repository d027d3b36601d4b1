//! From the artifact's code to functions the driver can launch.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llmcc_abi::Span;

use super::device::Device;
use super::ffi::{self, CuHandle, CuResult, SUCCESS};
use crate::error::{Error, Result, Status};
use crate::image::Image;

/// Bytes of the driver's compile log that are kept.
const LOG: usize = 8192;

/// The kernels of a model, loaded one after the other.
pub(crate) struct Modules {
    device: Arc<Device>,
    modules: Vec<CuHandle>,
    /// One per kernel.
    functions: Vec<CuHandle>,
    /// Module of each span of PTX: kernels may share one.
    known: BTreeMap<(u64, u64), CuHandle>,
    /// How long loading took.
    took: Duration,
}

// SAFETY: handles of the driver, usable from any thread.
unsafe impl Send for Modules {}

impl Modules {
    /// No kernel yet.
    pub fn none(device: &Arc<Device>) -> Modules {
        Modules {
            device: device.clone(),
            modules: Vec::new(),
            functions: Vec::new(),
            known: BTreeMap::new(),
            took: Duration::ZERO,
        }
    }

    /// Loads the next kernel of `image`: its cubin when there is one that the driver takes, else its
    /// PTX, which the driver compiles. Returns whether there was one. The device's context is
    /// current.
    pub fn load_next(&mut self, image: &Image) -> Result<bool> {
        let index = self.functions.len();
        let Some(kernel) = image.gpu.get(index) else { return Ok(false) };
        let start = Instant::now();
        let Span { off, len } = kernel.ptx;
        let module = match self.known.get(&(off, len)) {
            Some(module) => *module,
            None => {
                let module = load_module(&self.device, image, index)?;
                self.modules.push(module);
                self.known.insert((off, len), module);
                module
            }
        };
        let function = self.function(image, index, module)?;
        self.functions.push(function);
        self.took += start.elapsed();
        Ok(true)
    }

    /// How long loading took, in all.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Function of kernel `index`.
    fn function(&self, image: &Image, index: usize, module: CuHandle) -> Result<CuHandle> {
        let (device, kernel, name) = (&self.device, &image.gpu[index], image.kernel_name(index));
        let api = device.api();
        // The image was checked: no NUL inside.
        let entry = CString::new(image.gpu_entry(index)).unwrap_or_default();
        let mut function = ptr::null_mut();
        let mut threads = 0;
        // SAFETY: a live module; results are writable. Asking for an attribute also makes a lazy
        // driver load the function now, not in the middle of a capture.
        unsafe {
            let code = (api.module_function)(&mut function, module, entry.as_ptr());
            device.check(code, format_args!("the code of kernel `{name}` lacks its entry"))?;
            let code = (api.function_get)(&mut threads, ffi::FUNC_MAX_THREADS, function);
            device.check(code, format_args!("cannot load kernel `{name}`"))?;
        }
        if kernel.threads > threads as u32 {
            let message = format!(
                "kernel `{name}` needs blocks of {} threads, but with its registers this GPU runs {threads}",
                kernel.threads
            );
            return Err(Error::new(Status::Cpu, message));
        }
        if kernel.shared > device.facts().shared {
            let most = device.facts().shared;
            let message =
                format!("kernel `{name}` needs {} bytes of shared memory, this GPU has {most}", kernel.shared);
            return Err(Error::new(Status::Cpu, message));
        }
        // Up to 48 KiB need no permission.
        if kernel.shared > 48 << 10 {
            // SAFETY: a live function.
            let code = unsafe { (api.function_set)(function, ffi::FUNC_DYNAMIC_SHARED, kernel.shared as c_int) };
            device.check(code, format_args!("cannot give kernel `{name}` {} bytes of shared memory", kernel.shared))?;
        }
        // Else the driver guesses how to divide a multiprocessor's memory: fewer blocks may fit
        // than were counted on, and from one kernel to the next it waits for all blocks to divide
        // it anew. So all kernels ask for the same. SAFETY: a live function.
        let code = unsafe { (api.function_set)(function, ffi::FUNC_CARVEOUT, 100) };
        device.check(code, format_args!("cannot choose shared memory over cache for kernel `{name}`"))?;
        Ok(function)
    }

    /// Function of each kernel.
    pub fn functions(&self) -> &[CuHandle] {
        &self.functions
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        if self.device.check_process().is_err() {
            return;
        }
        if let Ok(_current) = self.device.current() {
            for &module in &self.modules {
                // SAFETY: loaded by us, its functions are used by nobody any more.
                unsafe { (self.device.api().module_unload)(module) };
            }
        }
    }
}

fn load_module(device: &Device, image: &Image, index: usize) -> Result<CuHandle> {
    let cubin = image.cubin(index);
    if !cubin.is_empty() {
        let (code, module, _) = load(device, cubin.as_ptr().cast());
        match code {
            SUCCESS => return Ok(module),
            ffi::OUT_OF_MEMORY => {
                device.check(code, format_args!("cannot load kernel `{}`", image.kernel_name(index)))?
            }
            // For another GPU of the family, or of a newer toolkit than the driver knows: the PTX
            // is for that.
            _ => {}
        }
    }
    let (code, module, log) = load(device, image.ptx(index).as_ptr().cast());
    if code == SUCCESS {
        return Ok(module);
    }
    let (major, minor) = device.facts().driver;
    let hint = match code {
        ffi::UNSUPPORTED_PTX_VERSION => {
            format!(". The driver (for CUDA {major}.{minor}) is too old for this artifact: update it")
        }
        _ if log.is_empty() => String::new(),
        _ => format!(". Its compiler says: {log}"),
    };
    let what = format!(
        "the driver cannot compile kernel `{}`: {}{hint}",
        image.kernel_name(index),
        device.api().describe(code)
    );
    Err(Error::new(Status::System, what))
}

/// Loads an image; on failure also the driver's log.
fn load(device: &Device, image: *const c_void) -> (CuResult, CuHandle, String) {
    let mut log = vec![0u8; LOG];
    let mut module = ptr::null_mut();
    let mut options = [ffi::JIT_ERROR.0, ffi::JIT_ERROR.1];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG - 1)];
    // SAFETY: the image is a NUL-terminated text or a complete cubin; the options say where the log
    // may be written, and how much of it.
    let code = unsafe {
        (device.api().module_load)(&mut module, image, options.len() as u32, options.as_mut_ptr(), values.as_mut_ptr())
    };
    let log = CStr::from_bytes_until_nul(&log).map(|l| l.to_string_lossy().trim().to_owned()).unwrap_or_default();
    (code, module, log)
}
