//! NVFP4: 4-bit floats with an e4m3 scale for 16 columns and a number above all scales, as
//! compressed-tensors and ModelOpt have it.

use super::{Part, Tensors, UNQUANTIZED, Wrong, coded};
use crate::checkpoint::safetensors::{StoredType, TensorInfo};
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use llmcc_ir::quant::{CodedRow, Elem, Format};
use std::ops::Range;
use std::sync::Arc;

/// Columns of a group.
const GROUP: usize = 16;

static NVFP4: StoredType = coded("NVFP4", Format::new(Elem::named("nvfp4"), GROUP as u16), 4);

/// NVFP4: e2m1 numbers, the first of two in the low bits of a byte, an e4m3 scale for 16 columns,
/// and a number for all of them, from which `above` makes their factor. Names are the stem, and the
/// names of codes and that number.
pub(super) fn fp4(tensors: &mut Tensors<'_>, names: [&str; 3], above: fn(f32) -> f32) -> Result<Entry, Wrong> {
    let [stem, codes, all] = names;
    let name = |ending: &str| format!("{stem}.{ending}");
    let [n, half] = tensors.matrix(&name(codes))?;
    let k = half.checked_mul(2).filter(|k| n > 0 && *k > 0 && k.is_multiple_of(GROUP)).ok_or_else(|| {
        (format!("`{stem}`: {n} rows of {half} bytes are not whole groups of {GROUP} columns"), UNQUANTIZED)
    })?;
    let codes = tensors.take(&name(codes), &["U8"], &[n, half])?;
    // With more columns than the format's groups, each group repeats the scale.
    let scaled = tensors.matrix(&name("weight_scale"))?;
    let group = k.checked_div(scaled[1]).filter(|g| *g > 0 && g.is_multiple_of(GROUP) && k.is_multiple_of(*g));
    let group = group.unwrap_or(GROUP);
    let scales = tensors.take(&name("weight_scale"), &["F8_E4M3"], &[n, k / group])?;
    let one: &[usize] = if tensors.index.get(&name(all)).is_some_and(|e| e.info.shape.is_empty()) { &[] } else { &[1] };
    let all = tensors.take(&name(all), &["F32"], one)?;
    let info = TensorInfo { dtype: &NVFP4, shape: vec![n, k], bytes: codes.from..codes.to };
    let given = all.single(tensors.shards);
    let above = above(given);
    // (The reciprocal of infinity would be a number.)
    if !given.is_finite() || !above.is_finite() {
        let what = format!("tensor `{}` is {given}, which gives a scale of {above}", name(names[2]));
        return Err((what, "the checkpoint is damaged: download or convert it again"));
    }
    let layout = Fp4 { codes, scales, above, k, group };
    Ok(Entry { layout: Some(Arc::new(layout)), ..Entry::plain(codes.shard, info) })
}

#[derive(Debug)]
struct Fp4 {
    codes: Part,
    scales: Part,
    /// Multiplies all scales.
    above: f32,
    k: usize,
    /// Columns that share a scale.
    group: usize,
}

impl Layout for Fp4 {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.codes.place(), self.scales.place()]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let codes = self.codes.bytes(shards).get(row * self.k / 2..).unwrap_or_default();
        out.codes.iter_mut().zip(codes.iter().flat_map(|u| [u & 15, u >> 4])).for_each(|(c, u)| *c = u);
        let first = row * (self.k / self.group);
        let scale = |g: usize| self.scales.float(shards, first + g * GROUP / self.group);
        out.factors.iter_mut().enumerate().for_each(|(g, f)| *f = (scale(g), 0.0));
        out.above.fill((self.above, 0.0));
    }

    // It is codes.
    fn values(&self, _: &[Shard], _: usize, _: &mut [f32]) {}
}
