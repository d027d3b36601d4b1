//! The error of storing a weight in a format, measured on a sample of its blocks.
//!
//! The relative error of a matrix is √(Σ(ŵ − w)² / Σw²), ŵ being the packed elements decoded again.
//! Blocks of 16 rows are taken at equal distances; a matrix of up to `SAMPLE` elements is
//! measured whole. No randomness: the same checkpoint gives the same numbers.
//!
//! A sample may miss important rows (a few far larger than the rest), so a choice made by samples
//! is checked against errors of whole weights: [`crate::budget`].

use crate::method::{self, Coder, LEAST_SQUARES, Method, NEAREST, Run};
use crate::pack::{self, rows::Rows};
use crate::pack::{PackError, WeightSource};
use llmcc_ir::graph::Module;
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::quant::trellis::Search;
use llmcc_ir::quant::{self, BLOCK, Format};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Elements measured per matrix.
const SAMPLE: usize = 1 << 17;

/// Relative errors by weight and format; formats that cannot hold a weight are absent, or have an
/// infinite error where the whole weight was tried.
pub type Measured = BTreeMap<WeightExpr, BTreeMap<Format, f64>>;

/// Measures every weight in every format, except where `whole` has the error.
///
/// # Errors
/// A missing or misshapen tensor, or one that no format can hold.
pub fn measure(
    weights: Vec<WeightExpr>,
    formats: &[Format],
    whole: &Measured,
    module: &Module,
    source: &dyn WeightSource,
) -> Result<Measured, PackError> {
    crate::threads::prepare();
    let each = weights.into_par_iter().map(|w| {
        let mut known = whole.get(&w).cloned().unwrap_or_default();
        let unknown: Vec<Format> = formats.iter().copied().filter(|f| !known.contains_key(f)).collect();
        match sampled(&w, &unknown, module, source) {
            Ok(errors) => known.extend(errors),
            // A weight with a known error can be stored.
            Err(_) if known.values().any(|e| e.is_finite()) => {}
            Err(e) => return Err(e),
        }
        Ok((w, known))
    });
    each.collect()
}

/// The relative error of a whole weight in a format.
///
/// # Errors
/// A missing or misshapen tensor, or a value that the format cannot hold.
pub fn measure_whole(
    w: &WeightExpr,
    format: Format,
    module: &Module,
    source: &dyn WeightSource,
) -> Result<f64, PackError> {
    let name = pack::leaf_names(w, module);
    if pack::lossless(w, format, module) {
        return Ok(0.0);
    }
    let rows = Rows::new(w, module, source).map_err(|e| e.into_error(&name))?;
    let (method, runs) = (sampling(source.method()), method::runs(w, module, source)?);
    let sums = |block: usize| Sample { rows: &rows, method, runs: &runs, first: vec![block] }.sums(format, &name);
    let blocks = rows.shape().0.div_ceil(BLOCK);
    // Sums over all blocks in order, whichever thread had them.
    crate::threads::prepare();
    let each: Vec<(f64, f64)> = (0..blocks).into_par_iter().map(sums).collect::<Result<_, _>>()?;
    let (error, signal) = each.iter().fold((0.0, 0.0), |(e, s), (of, whole)| (e + of, s + whole));
    Ok(relative(error, signal))
}

/// The method by which samples are measured: one whose results for a row need little time.
fn sampling(method: &'static Method) -> &'static Method {
    if *method == NEAREST { &NEAREST } else { &LEAST_SQUARES }
}

/// √(error / signal).
fn relative(error: f64, signal: f64) -> f64 {
    if signal > 0.0 { (error / signal).sqrt() } else { 0.0 }
}

fn sampled(
    w: &WeightExpr,
    formats: &[Format],
    module: &Module,
    source: &dyn WeightSource,
) -> Result<BTreeMap<Format, f64>, PackError> {
    let name = pack::leaf_names(w, module);
    let rows = Rows::new(w, module, source).map_err(|e| e.into_error(&name))?;
    let runs = method::runs(w, module, source)?;
    let mut sample = Sample::of(&rows, sampling(source.method()), &runs);
    if sample.signal() == 0.0 {
        sample = Sample { first: (0..rows.shape().0.div_ceil(BLOCK)).collect(), ..sample };
    }
    let mut out = BTreeMap::new();
    let mut refused = None;
    for format in formats {
        match sample.error(*format, &name) {
            Ok(e) => {
                out.insert(*format, e);
            }
            Err(e) => refused = Some(e),
        }
    }
    match refused {
        Some(e) if out.is_empty() => Err(e),
        _ => Ok(out),
    }
}

/// Blocks of a matrix.
struct Sample<'a> {
    rows: &'a Rows<'a>,
    method: &'static Method,
    runs: &'a [Run<'a>],
    /// Numbers of the blocks.
    first: Vec<usize>,
}

impl<'a> Sample<'a> {
    fn of(rows: &'a Rows<'a>, method: &'static Method, runs: &'a [Run<'a>]) -> Sample<'a> {
        let (n, k) = rows.shape();
        let blocks = n.div_ceil(BLOCK);
        let count = (SAMPLE / (BLOCK * k).max(1)).clamp(2, blocks.max(2)).min(blocks);
        Sample { rows, method, runs, first: (0..count).map(|i| (2 * i + 1) * blocks / (2 * count)).collect() }
    }

    /// Calls `f` with the rows of each block.
    fn each<E>(&self, mut f: impl FnMut(usize, &[f32]) -> Result<(), E>) -> Result<(), E> {
        let (n, k) = self.rows.shape();
        let mut values = vec![0f32; BLOCK * k];
        for block in &self.first {
            let count = BLOCK.min(n - block * BLOCK);
            self.rows.fill(block * BLOCK, &mut values[..count * k]);
            f(block * BLOCK, &values[..count * k])?;
        }
        Ok(())
    }

    fn signal(&self) -> f64 {
        let mut sum = 0f64;
        let add = |_, values: &[f32]| {
            sum += values.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>();
            Ok::<(), ()>(())
        };
        // Cannot fail.
        let _ = self.each(add);
        sum
    }

    fn error(&self, format: Format, name: &str) -> Result<f64, PackError> {
        let sums = match Search::of(&format.encoding()) {
            Some(_) => Sample { first: self.some(), ..*self }.sums(format, name),
            None => self.sums(format, name),
        };
        sums.map(|(error, signal)| relative(error, signal))
    }

    /// A part of the blocks, of formats whose codes take long to find.
    fn some(&self) -> Vec<usize> {
        let step = if self.first.len() >= 8 { 4 } else { 1 };
        self.first.iter().step_by(step).copied().collect()
    }

    /// Σ(ŵ − w)² and Σw².
    fn sums(&self, format: Format, name: &str) -> Result<(f64, f64), PackError> {
        let (_, k) = self.rows.shape();
        let mut coder = Coder::new(format, self.method, k, self.runs);
        let mut packed = vec![0u8; format.block_bytes(k)];
        let mut back = vec![0f32; k];
        let (mut error, mut signal) = (0f64, 0f64);
        self.each(|first, values| {
            coder.prepare(first, first + values.len() / k, &|at, out| self.rows.fill(at, out));
            coder.pack(first, values, &mut packed).map_err(|e| pack::located(e, first, (values, k), format, name))?;
            for (r, row) in values.chunks_exact(k).enumerate() {
                quant::unpack_row(format, &packed, k, r, &mut back);
                for (w, q) in row.iter().zip(&back) {
                    error += f64::from(q - w) * f64::from(q - w);
                    signal += f64::from(*w) * f64::from(*w);
                }
            }
            Ok::<(), PackError>(())
        })?;
        Ok((error, signal))
    }
}
