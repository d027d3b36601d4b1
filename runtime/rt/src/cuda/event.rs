//! Points in time on the device's stream.

use std::ptr;
use std::sync::Arc;

use super::device::Device;
use super::ffi::{self, CuHandle};
use crate::error::Result;

/// A CUDA event.
pub struct Event {
    device: Arc<Device>,
    handle: CuHandle,
}

// SAFETY: a handle of the driver, which locks.
unsafe impl Send for Event {}

impl Event {
    /// An event that has not been recorded, which counts as over.
    pub fn new(device: &Arc<Device>) -> Result<Event> {
        let _current = device.current()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the context is current.
        let code = unsafe { (device.api().event_create)(&mut handle, ffi::EVENT_DEFAULT) };
        device.check(code, "cannot create an event")?;
        Ok(Event { device: device.clone(), handle })
    }

    /// Comes to pass when all work given to the stream so far is done. The context is current.
    pub fn record(&self) -> Result<()> {
        // SAFETY: live handles.
        let code = unsafe { (self.device.api().event_record)(self.handle, self.device.stream()) };
        self.device.check(code, "cannot record an event")
    }

    /// Waits for it. The context is current.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: a live handle.
        let code = unsafe { (self.device.api().event_synchronize)(self.handle) };
        self.device.check(code, "the GPU failed while copying")
    }

    /// Nanoseconds since `earlier`, both having come to pass. The context is current.
    pub fn nanoseconds_since(&self, earlier: &Event) -> Result<u64> {
        let mut ms = 0.0;
        // SAFETY: live handles.
        let code = unsafe { (self.device.api().event_elapsed)(&mut ms, earlier.handle, self.handle) };
        self.device.check(code, "cannot measure the time of a kernel")?;
        Ok((f64::from(ms) * 1e6) as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.check_process().is_ok()
            && let Ok(_current) = self.device.current()
        {
            // SAFETY: created in `new`. A failure cannot be helped.
            unsafe { (self.device.api().event_destroy)(self.handle) };
        }
    }
}
