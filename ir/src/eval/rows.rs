//! Matrices of rows as kernels store them.

use crate::kernel::RowElem;
use crate::quant::{E4M3_MAX, e4m3_from_f32, e4m3_to_f32};
use llmcc_abi::layout::{EXCESS, EXCESS_PART, excess_parts, groups};

/// f32 rows `[rows, cols]`; also f16 and bf16 rows, whose values f32 holds exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Columns.
    pub cols: usize,
    /// Elements, row-major.
    pub data: Vec<f32>,
}

/// int8 rows `[rows, cols]` with a scale and a sum of codes per group of columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Q8Rows {
    /// Columns.
    pub cols: usize,
    /// Columns per scale.
    pub group: usize,
    /// Codes, `[rows, cols]` (no padding).
    pub codes: Vec<i8>,
    /// Scales, `[rows, groups]`.
    pub scales: Vec<f32>,
    /// Sums of the codes, `[rows, groups]`.
    pub sums: Vec<i32>,
    /// Excesses of parts of 32 columns ([`llmcc_abi::layout::EXCESS`]), `[rows, groups, 8]` where groups have 256
    /// columns.
    pub excesses: Vec<i32>,
}

/// e4m3 rows `[rows, cols]` with a scale per row.
#[derive(Clone, Debug, PartialEq)]
pub struct Fp8Rows {
    /// Columns.
    pub cols: usize,
    /// Codes, `[rows, cols]`, in the order of the columns (no padding).
    pub codes: Vec<u8>,
    /// Scales, `[rows]`.
    pub scales: Vec<f32>,
}

impl Rows {
    /// `rows` rows of NaN: reading unwritten rows shows.
    pub fn poisoned(rows: usize, cols: usize) -> Rows {
        Rows { cols, data: vec![f32::NAN; rows * cols] }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.data.len().checked_div(self.cols).unwrap_or(0)
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.cols..][..self.cols]
    }
}

impl Q8Rows {
    /// `rows` rows with scales of NaN.
    pub fn poisoned(rows: usize, cols: usize, group: usize) -> Q8Rows {
        let g = rows * groups(cols, group);
        let excesses = vec![0; g * excess_parts(group)];
        Q8Rows { cols, group, codes: vec![0; rows * cols], scales: vec![f32::NAN; g], sums: vec![0; g], excesses }
    }

    /// Quantizes f32 rows.
    pub fn quantize(x: &Rows, group: usize) -> Q8Rows {
        Q8Rows::by(x, group, quantize_q8_row)
    }

    /// f32 rows as [`RowElem::I8`] has them.
    pub fn integers(x: &Rows, group: usize) -> Q8Rows {
        Q8Rows::by(x, group, integer_row)
    }

    fn by(x: &Rows, group: usize, row: fn(&[f32], usize) -> Q8Row) -> Q8Rows {
        let mut q = Q8Rows { cols: x.cols, group, codes: vec![], scales: vec![], sums: vec![], excesses: vec![] };
        for i in 0..x.rows() {
            let (codes, scales, sums) = row(x.row(i), group);
            q.excesses.extend(excesses(&codes, group));
            q.codes.extend(codes);
            q.scales.extend(scales);
            q.sums.extend(sums);
        }
        q
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.codes.len().checked_div(self.cols).unwrap_or(0)
    }

    /// Groups per row.
    pub fn groups(&self) -> usize {
        groups(self.cols, self.group)
    }

    /// The values of row `i`.
    pub fn row(&self, i: usize) -> Vec<f64> {
        let g = self.groups();
        dequantize_q8_row(&self.codes[i * self.cols..][..self.cols], &self.scales[i * g..][..g], self.group)
    }

    /// Stores values from column `start` of row `i`: groups are quantized one by one, so `start` is
    /// a multiple of the group, and so is the number of values unless they end the row.
    pub(super) fn store(&mut self, i: usize, start: usize, x: &[f32], elem: RowElem) {
        let row = if matches!(elem, RowElem::I8 { .. }) { integer_row } else { quantize_q8_row };
        let (codes, scales, sums) = row(x, self.group);
        let first = i * self.groups() + start / self.group;
        let n = x.len().div_ceil(self.group);
        self.codes[i * self.cols + start..][..x.len()].copy_from_slice(&codes);
        self.scales[first..][..n].copy_from_slice(&scales[..n]);
        self.sums[first..][..n].copy_from_slice(&sums[..n]);
        let parts = excess_parts(self.group);
        self.excesses[first * parts..][..n * parts].copy_from_slice(&excesses(&codes, self.group)[..n * parts]);
    }
}

impl Fp8Rows {
    /// `rows` rows of NaN.
    pub fn poisoned(rows: usize, cols: usize) -> Fp8Rows {
        Fp8Rows { cols, codes: vec![0x7f; rows * cols], scales: vec![f32::NAN; rows] }
    }

    /// Quantizes f32 rows, in f32 arithmetic: `amax` = largest magnitude of a row,
    /// `scale = amax/448`, code = the e4m3 number nearest to `x·(448/amax)`; where `448/amax` is
    /// not finite (`amax` is 0 or nearly) all codes are 0.
    pub fn quantize(x: &Rows) -> Fp8Rows {
        let mut q = Fp8Rows { cols: x.cols, codes: vec![], scales: vec![] };
        for i in 0..x.rows() {
            let (codes, scale) = quantize_fp8_row(x.row(i));
            q.codes.extend(codes);
            q.scales.push(scale);
        }
        q
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.scales.len()
    }

    /// The values of row `i`, exact.
    pub fn row(&self, i: usize) -> Vec<f64> {
        let scale = f64::from(self.scales[i]);
        self.codes[i * self.cols..][..self.cols].iter().map(|c| scale * f64::from(e4m3_to_f32(*c))).collect()
    }

    /// Stores a whole row.
    pub(super) fn store(&mut self, i: usize, x: &[f32]) {
        let (codes, scale) = quantize_fp8_row(x);
        self.codes[i * self.cols..][..self.cols].copy_from_slice(&codes);
        self.scales[i] = scale;
    }
}

/// The codes of a row, and its scale.
fn quantize_fp8_row(x: &[f32]) -> (Vec<u8>, f32) {
    let amax = amax(x);
    let inverse = E4M3_MAX / amax;
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    (x.iter().map(|v| if inverse > 0.0 { e4m3_from_f32(v * inverse) } else { 0 }).collect(), amax / E4M3_MAX)
}

/// The storage of an operand's rows.
pub(super) fn elem_name(elem: RowElem) -> String {
    match elem {
        RowElem::Q8 { group } => format!("int8 rows in groups of {group}"),
        RowElem::I8 { group } => format!("int8 rows with scales of 1 in groups of {group}"),
        RowElem::F32 | RowElem::F16 | RowElem::Bf16 | RowElem::Fp8 => format!("{elem} rows"),
    }
}

/// Scale of a group and the factor that takes its values to codes, from its largest magnitude. The
/// factor is 0 where only code 0 makes sense: for 0, and for numbers so small that `127/amax`
/// overflows; infinities and NaN give a scale that is not finite.
pub(super) fn q8_scale(amax: f32) -> (f32, f32) {
    code_scale(amax, 127.0)
}

/// The same for codes of `−most` to `most`.
pub(super) fn code_scale(amax: f32, most: f32) -> (f32, f32) {
    let inverse = most / amax;
    (amax / most, if inverse.is_finite() { inverse } else { 0.0 })
}

/// Largest magnitude; NaN if any element is.
pub(super) fn amax(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |m: f32, v| if v.is_nan() || v.abs() > m { v.abs() } else { m })
}

/// Excesses of the codes of a row, `[groups, parts]`: [`EXCESS`] times the sum of each 32 codes.
pub fn excesses(codes: &[i8], group: usize) -> Vec<i32> {
    let each = excess_parts(group) * groups(codes.len(), group);
    let sum = |part: usize| codes.iter().skip(part * EXCESS_PART).take(EXCESS_PART).map(|c| i32::from(*c)).sum::<i32>();
    (0..each).map(|part| EXCESS * sum(part)).collect()
}

/// `(codes [cols], scales [groups], sums of codes [groups])`.
pub type Q8Row = (Vec<i8>, Vec<f32>, Vec<i32>);

/// A row as [`RowElem::I8`] has it. Per group: code = nearest integer of −128 to 127, ties to even, 0
/// where there is no number; scale = 1, or NaN where one of the values is no number.
pub fn integer_row(x: &[f32], group: usize) -> Q8Row {
    let code = |v: &f32| v.clamp(-128.0, 127.0).round_ties_even() as i8;
    let codes: Vec<i8> = x.iter().map(code).collect();
    let part = |g: usize| g * group..((g + 1) * group).min(x.len()).max(g * group);
    let parts = (0..groups(x.len(), group)).map(part);
    let none = |v: &f32| v.is_nan();
    let (scales, sums) = parts
        .map(|p| {
            let (x, codes) = (x.get(p.clone()).unwrap_or(&[]), codes.get(p).unwrap_or(&[]));
            (if x.iter().any(none) { f32::NAN } else { 1.0 }, codes.iter().map(|c| i32::from(*c)).sum::<i32>())
        })
        .unzip();
    (codes, scales, sums)
}

/// int8 quantization of a row, in f32 arithmetic: `(codes [cols], scales [groups], sums [groups])`.
///
/// Per group: `amax` = largest magnitude, `scale = amax/127`, code = `x·(127/amax)` rounded to
/// nearest, ties to even; where `127/amax` is not finite (`amax` is 0 or nearly) all codes are 0.
/// The last group may be short.
pub fn quantize_q8_row(x: &[f32], group: usize) -> Q8Row {
    let mut codes = Vec::with_capacity(x.len());
    let (mut scales, mut sums) = (vec![], vec![]);
    for g in 0..groups(x.len(), group) {
        let part = x.get(g * group..).unwrap_or(&[]);
        let part = &part[..part.len().min(group)];
        let (scale, inverse) = q8_scale(amax(part));
        let start = codes.len();
        codes.extend(part.iter().map(|v| if inverse > 0.0 { (v * inverse).round_ties_even() as i8 } else { 0 }));
        scales.push(scale);
        sums.push(codes[start..].iter().map(|c| i32::from(*c)).sum());
    }
    (codes, scales, sums)
}

/// The values of a quantized row, exact.
pub fn dequantize_q8_row(codes: &[i8], scales: &[f32], group: usize) -> Vec<f64> {
    codes.iter().enumerate().map(|(j, c)| f64::from(scales[j / group]) * f64::from(*c)).collect()
}
