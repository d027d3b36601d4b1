//! Means of windows of tokens.

use super::means::{ChannelMeans, columns};
use super::{Cost, OnCpu, OnGpu};
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{Kernel, WindowMeans};

fn means(kernel: &Kernel, k: &WindowMeans) -> ChannelMeans {
    // Columns of all series.
    ChannelMeans { columns: columns(kernel, k.state) * k.series(&kernel.params), exponentials: 2.0, token: 0.1e-6 }
}

impl Cost for WindowMeans {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        means(on.kernel, self).cpu(on)
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        means(on.kernel, self).gpu(on)
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        means(on.kernel, self).work(on)
    }
}
