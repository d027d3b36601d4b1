//! Packing: reads a checkpoint, evaluates weight expressions, writes the packed weights in the
//! plan's order.
//!
//! Streams: a few megabytes of rows are converted, packed and measured at a time, on all cores, and
//! written in order, so memory does not grow with the checkpoint. Every operation of a weight
//! expression rounds once to f32, as [`llmcc_ir::eval::eval_weight`] defines.

mod again;
mod hidden;
pub(crate) mod rows;
mod small;
mod source;
#[cfg(test)]
mod tests;

use crate::method::{self, Coder, Pruning, has_zero};
use crate::module::layers::LayerMatrices;
use llmcc_ir::graph::Module;
use llmcc_ir::plan::{PackedWeight, Plan, Storage, WeightExpr};
use llmcc_ir::quant::{self, BLOCK, Float, Format, Packing};
use llmcc_ir::threads::beside;
use llmcc_ir::ty::DType;
use rayon::prelude::*;
use rows::Rows;
pub(crate) use rows::leaf_names;
use small::{Losses, Small};
use source::not_finite;
use std::collections::BTreeMap;

pub use again::reorders;
pub use source::{PackError, PackedBefore, TensorBytes, WeightSource};

/// Alignment of every weight in the artifact.
pub const ALIGN: u64 = 64;
/// f32 elements that one task converts at a time.
const TASK_ELEMENTS: usize = 1 << 19;
/// Tasks whose results may wait for being written.
const TASKS_IN_FLIGHT: usize = 16;

/// Error of a stored tensor against its weight expression.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuantError {
    /// √(Σ(ŵ − w)² / Σw²).
    pub relative_rms: f64,
    /// Largest |ŵ − w|.
    pub max: f64,
    /// The format's scales are too coarse for numbers so small: the row where most is lost, and its magnitude.
    pub too_small: Option<(usize, f32)>,
}

/// One packed weight.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorReport {
    /// Checkpoint tensors it was computed from, joined by ` + `.
    pub name: String,
    /// Bytes, padding included.
    pub bytes: u64,
    /// Rounding error, where the format is not exact (see [`lossless`]).
    pub error: Option<QuantError>,
    /// Share of its values that are zero, where some were pruned.
    pub zeros: Option<f64>,
}

/// The result of packing, a tensor per weight of the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PackReport {
    /// In the order of [`Plan::weights`].
    pub tensors: Vec<TensorReport>,
    /// Bytes written.
    pub bytes: u64,
}

impl PackReport {
    /// Refuses weights of the `plan` that lost bits, because they are too small for the scales of their format.
    ///
    /// # Errors
    /// [`PackError::Value`] with the first of them.
    pub fn check_scales(&self, plan: &Plan) -> Result<(), PackError> {
        for (tensor, weight) in self.tensors.iter().zip(&plan.weights) {
            let (Some((row, value)), Storage::Matrix { format, .. }) =
                (tensor.error.and_then(|e| e.too_small), weight.storage)
            else {
                continue;
            };
            let what = format!("is too small for {format}, whose scales are f16: {}", wider(format));
            return Err(PackError::Value { tensor: tensor.name.clone(), row, col: 0, value, what });
        }
        Ok(())
    }
}

/// The format to use in place of one whose scales are f16.
fn wider(format: Format) -> String {
    let wide = match format.def().name {
        "w8" => format!("w8zg{}", format.group),
        "w4" | "w4a" => format!("w4zg{}", format.group),
        "fp8" => "fp8b".into(),
        _ => "w4zg32 or w8zg32".into(),
    };
    format!("give --format {wide}, whose scales are f32, or --dtype bf16")
}

/// Byte offset of each of the plan's weights, in order; each is a multiple of [`ALIGN`].
pub fn weight_offsets(plan: &Plan) -> Vec<u64> {
    let mut at = 0u64;
    let mut offset = |w: &PackedWeight| {
        let here = at;
        at += (w.storage.bytes() as u64).next_multiple_of(ALIGN);
        here
    };
    plan.weights.iter().map(&mut offset).collect()
}

/// Packs all weights of `plan` into `sink`; `progress` hears the bytes written so far.
///
/// # Errors
/// [`PackError`]: a missing or misshapen tensor, a value that cannot be stored (with its place), or a failing sink.
pub fn pack(
    plan: &Plan,
    module: &Module,
    source: &dyn WeightSource,
    sink: &mut dyn std::io::Write,
    progress: &mut dyn FnMut(u64),
) -> Result<PackReport, PackError> {
    crate::threads::prepare();
    if !source.was_packed() {
        hidden::check(plan, module, source)?;
    }
    let last_use = last_uses(plan);
    let pruning = source.pruning().map(|pruning| (pruning, LayerMatrices::of(module)));
    let mut report = PackReport::default();
    for (i, weight) in plan.weights.iter().enumerate() {
        let name = leaf_names(&weight.expr, module);
        let mut out = Output { sink, progress, written: report.bytes };
        let (error, zeros) = match source.packed(weight) {
            Some(before) => {
                again::write(&before, weight.storage, &name, &mut |bytes| out.write(bytes))?;
                let error = before.error.map(|relative_rms| QuantError { relative_rms, ..QuantError::default() });
                (error, before.zeros)
            }
            None => out.weight(weight, module, source, (pruning.as_ref(), &name))?,
        };
        out.pad()?;
        let bytes = out.written - report.bytes;
        report.bytes = out.written;
        report.tensors.push(TensorReport { name, bytes, error, zeros });
        weight.expr.leaves(&mut |w| {
            if last_use.get(&w) == Some(&i)
                && let Some(weight) = module.weights.get(w)
            {
                source.release(&weight.name);
            }
        });
    }
    Ok(report)
}

/// Refuses to prune in a format without zeros.
fn check_zero(format: Format) -> Result<(), PackError> {
    if has_zero(&format.encoding()) {
        return Ok(());
    }
    let names = quant::FORMATS.iter().filter(|d| has_zero(&d.encoding)).map(|d| d.name);
    Err(PackError::NoZero { format: format.to_string(), others: names.collect::<Vec<_>>().join(", ") })
}

fn last_uses(plan: &Plan) -> BTreeMap<usize, usize> {
    let mut last = BTreeMap::new();
    for (i, w) in plan.weights.iter().enumerate() {
        w.expr.leaves(&mut |leaf| {
            last.insert(leaf, i);
        });
    }
    last
}

/// Whether `format` holds every value of a weight: f32 does, a 16-bit type those that are of that
/// type and not computed, and a format of codes those that are its codes.
pub fn lossless(e: &WeightExpr, format: Format, module: &Module) -> bool {
    let of_type = |dtype: DType| {
        let mut all = true;
        e.leaves(&mut |i| all &= module.weights.get(i).is_some_and(|w| w.ty.dtype == dtype));
        all && moved_only(e)
    };
    match format.encoding().float() {
        Some(Float::F32) => true,
        Some(Float::F16) => of_type(DType::F16),
        Some(Float::Bf16) => of_type(DType::Bf16),
        Some(Float::E4m3) | None => of_type(DType::Coded(format.with_packing(Packing::Panel))),
    }
}

/// Whether an expression moves elements and computes none.
pub(crate) fn moved_only(e: &WeightExpr) -> bool {
    match e {
        WeightExpr::Weight(_) => true,
        WeightExpr::Op(op, args) => op.facts().moves && args.iter().all(moved_only),
    }
}

/// Sums over a tensor.
#[derive(Clone, Copy, Default)]
struct Sums {
    error: f64,
    signal: f64,
    max: f64,
    /// Stored values that are zero.
    zeros: usize,
    losses: Losses,
}

/// Bytes of some blocks, and their sums.
type Packed = Result<(Vec<u8>, Sums), PackError>;

struct Output<'a> {
    sink: &'a mut dyn std::io::Write,
    progress: &'a mut dyn FnMut(u64),
    written: u64,
}

impl Output<'_> {
    /// Packs a weight; returns its error, and its share of zeros if it was pruned.
    fn weight(
        &mut self,
        weight: &PackedWeight,
        module: &Module,
        source: &dyn WeightSource,
        (pruning, name): (Option<&(Pruning, LayerMatrices)>, &str),
    ) -> Result<(Option<QuantError>, Option<f64>), PackError> {
        let rows = Rows::new(&weight.expr, module, source).map_err(|e| e.into_error(name))?;
        let (n, k, format) = match weight.storage {
            Storage::Vector { len } => return self.vector(&rows, len, name).map(|()| (None, None)),
            Storage::Matrix { n, k, format } => (n, k, format),
        };
        let exact = lossless(&weight.expr, format, module);
        let runs = if exact { vec![] } else { method::runs(&weight.expr, module, source)? };
        let coder = Coder::new(format, source.method(), k, &runs);
        let pruning =
            pruning.filter(|(_, layers)| format.is_quantized() && !exact && layers.have(&weight.expr, module));
        if pruning.is_some() {
            check_zero(format)?;
        }
        let sums = self.matrix(&rows, coder.pruned(pruning.map(|p| p.0)), (n, k), (format, exact), name)?;
        Ok(((!exact).then(|| sums.error()), pruning.map(|_| sums.zeros as f64 / (n * k).max(1) as f64)))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        self.sink.write_all(bytes)?;
        self.written += bytes.len() as u64;
        (self.progress)(self.written);
        Ok(())
    }

    fn pad(&mut self) -> Result<(), PackError> {
        let missing = self.written.next_multiple_of(ALIGN) - self.written;
        if missing == 0 { Ok(()) } else { self.write(&[0u8; ALIGN as usize][..missing as usize]) }
    }

    fn vector(&mut self, rows: &Rows<'_>, len: usize, name: &str) -> Result<(), PackError> {
        let values = rows.all();
        if values.len() != len {
            return Err(PackError::Expression {
                tensor: name.into(),
                what: format!("{} elements, not {len}", values.len()),
            });
        }
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            return Err(PackError::Value {
                tensor: name.into(),
                row: i,
                col: 0,
                value: values[i],
                what: not_finite(name),
            });
        }
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.write(&bytes)
    }

    /// Nothing is measured where the format is `exact`.
    fn matrix(
        &mut self,
        rows: &Rows<'_>,
        mut coder: Coder<'_>,
        (n, k): (usize, usize),
        (format, exact): (Format, bool),
        name: &str,
    ) -> Result<Sums, PackError> {
        if rows.shape() != (n, k) {
            return Err(PackError::Expression {
                tensor: name.into(),
                what: format!("shape {:?}, not {n}×{k}", rows.shape()),
            });
        }
        let blocks = n.div_ceil(BLOCK);
        let per_task = (TASK_ELEMENTS / (BLOCK * k)).max(1);
        let starts: Vec<usize> = (0..blocks).step_by(per_task).collect();
        let mut total = Sums::default();
        let mut pack = |wave: &[usize]| -> Vec<Packed> {
            let blocks = |from: &usize| (*from, (from + per_task).min(blocks));
            if let (Some(first), Some(last)) = (wave.first(), wave.last()) {
                coder.prepare(first * BLOCK, blocks(last).1 * BLOCK, &|at, out| rows.fill(at, out));
            }
            let coder = &coder;
            wave.par_iter().map(|from| pack_blocks(rows, coder, blocks(from), (n, k), (format, exact), name)).collect()
        };
        let mut waves = starts.chunks(TASKS_IN_FLIGHT).map(Some).chain([None]);
        let mut ready = waves.next().flatten().map(&mut pack).unwrap_or_default();
        for wave in waves {
            // The next ones are packed while these are written.
            ready = std::thread::scope(|s| -> Result<Vec<Packed>, PackError> {
                let next = beside(s, || wave.map(&mut pack).unwrap_or_default());
                for p in ready {
                    let (bytes, sums) = p?;
                    self.write(&bytes)?;
                    total.join(&sums);
                }
                Ok(next.join())
            })?;
        }
        Ok(total)
    }
}

/// Converts and packs blocks `from..to`.
fn pack_blocks(
    rows: &Rows<'_>,
    coder: &Coder<'_>,
    (from, to): (usize, usize),
    (n, k): (usize, usize),
    (format, exact): (Format, bool),
    name: &str,
) -> Packed {
    let size = format.block_bytes(k);
    let mut out = vec![0u8; (to - from) * size];
    let mut values = vec![0f32; BLOCK * k];
    let mut back = vec![0f32; k];
    let (mut sums, small) = (Sums::default(), Small::of(format));
    for (block, out) in (from..to).zip(out.chunks_exact_mut(size)) {
        let first = block * BLOCK;
        let count = BLOCK.min(n - first);
        let values = &mut values[..count * k];
        if exact && let Some(codes) = rows.codes(first, count, format) {
            quant::pack_codes(format, &codes, k, out).map_err(|e| located(e, first, (&[], k), format, name))?;
            continue;
        }
        rows.fill(first, values);
        coder.pack(first, values, out).map_err(|e| located(e, first, (values, k), format, name))?;
        if !exact {
            let before = sums.error;
            for (r, row) in values.chunks_exact(k).enumerate() {
                quant::unpack_row(format, out, k, r, &mut back);
                sums.add(row, &back);
            }
            small.block(first, values, k, sums.error - before, &mut sums.losses);
        }
    }
    Ok((out, sums))
}

impl Sums {
    /// The error of a tensor with these sums.
    fn error(&self) -> QuantError {
        let relative_rms = if self.signal > 0.0 { (self.error / self.signal).sqrt() } else { 0.0 };
        QuantError { relative_rms, max: self.max, too_small: self.losses.too_small(self.error) }
    }

    fn join(&mut self, other: &Sums) {
        self.error += other.error;
        self.signal += other.signal;
        self.max = self.max.max(other.max);
        self.zeros += other.zeros;
        self.losses.add(&other.losses);
    }

    fn add(&mut self, row: &[f32], back: &[f32]) {
        let (mut error, mut signal, mut max) = (0f64, 0f64, 0f32);
        for (w, q) in row.iter().zip(back) {
            let d = q - w;
            error += f64::from(d) * f64::from(d);
            signal += f64::from(*w) * f64::from(*w);
            max = max.max(d.abs());
        }
        self.error += error;
        self.signal += signal;
        self.max = self.max.max(max.into());
        self.zeros += back.iter().filter(|q| **q == 0.0).count();
    }
}

/// The error for a value of the rows `values`, of `k` columns each, that start at row `first` of a
/// weight.
pub(crate) fn located(
    e: quant::PackError,
    first: usize,
    (values, k): (&[f32], usize),
    format: Format,
    name: &str,
) -> PackError {
    let (row, col, width, what) = match e {
        quant::PackError::NotFinite { row, col } => (row, col, 1, not_finite(name)),
        quant::PackError::TooLarge { row, col } if format.is_quantized() => {
            let e = format.encoding();
            let group = e.super_group().or(e.group()).unwrap_or(k);
            (row, col, group, format!("is too large for {format}, whose scales are f16: {}", wider(format)))
        }
        quant::PackError::TooLarge { row, col } => {
            let wider = if format.encoding().float() == Some(Float::F16) {
                "--dtype bf16 or --dtype f32"
            } else {
                "--dtype f32"
            };
            (row, col, 1, format!("is too large for {format}: give {wider}"))
        }
    };
    let row_values = values.chunks(k).nth(row).unwrap_or_default();
    // For codes the values are not known: their scale is wrong.
    let none = if values.is_empty() { f32::NAN } else { 0.0 };
    let value =
        row_values.iter().skip(col).take(width).copied().fold(none, |m, v| if v.abs() <= m.abs() { m } else { v });
    PackError::Value { tensor: name.into(), row: first + row, col, value, what }
}
