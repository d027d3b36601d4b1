//! Predictions of a family of kernels, and the launches that they are for.

use crate::work::{Launched, Work};
use llmcc_ir::kernel::{Body, Kernel, Param};
use llmcc_ir::target::{GpuArch, TargetSpec};
use llmcc_ir::ty::Env;

/// A launch on a CPU.
#[derive(Clone, Copy)]
pub(crate) struct OnCpu<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) t: &'a TargetSpec,
    /// Rows of the kernel.
    pub(super) m: usize,
    pub(super) env: Env,
    pub(super) context: usize,
}

impl OnCpu<'_> {
    /// Cores that have rows to work on.
    pub(super) fn parallel(&self) -> f64 {
        self.m.clamp(1, self.t.cores) as f64
    }
}

/// A launch on a GPU.
#[derive(Clone, Copy)]
pub(crate) struct OnGpu<'a> {
    pub kernel: &'a Kernel,
    pub t: &'a TargetSpec,
    pub gpu: &'a GpuArch,
    /// Rows of the kernel.
    pub m: usize,
    /// Sequences, of which each has one of the rows whose logits are wanted.
    pub sequences: usize,
    pub context: usize,
}

impl OnGpu<'_> {
    /// Seconds of bytes from memory.
    pub(super) fn memory(&self, bytes: f64) -> f64 {
        bytes / (self.t.memory * self.gpu.rates.memory)
    }

    /// Seconds of bytes through the second-level cache.
    pub(super) fn l2(&self, bytes: usize) -> f64 {
        bytes as f64 / self.gpu.l2_bandwidth
    }
}

/// Predictions of a family of kernels. Each family has a file.
pub(crate) trait Cost {
    /// Seconds on a CPU, without the launch itself.
    fn cpu(&self, on: &OnCpu<'_>) -> f64;

    /// Seconds on a GPU, without the gap between launches.
    fn gpu(&self, on: &OnGpu<'_>) -> f64;

    /// Sets the tile sizes on a GPU of a kernel of so many rows; there are none to set, unless said.
    fn gpu_tiles(&mut self, _: &[Param], _rows: usize) {}

    /// Work of a launch on any machine. The default is none.
    fn work(&self, _: &Launched<'_>) -> Work {
        Work::default()
    }
}

/// The predictions of the families, by the table of [`Body`].
macro_rules! costs {
    ($($family:ident)*) => {
        /// The predictions of a kernel's family.
        pub(crate) fn of(body: &Body) -> &dyn Cost {
            match body { $( Body::$family(k) => k, )* }
        }

        /// The same, to set its tiles.
        pub(crate) fn of_mut(body: &mut Body) -> &mut dyn Cost {
            match body { $( Body::$family(k) => k, )* }
        }
    };
}

llmcc_ir::each_family!(costs);
