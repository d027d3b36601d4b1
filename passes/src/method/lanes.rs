//! Rows that are coded side by side.

/// Rows that are coded together: a column of them is a vector.
pub(super) const LANES: usize = 16;

/// Up to 16 rows, being coded.
pub(super) struct Lanes<'a> {
    /// The rows.
    pub x: &'a [f32],
    pub k: usize,
    /// `w − ŵ` of the columns so far.
    pub errors: Vec<[f32; LANES]>,
}

impl Lanes<'_> {
    /// Column `c` of the rows.
    #[inline(always)]
    pub fn column(&self, c: usize) -> [f32; LANES] {
        let mut out = [0f32; LANES];
        out.iter_mut().zip(self.x.chunks(self.k)).for_each(|(v, row)| *v = row[c]);
        out
    }
}

/// Adds errors of columns, each times its factor.
#[inline(always)]
pub(super) fn add(to: &mut [f32; LANES], errors: &[[f32; LANES]], factors: &[f32]) {
    for (e, f) in errors.iter().zip(factors) {
        to.iter_mut().zip(e).for_each(|(t, e)| *t += e * f);
    }
}
