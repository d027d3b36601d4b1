//! Trellis codes ([`llmcc_abi::encoding::trellis`]): the search of codes, and the formats that have them.
//!
//! Codes are found by a search of all states (module `viterbi`), scales by least squares for those codes.

use super::{Encoding, FormatDef, Quantize, round_f16};
pub use llmcc_abi::encoding::trellis::{LEVEL_ZERO, STATES};
use llmcc_abi::encoding::trellis::{Trellis, trellis_column};
use llmcc_abi::layout::K_PAD;
use std::sync::LazyLock;

mod viterbi;

pub use viterbi::Wanted;

/// Columns of a group.
const GROUP: usize = 256;

/// 2 bits.
pub(super) const T2: FormatDef = FormatDef {
    name: "t2",
    encoding: Encoding::T2,
    groups: &[GROUP],
    quantize: Quantize::Group(|x, codes| quantize(&OF_2, x, codes)),
};

/// 3 bits.
pub(super) const T3: FormatDef = FormatDef {
    name: "t3",
    encoding: Encoding::T3,
    groups: &[GROUP],
    quantize: Quantize::Group(|x, codes| quantize(&OF_3, x, codes)),
};

static OF_2: LazyLock<Search> = LazyLock::new(|| Search::new(&llmcc_abi::encoding::trellis::T2, 0.034_13, 0.0244));
static OF_3: LazyLock<Search> = LazyLock::new(|| Search::new(&llmcc_abi::encoding::trellis::T3, 0.043_06, 0.0056));

/// Least squares of groups without weights.
fn quantize(search: &Search, x: &[f32], codes: &mut [u8]) -> (f32, f32) {
    let (found, scale) = search.group(x, &vec![1.0; x.len()]);
    codes.copy_from_slice(&found);
    (scale, 0.0)
}

/// Columns of a group in the order of the trellis, with padding.
pub fn order(columns: usize) -> impl Iterator<Item = usize> {
    (0..columns.next_multiple_of(K_PAD)).map(|at| at / K_PAD * K_PAD + trellis_column(at % K_PAD))
}

/// The largest level.
const LARGEST: f32 = (LEVEL_ZERO - 1) as f32;

/// Padding: any number will do, but its code is 0.
const PADDING: Wanted = Wanted { value: 0.0, weight: 0.0 };

/// The search for codes of a trellis.
#[derive(Debug)]
pub struct Search {
    of: &'static Trellis,
    /// The level of each state.
    levels: Vec<f32>,
    /// The scale with which levels fit numbers of variance 1.
    unit: f32,
    /// Growth of the mean squared error of numbers within reach of the levels, by the square of the scale.
    noise: f32,
}

impl Search {
    /// `noise`: for the square of `unit`. It balances the loss of normally distributed numbers out of reach, so that no
    /// other scale is better for these.
    fn new(of: &'static Trellis, unit: f32, noise: f32) -> Search {
        let levels = (0..STATES).map(|state| of.level(state).into()).collect();
        Search { of, levels, unit, noise: noise / unit.powi(2) }
    }

    /// The search for codes of an encoding, if it has a trellis.
    pub fn of(e: &Encoding) -> Option<&'static Search> {
        let super::Code::Trellis(of) = e.code else { return None };
        [&OF_2, &OF_3].into_iter().map(|search| &**search).find(|search| search.of == of)
    }

    /// Columns that share a scale, before and after which the trellis begins anew.
    pub fn columns(&self) -> usize {
        GROUP
    }

    /// The trellis.
    pub fn trellis(&self) -> &'static Trellis {
        self.of
    }

    /// Codes of a group and its scale, as f16, with a small `Σ h·(ŵ − w)²`. `h` has a weight of at least 0 for each
    /// column.
    pub fn group(&self, x: &[f32], h: &[f32]) -> (Vec<u8>, f32) {
        let Some(scale) = self.start(x, h) else { return (vec![0; x.len()], 0.0) };
        let codes = self.codes(x, h, scale);
        let (scale, _) = self.scale(x, h, &codes);
        (codes, scale)
    }

    /// The scale by which codes are searched: that of normally distributed numbers, or another, where outliers out of
    /// reach and the rounding of all others lose less together. `None` without numbers.
    fn start(&self, x: &[f32], h: &[f32]) -> Option<f32> {
        let squares: f64 = x.iter().map(|v| f64::from(*v).powi(2)).sum();
        let usual = self.unit * (squares / x.len().max(1) as f64).sqrt() as f32;
        if usual == 0.0 || !usual.is_finite() {
            return None;
        }
        let largest = x.iter().fold(0f32, |m, v| m.max(v.abs()));
        let weights: f32 = h.iter().sum();
        let error = |scale: f32| {
            let out = |(x, h): (&f32, &f32)| h * (x.abs() - scale * LARGEST).max(0.0).powi(2);
            x.iter().zip(h).map(out).sum::<f32>() + weights * self.noise * scale * scale
        };
        let other =
            (-8..).map(|i| usual * (i as f32 / 4.0).exp2()).take_while(|scale| *scale * LARGEST < 1.2 * largest);
        let all = std::iter::once(usual).chain(other).map(|scale| (scale, error(scale)));
        all.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(scale, _)| scale)
    }

    /// The codes of a group for a scale.
    fn codes(&self, x: &[f32], h: &[f32], scale: f32) -> Vec<u8> {
        let wanted = |c: usize| match x.get(c).zip(h.get(c)) {
            // (All columns count, lest codes be left to chance.)
            Some((value, h)) => Wanted { value: *value, weight: h.max(f32::MIN_POSITIVE) },
            None => PADDING,
        };
        let wanted: Vec<Wanted> = order(x.len()).map(wanted).collect();
        let mut out = vec![0; x.len()];
        let path = self.path(&wanted, &self.scaled(scale));
        order(x.len()).zip(path).for_each(|(c, code)| {
            if let Some(out) = out.get_mut(c) {
                *out = code;
            }
        });
        out
    }

    /// The best scale for codes, as f16, and the weighted squared error with it.
    fn scale(&self, x: &[f32], h: &[f32], codes: &[u8]) -> (f32, f64) {
        let (mut xx, mut xq, mut qq) = (0f64, 0f64, 0f64);
        self.of.each_state(codes, |c, state| {
            let (h, x, q) = (f64::from(h[c]), f64::from(x[c]), f64::from(self.of.level(state)));
            (xx, xq, qq) = (xx + h * x * x, xq + h * x * q, qq + h * q * q);
        });
        let scale = round_f16(if qq > 0.0 { (xq / qq) as f32 } else { 0.0 });
        (scale, xx - f64::from(scale) * (2.0 * xq - f64::from(scale) * qq))
    }

    /// The levels of all states, times a scale.
    pub fn scaled(&self, scale: f32) -> Vec<f32> {
        self.levels.iter().map(|level| level * scale).collect()
    }

    /// Codes of columns in the order of the trellis, from a group's first on. Their values (`values` of states) have
    /// the least error; of equal paths the one of lower states is taken. Padding has code 0.
    pub fn path(&self, wanted: &[Wanted], values: &[f32]) -> Vec<u8> {
        match self.of.bits {
            2 => viterbi::path::<4>(wanted, values),
            _ => viterbi::path::<8>(wanted, values),
        }
    }
}

/// The codes of a group where each has one by itself ([`Encoding::by_itself`]).
pub(super) fn by_themselves(of: &Trellis, codes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; codes.len()];
    of.each_state(codes, |c, state| {
        out[c] = if of.bits == 2 { of.index(state) as u8 } else { (of.level(state) as u8) ^ 0x80 };
    });
    out
}

#[cfg(test)]
mod tests;
