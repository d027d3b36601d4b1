//! Captured CUDA graphs: all launches of a regime as one.

use std::ptr;
use std::sync::Arc;

use super::device::Device;
use super::ffi::{self, CuHandle};
use crate::error::Result;

/// Launches that can be repeated as a whole.
pub(crate) struct Graph {
    device: Arc<Device>,
    exec: CuHandle,
}

// SAFETY: a handle of the driver, usable from any thread, one at a time.
unsafe impl Send for Graph {}

impl Graph {
    /// Records the launches that `launches` makes on the device's stream; no launch runs yet. The
    /// device's context is current.
    pub fn capture(device: &Arc<Device>, launches: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let api = device.api();
        let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: our stream.
        let code = unsafe { (api.capture_begin)(device.stream(), ffi::CAPTURE_THREAD_LOCAL) };
        device.check(code, "cannot start to capture a graph")?;
        let recorded = launches();
        // SAFETY: a capture is under way, which has to end whatever happened in it.
        let code = unsafe { (api.capture_end)(device.stream(), &mut graph) };
        let ended = recorded.and_then(|()| device.check(code, "cannot capture a graph"));
        let made = ended.and_then(|()| {
            // SAFETY: a complete graph.
            let code = unsafe { (api.graph_instantiate)(&mut exec, graph, 0) };
            device.check(code, "cannot prepare a graph")
        });
        if !graph.is_null() {
            // SAFETY: the executable form does not need it. A failure cannot be helped.
            unsafe { (api.graph_destroy)(graph) };
        }
        made.map(|()| Graph { device: device.clone(), exec })
    }

    /// Gives all of it to the stream. The device's context is current.
    pub fn launch(&self) -> Result<()> {
        // SAFETY: live handles.
        let code = unsafe { (self.device.api().graph_launch)(self.exec, self.device.stream()) };
        self.device.check(code, "cannot launch a step on the GPU")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.check_process().is_ok()
            && let Ok(_current) = self.device.current()
        {
            // SAFETY: made in `capture`, not running: every step is waited for.
            unsafe { (self.device.api().graph_exec_destroy)(self.exec) };
        }
    }
}
