//! Stacks of experts of ModelOpt whose class has them transposed (Llama 4, gpt-oss): `NAME` FP8 `[experts, in,
//! out]` with a scale for all, each expert or each of its outputs, or FP4 `[experts, in / 2, out]`, the first
//! of two inputs in the low bits, with an e4m3 scale for 16 inputs `[experts, in / 16, out]`, and a number for
//! all. Products share scales along inputs, which are rows here, so they are decoded.

use super::{COMPUTED, Part, Tensors, UNQUANTIZED, Wrong, activations, required};
use crate::checkpoint::safetensors::TensorInfo;
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::quant::{CodedRow, Encoding, e4m3_to_f32};
use std::ops::Range;
use std::sync::Arc;

/// Inputs of a scale of FP4.
const GROUP: usize = 16;

/// Every `NAME` that has a `NAME_weight_scale`.
pub(super) fn stacks(tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    for name in tensors.stems("_weight_scale") {
        let entry = stack(tensors, &name)?;
        tensors.index.insert(name, entry);
    }
    Ok(())
}

fn stack(tensors: &mut Tensors<'_>, name: &str) -> Result<Entry, Wrong> {
    let [scale, above, input] = ["weight_scale", "weight_scale_2", "input_scale"].map(|of| format!("{name}_{of}"));
    let wrong = |what: String| (format!("`{name}`: {what}"), UNQUANTIZED);
    let of = |name: &str| tensors.index.get(name).map(|e| (e.info.dtype.name, e.info.shape.clone()));
    let (dtype, shape) = of(name).ok_or_else(|| wrong("the tensor is missing, and its scale is there".into()))?;
    let scaled = of(&scale).map(|s| s.1).unwrap_or_default();
    let [count, rows, n] = shape[..] else { return Err(wrong(format!("{shape:?} are no matrices of experts"))) };
    let four = dtype == "U8";
    let k = if four { rows.saturating_mul(2) } else { rows };
    let fits = match (four, &scaled[..]) {
        (true, groups) => groups == [count, k / GROUP, n] && k.is_multiple_of(GROUP),
        (false, s) => {
            s.iter().all(|d| *d == 1) || [&[count][..], &[count, 1, 1], &[count, n], &[count, 1, n]].contains(&s)
        }
    };
    if !fits || count == 0 || n == 0 || k == 0 {
        return Err(wrong(format!("scales {scaled:?} are none of matrices {dtype} {shape:?} that are turned")));
    }
    let codes = tensors.take(name, &["F8_E4M3", "U8"], &shape)?;
    let scales = tensors.take(&scale, if four { &["F8_E4M3"] } else { &["F32", "BF16", "F16"] }, &scaled)?;
    let all = match tensors.index.get(&above).map(|e| e.info.shape.iter().product::<usize>()) {
        Some(numbers) if numbers == 1 || numbers == count => Some((tensors.take_any(&above)?, numbers)),
        Some(_) => return Err(wrong(format!("`{above}` is no number of each expert"))),
        None if four => return Err(required::missing(&above, "which stands above scales of e4m3")),
        None => None,
    };
    let per = match scaled.iter().product::<usize>() {
        1 => 0,
        of_each => of_each / count,
    };
    let info = TensorInfo { dtype: &COMPUTED, shape: vec![count, k, n], bytes: codes.from..codes.to };
    let layout = TurnedStack { codes, scales, all, four, k, n, per };
    let mut entry = Entry { layout: Some(Arc::new(layout)), ..Entry::plain(codes.shard, info) };
    if !four && tensors.index.contains_key(&input) {
        entry.input = Some(activations::rounding(tensors, name, &input, UnaryOp::RoundE4m3)?);
    }
    Ok(entry)
}

#[derive(Debug)]
struct TurnedStack {
    codes: Part,
    scales: Part,
    /// Above the scales, and how many.
    all: Option<(Part, usize)>,
    /// Codes of 4 bits.
    four: bool,
    k: usize,
    n: usize,
    /// Scales of FP8 of an expert; 0 where all have one.
    per: usize,
}

impl Layout for TurnedStack {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.codes.place(), self.scales.place()]
    }

    // It is floats.
    fn codes(&self, _: &[Shard], _: usize, _: &mut CodedRow) {}

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        let (expert, input) = (row / self.k, row % self.k);
        let above = self.all.map_or(1.0, |(part, numbers)| part.float(shards, if numbers == 1 { 0 } else { expert }));
        let bytes = self.codes.bytes(shards);
        for (col, v) in out.iter_mut().enumerate().take(self.n) {
            let at = |rows: usize, row: usize| (expert * rows + row) * self.n + col;
            *v = if self.four {
                let byte = bytes.get(at(self.k / 2, input / 2)).copied().unwrap_or(0);
                let code = byte >> (4 * (input % 2)) & 15;
                let scale = self.scales.float(shards, at(self.k / GROUP, input / GROUP)) * above;
                // Its codes are MXFP4's.
                scale * Encoding::MXFP4.number(code)
            } else {
                let scale = match self.per {
                    0 => 0,
                    1 => expert,
                    _ => expert * self.n + col,
                };
                let number = e4m3_to_f32(bytes.get(at(self.k, input)).copied().unwrap_or(0));
                number * self.scales.float(shards, scale) * above
            };
        }
    }
}
