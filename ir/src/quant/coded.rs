//! Weights that a checkpoint has as codes and scales, which are packed as they are.

use super::{Code, Encoding};

/// A row of a matrix as stored codes and scales, the two levels of scales apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CodedRow {
    /// One per column.
    pub codes: Vec<u8>,
    /// Scale and minimum of each group of columns; of codes, the numbers that these are.
    pub factors: Vec<(f32, f32)>,
    /// Scale and minimum of each super-group; empty where there are none.
    pub above: Vec<(f32, f32)>,
}

impl CodedRow {
    /// Room for a row of `k` columns.
    pub fn new(e: &Encoding, k: usize) -> CodedRow {
        let groups = |of: Option<usize>| of.map_or(0, |columns| k.div_ceil(columns.max(1)));
        CodedRow {
            codes: vec![0; k],
            factors: vec![(0.0, 0.0); groups(e.group().or(Some(k)))],
            above: vec![(0.0, 0.0); groups(e.super_group())],
        }
    }

    /// The values, as every backend computes them.
    pub fn decode(&self, e: &Encoding, out: &mut [f32]) {
        let k = self.codes.len().max(1);
        let (group, unit) = (e.group().unwrap_or(k).max(1), e.super_group().unwrap_or(k).max(1));
        let of_scales = e.scales[1].is_some_and(|s| s.minimum);
        let runs = out.chunks_mut(group).zip(self.codes.chunks(group)).zip(&self.factors);
        for (g, ((out, codes), (scale, min))) in runs.enumerate() {
            let above = self.above.get(g * group / unit).copied().unwrap_or((1.0, 1.0));
            let (scale, min) = (above.0 * scale, if of_scales { above.1 * min } else { *min });
            match e.has_minimum() {
                true => e.decode_each(codes, |c, number| out[c] = scale.mul_add(number, min)),
                false => e.decode_each(codes, |c, number| out[c] = scale * number),
            }
        }
    }

    /// The first column whose scales are no numbers, or that is none itself.
    pub fn not_finite(&self, e: &Encoding) -> Option<usize> {
        // Integers and numbers of tables are always some.
        if matches!(e.code, Code::Float(_))
            && let Some(col) = self.codes.iter().position(|u| !e.number(*u).is_finite())
        {
            return Some(col);
        }
        let bad = |list: &[(f32, f32)]| list.iter().position(|f| !f.0.is_finite() || !f.1.is_finite());
        let group = bad(&self.factors).map(|g| g * e.group().unwrap_or(0));
        let group = group.or_else(|| bad(&self.above).map(|s| s * e.super_group().unwrap_or(0)));
        group.or_else(|| self.overflow(e))
    }

    /// The first column whose value is too large for f32, though its scales are numbers.
    fn overflow(&self, e: &Encoding) -> Option<usize> {
        // No number of a code exceeds this, and so no value where all scales together are below its part of f32.
        const LARGEST: f32 = 1024.0;
        let most = |list: &[(f32, f32)]| list.iter().fold(0f32, |m, f| m.max(f.0.abs()).max(f.1.abs()));
        let above = if self.above.is_empty() { 1.0 } else { most(&self.above).max(1.0) };
        if most(&self.factors) * above < f32::MAX / (4.0 * LARGEST) {
            return None;
        }
        let mut values = vec![0f32; self.codes.len()];
        self.decode(e, &mut values);
        values.iter().position(|v| !v.is_finite())
    }
}

/// Rows of a weight that are not simply its elements one after the other: codes, or elements in
/// another order.
pub trait StoredRows: Sync {
    /// Writes the values of the rows from `from` on that `out` has room for.
    fn values(&self, from: usize, out: &mut [f32]);

    /// Writes a row of a weight of codes; `out` has its size.
    fn codes(&self, row: usize, out: &mut CodedRow);
}
