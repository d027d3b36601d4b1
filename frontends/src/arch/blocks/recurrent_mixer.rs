//! Mixers: layers' alternatives to attention.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::gated_linear_attention::{GatedLinear, gated_linear};
use crate::arch::blocks::kimi_delta::{KimiDelta, kimi_delta};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::lightning_attention::{Lightning, lightning};
use crate::arch::blocks::recurrent::{GatedDelta, Mamba2, ShortConv, gated_conv, gated_delta, mamba2};
use crate::arch::blocks::rg_lru::{LinearUnit, linear_unit};
use crate::arch::blocks::selective_scan::{Mamba1, mamba1};
use llmcc_ir::graph::Value;

/// A layer's alternative to attention.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mixer {
    /// A selective scan.
    Mamba1(Mamba1),
    /// State-space duality.
    Mamba2(Mamba2),
    /// The gated delta rule.
    Delta(GatedDelta),
    /// A gated convolution.
    ShortConv(ShortConv),
    /// Kimi's delta attention.
    Kimi(KimiDelta),
    /// Griffin's gated linear unit.
    Linear(LinearUnit),
    /// Linear attention with a gate behind it.
    GatedLinear(GatedLinear),
    /// Lightning attention.
    Lightning(Lightning),
}

impl Mixer {
    /// It reads a rotary table.
    pub(crate) fn rotates(&self) -> bool {
        matches!(self, Mixer::GatedLinear(m) if m.rotates())
    }

    /// Its output for `h`; `rope` is its rotary table, if it reads one.
    #[track_caller]
    pub(crate) fn mix(&self, f: &mut Draft, eps: Norm, rope: Option<Value>, h: Value) -> Value {
        match self {
            Mixer::Mamba1(m) => mamba1(f, m, h),
            Mixer::Mamba2(m) => mamba2(f, m, eps, h),
            Mixer::Delta(m) => gated_delta(f, m, eps, h),
            Mixer::ShortConv(m) => gated_conv(f, m, h),
            Mixer::Kimi(m) => kimi_delta(f, m, eps, h),
            Mixer::Linear(m) => linear_unit(f, m, h),
            Mixer::GatedLinear(m) => gated_linear(f, m, eps, rope, h),
            Mixer::Lightning(m) => lightning(f, m, h),
        }
    }
}
