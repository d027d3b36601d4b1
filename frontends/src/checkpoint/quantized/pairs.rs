//! Integers of 4 bits of ModelOpt (`W4A16_AWQ`): `STEM.weight` U8 `[out / 2, in]` holds two rows, the first
//! in the low bits, as two's complement; `STEM.weight_scale` `[out, groups]`.

use super::{COMPUTED, Part, Tensors, UNQUANTIZED, Wrong, grouped_type, unit};
use crate::checkpoint::safetensors::TensorInfo;
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use llmcc_ir::quant::{CodedRow, Elem};
use std::ops::Range;
use std::sync::Arc;

/// The matrix of a stem.
pub(super) fn matrix(tensors: &mut Tensors<'_>, stem: &str) -> Result<Entry, Wrong> {
    let [codes, scales] = [format!("{stem}.weight"), format!("{stem}.weight_scale")];
    let [half, k] = tensors.matrix(&codes)?;
    let [rows, groups] = tensors.matrix(&scales)?;
    let n = half.saturating_mul(2);
    if n == 0 || rows != n || groups == 0 || !k.is_multiple_of(groups) || k == 0 {
        let what = format!("`{stem}`: scales {:?} do not fit {n} rows of {k} columns", [rows, groups]);
        return Err((what, UNQUANTIZED));
    }
    let group = k / groups;
    let codes = tensors.take(&codes, &["U8"], &[half, k])?;
    let scales = tensors.take(&scales, &["F32", "F16", "BF16"], &[n, groups])?;
    let half = scales.fits_f16(tensors.shards, n * groups);
    let elem = if half { Elem::W4 } else { Elem::named("w4z") };
    let unit = unit(group);
    let dtype = unit.and_then(|unit| grouped_type(elem, unit)).unwrap_or(&COMPUTED);
    let info = TensorInfo { dtype, shape: vec![n, k], bytes: codes.from..codes.to };
    let layout = Pairs { codes, scales, k, group, unit: unit.unwrap_or(group), minima: !half };
    Ok(Entry { layout: Some(Arc::new(layout)), ..Entry::plain(codes.shard, info) })
}

#[derive(Debug)]
struct Pairs {
    codes: Part,
    scales: Part,
    k: usize,
    /// Columns of a group, and of one as it is stored.
    group: usize,
    unit: usize,
    /// The format has minima.
    minima: bool,
}

impl Pairs {
    /// A number plus 8.
    fn code(&self, shards: &[Shard], row: usize, col: usize) -> u8 {
        let byte = self.codes.bytes(shards).get(row / 2 * self.k + col).copied().unwrap_or(0);
        (byte >> (4 * (row % 2)) & 15) ^ 8
    }

    fn scale(&self, shards: &[Shard], row: usize, col: usize) -> f32 {
        self.scales.float(shards, row * (self.k / self.group) + col / self.group)
    }
}

impl Layout for Pairs {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.codes.place()]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        out.codes.iter_mut().enumerate().for_each(|(col, c)| *c = self.code(shards, row, col));
        for (g, f) in out.factors.iter_mut().enumerate() {
            let scale = self.scale(shards, row, g * self.unit);
            *f = (scale, if self.minima { -8.0 * scale } else { 0.0 });
        }
    }

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        for (col, v) in out.iter_mut().enumerate().take(self.k) {
            *v = self.scale(shards, row, col) * (f32::from(self.code(shards, row, col)) - 8.0);
        }
    }
}
