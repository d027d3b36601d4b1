//! Means with weights that decay.

use super::means::{ChannelMeans, columns};
use super::{Cost, OnCpu, OnGpu};
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{Kernel, Wkv};

fn means(kernel: &Kernel, k: &Wkv) -> ChannelMeans {
    ChannelMeans { columns: columns(kernel, k.state), exponentials: 4.0, token: 0.15e-6 }
}

impl Cost for Wkv {
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
