//! A CUDA driver on top of the PTX emulator: built as a shared library, it takes the place of
//! `libcuda.so.1` (`LLMCC_CUDA_LIBRARY` names it to the runtime), so that the whole path of the
//! runtime runs without a GPU.
//!
//! It works like the driver, at once and in order: there is one device, streams do not overlap, a
//! captured graph is a list of the stream's launches. Calls that a driver would refuse are refused
//! here too (no context on this thread, too much shared memory, images for another GPU). A fault
//! that the emulator reports goes to stderr; the call fails with `CUDA_ERROR_ILLEGAL_ADDRESS`, and
//! so does every later one, until the context is released.
//!
//! Environment:
//! - `LLMCC_FAKE_CUDA_SM`: compute capability times ten, default 90;
//! - `LLMCC_FAKE_CUDA_MEMORY`: bytes of device memory, default 16 GiB;
//! - `LLMCC_FAKE_CUDA_ALLOW`: checks to leave out, comma-separated: `uninitialised`, `races`;
//! - `LLMCC_FAKE_CUDA_LOG`: if set, each module prints its source, each launch its kernel and
//!   counts;
//! - `LLMCC_FAKE_CUDA_INJECT`: faults to inject, comma-separated: `fault:KERNEL` stores to a wild
//!   address when that kernel is launched, `hang:KERNEL` never ends.
//!
//! Cubins are taken if [`cubin`] made them, for the device's very compute capability; others are
//! refused with `CUDA_ERROR_NO_BINARY_FOR_GPU`, and the runtime falls back to the PTX. Occupancy
//! counts threads and shared memory, not registers, which nobody allocates here. A capture in the
//! global mode is called off when a thread in another mode than the relaxed one allocates, frees or
//! waits.

mod code;
mod cubin;
mod driver;
mod entry;

pub use code::Code;
pub use cubin::cubin;
pub use entry::*;
