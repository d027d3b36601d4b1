//! A matrix of the base plus an adapter's product, computed when a row is read.

use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use crate::checkpoint::views::{View, row_of};
use llmcc_ir::quant::CodedRow;
use llmcc_ir::ty::DType;
use std::collections::BTreeMap;
use std::ops::Range;

/// `W + scale · B·A`, or with magnitudes `m · (W + scale · B·A) / ‖W + scale · B·A‖`, each row's length
/// or (of matrices stored `[in, out]`) each column's.
#[derive(Debug)]
pub(super) struct Merged {
    pub base: Entry,
    /// `[rank, in]`
    pub a: View,
    /// `[out, rank]`
    pub b: View,
    pub scale: f32,
    /// The base is stored `[in, out]`.
    pub transposed: bool,
    /// `[out]`
    pub magnitudes: Option<View>,
    /// Lengths of the columns, where the base is stored `[in, out]`.
    pub lengths: Vec<f32>,
    /// Results are rounded to it, as PEFT's are.
    pub dtype: DType,
}

/// Adds to a row of a matrix that of `scale · B·A`, of `a` `[rank, in]` and `b` `[out, rank]`; `transposed`: the
/// matrix is `[in, out]`.
pub(super) fn add_product(
    [a, b]: [&View; 2],
    (scale, transposed): (f32, bool),
    shards: &[Shard],
    row: usize,
    out: &mut [f32],
) {
    let rank = b.columns();
    let mut added = vec![0f32; out.len()];
    if transposed {
        // Column `row` of A with each row of B.
        let mut factors = vec![0f32; a.columns()];
        let mut of_row = vec![0f32; rank];
        for (r, factor) in of_row.iter_mut().enumerate() {
            a.row(shards, r, &mut factors);
            *factor = factors.get(row).copied().unwrap_or(0.0);
        }
        let mut of_output = vec![0f32; rank];
        for (j, sum) in added.iter_mut().enumerate() {
            b.row(shards, j, &mut of_output);
            *sum = of_output.iter().zip(&of_row).map(|(b, a)| b * a).sum();
        }
    } else {
        let (mut factors, mut inputs) = (vec![0f32; rank], vec![0f32; out.len()]);
        b.row(shards, row, &mut factors);
        for (r, factor) in factors.iter().enumerate() {
            a.row(shards, r, &mut inputs);
            added.iter_mut().zip(&inputs).for_each(|(sum, a)| *sum += factor * a);
        }
    }
    out.iter_mut().zip(&added).for_each(|(w, sum)| *w += scale * sum);
}

impl Merged {
    /// A row before magnitudes.
    pub fn sum(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        row_of(&self.base, shards, row, out);
        add_product([&self.a, &self.b], (self.scale, self.transposed), shards, row, out);
    }

    fn magnitude(&self, shards: &[Shard], of: &View, row: usize) -> f32 {
        let mut one = [0f32];
        of.row(shards, row, &mut one);
        one[0]
    }
}

/// The length of a row.
fn length(row: &[f32]) -> f32 {
    row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt() as f32
}

impl Layout for Merged {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        let mut parts = self.base.parts();
        let factors = [Some(&self.a), Some(&self.b), self.magnitudes.as_ref()];
        parts.extend(factors.into_iter().flatten().map(|v| (v.shard, v.info.bytes.clone())));
        parts
    }

    /// Merged matrices are floats.
    fn codes(&self, _: &[Shard], _: usize, _: &mut CodedRow) {}

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        self.sum(shards, row, out);
        if let Some(magnitudes) = &self.magnitudes {
            match self.transposed {
                false => {
                    let factor = self.magnitude(shards, magnitudes, row) / length(out);
                    out.iter_mut().for_each(|x| *x *= factor);
                }
                true => out.iter_mut().zip(&self.lengths).enumerate().for_each(|(j, (x, length))| {
                    *x *= self.magnitude(shards, magnitudes, j) / length;
                }),
            }
        }
        round(self.dtype, out);
    }
}

/// Rounds numbers to a type.
pub(super) fn round(dtype: DType, out: &mut [f32]) {
    match dtype {
        DType::F16 => out.iter_mut().for_each(|x| *x = half::f16::from_f32(*x).to_f32()),
        DType::Bf16 => out.iter_mut().for_each(|x| *x = half::bf16::from_f32(*x).to_f32()),
        DType::F32 | DType::F64 | DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Coded(_) => {}
    }
}

/// A table with some rows replaced.
#[derive(Debug)]
pub(super) struct Replaced {
    pub base: Entry,
    /// Rows of `view`, by the table's.
    pub rows: BTreeMap<usize, usize>,
    pub view: View,
    /// Rows are rounded to it.
    pub dtype: DType,
}

impl Layout for Replaced {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        let mut parts = self.base.parts();
        parts.push((self.view.shard, self.view.info.bytes.clone()));
        parts
    }

    /// It is floats.
    fn codes(&self, _: &[Shard], _: usize, _: &mut CodedRow) {}

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        match self.rows.get(&row) {
            Some(i) => self.view.row(shards, *i, out),
            None => row_of(&self.base, shards, row, out),
        }
        round(self.dtype, out);
    }
}
