//! Streams that stay as large as a block's output (Beam): block `n` of a model turns the stream `x`
//! and its own output `y` into `√((n−1)/n)·x + √(1/n)·y`, the embedding being the first term. That
//! is the sum of all over the root of their number, so the sum is kept, and divided where it is
//! read.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{MLP_NORM, Part};
use llmcc_ir::graph::Value;

/// The input of the block of a layer with this norm before it, from the sum `x`. The divisor is a
/// weight, so that layers have a function in common.
#[track_caller]
pub(crate) fn averaged(f: &mut Draft, averaged: bool, before: Part, x: Value) -> Value {
    let ([Some(layer), _], true) = (f.place(), averaged) else { return x };
    let added = 2 * layer + 1 + usize::from(before == MLP_NORM);
    let factor = (1.0 / (added as f64).sqrt()) as f32;
    let factor = f.computed(&format!("{}.average", before.0), &format!("$average{added}"), vec![factor]);
    f.mul(x, factor)
}

/// The stream's norm applied to the sum of so many layers: the addend to the mean square grows with
/// it.
pub(crate) fn all_averaged(norm: Norm, layers: usize) -> Norm {
    Norm { eps: (f64::from(norm.eps) * (2 * layers + 1) as f64) as f32, ..norm }
}
