//! Positions as sines and cosines of frequencies, in a table that is computed, not stored.

use crate::arch::blocks::lifter::Draft;
use llmcc_ir::graph::Value;

/// Frequencies of `half` columns from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rates {
    /// To 1/10000, the last one.
    ToLast,
    /// Towards 1/10000, which would be the next one.
    BeforeNext,
    /// The same, all in f64, and rounded to f32 at last.
    InF64,
}

/// A table of positions of sines and cosines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sines {
    /// Frequencies.
    pub rates: Rates,
    /// The row of the first position.
    pub skip: usize,
    /// A row of zeros: that of padding.
    pub zero: Option<usize>,
}

impl Sines {
    /// The table, `[positions, width]`.
    pub(crate) fn table(self, f: &mut Draft, width: usize) -> Value {
        let len = f.max_context();
        let rows = (self.skip..self.skip.saturating_add(len)).map(|row| match self.zero {
            Some(zero) if zero == row => vec![0.0; width],
            _ => sines(self.rates, row, width),
        });
        let zero = self.zero.map_or(String::new(), |n| n.to_string());
        let name = format!("$positions.sines{}_{zero}", self.skip);
        let data = rows.flatten().collect();
        f.shared_table("position_sines", &name, [len, width], data)
    }
}

/// The sines, then the cosines of a row; in f32, in the order of operations of Transformers.
fn sines(rates: Rates, row: usize, width: usize) -> Vec<f32> {
    let half = width / 2;
    if rates == Rates::InF64 {
        // An odd width has one sine more than cosines.
        let angle = |i: usize| row as f64 / libm::pow(10_000.0, (2 * i) as f64 / width as f64);
        let sines = (0..width.div_ceil(2)).map(|i| libm::sin(angle(i)) as f32);
        return sines.chain((0..half).map(|i| libm::cos(angle(i)) as f32)).collect();
    }
    let step = -(libm::log(10_000.0) / half.saturating_sub(1).max(1) as f64) as f32;
    let rate = |i: usize| match rates {
        Rates::ToLast => libm::expf(i as f32 * step),
        Rates::BeforeNext | Rates::InF64 => 1.0 / libm::powf(10_000.0, 2.0 * i as f32 / width as f32),
    };
    let angles = || (0..half).map(|i| row as f32 * rate(i));
    let both = angles().map(libm::sinf).chain(angles().map(libm::cosf));
    both.chain(std::iter::repeat_n(0.0, width % 2)).collect()
}
