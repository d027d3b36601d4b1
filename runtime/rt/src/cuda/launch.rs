//! Launches of kernels, and whether they overlap.

use std::ffi::{c_uint, c_void};
use std::ptr;

use super::device::Device;
use super::ffi::{self, CuHandle, CuResult, LaunchAttribute, LaunchConfig};
use crate::image::Image;

/// Environment variable: `0` makes every kernel begin when those before it have ended.
pub const OVERLAP_VARIABLE: &str = "LLMCC_CUDA_OVERLAP";

/// A kernel to launch.
pub struct KernelLaunch<'a> {
    pub function: CuHandle,
    /// Blocks.
    pub grid: [c_uint; 3],
    /// Threads of a block.
    pub threads: c_uint,
    /// Bytes of dynamic shared memory of a block.
    pub shared: c_uint,
    /// Whether it may begin before the launch before has ended: its code waits
    /// ([`llmcc_abi::GPU_OVERLAPS`]).
    pub overlaps: bool,
    pub parameters: &'a mut [*mut c_void],
}

/// Whether launches of an image's kernels may overlap on a device.
pub fn overlaps(image: &Image, device: &Device) -> bool {
    image.gpu_level().is_some_and(|sm| sm >= llmcc_abi::GPU_OVERLAPS)
        && device.api().launch_with.is_some()
        && device.facts().driver >= ffi::OVERLAPS_IN_GRAPHS
        && std::env::var_os(OVERLAP_VARIABLE).is_none_or(|v| v != "0")
}

/// Gives a launch to the device's stream.
///
/// # Safety
/// The function takes these parameters, and the device's context is current.
pub unsafe fn launch(device: &Device, l: KernelLaunch<'_>) -> CuResult {
    let (api, parameters) = (device.api(), l.parameters.as_mut_ptr());
    let [x, y, z] = l.grid;
    match api.launch_with.filter(|_| l.overlaps) {
        // SAFETY: the caller's promise; the driver copies the parameters.
        None => unsafe {
            let stream = device.stream();
            (api.launch)(l.function, x, y, z, l.threads, 1, 1, l.shared, stream, parameters, ptr::null_mut())
        },
        Some(launch_with) => {
            let mut attribute = LaunchAttribute::of_int(ffi::LAUNCH_OVERLAPS, 1);
            let config = LaunchConfig {
                grid: l.grid,
                block: [l.threads, 1, 1],
                shared: l.shared,
                stream: device.stream(),
                attributes: &mut attribute,
                attribute_count: 1,
            };
            // SAFETY: as above; the driver copies the configuration.
            unsafe { launch_with(&config, l.function, parameters, ptr::null_mut()) }
        }
    }
}
