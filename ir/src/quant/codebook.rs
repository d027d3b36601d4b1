//! Formats of our own: codebooks of 16 and 8 integers, with scales of 6 bits for 32 columns times an f16 for 256.
//!
//! The integers are levels of least squared error of normally distributed groups. Codes and scales are found by
//! least squares, too: for each group the best code of its scale and the nearest integers, for each super-group the
//! best of several scales above.

use super::{Encoding, FormatDef, Quantize, round_f16};
use llmcc_abi::encoding::{CODEBOOK_3, CODEBOOK_4};

/// Columns of a group.
const GROUP: usize = 32;
/// Groups of a super-group.
const GROUPS: usize = 8;
/// Codes of scales.
const SCALES: std::ops::RangeInclusive<f32> = -32.0..=31.0;

/// 4 bits.
pub(super) const C4: FormatDef = FormatDef {
    name: "c4",
    encoding: Encoding::C4,
    groups: &[GROUP],
    quantize: Quantize::Super(|x, codes, factors| quantize(&OF_4, x, codes, factors)),
};

/// 3 bits.
pub(super) const C3: FormatDef = FormatDef {
    name: "c3",
    encoding: Encoding::C3,
    groups: &[GROUP],
    quantize: Quantize::Super(|x, codes, factors| quantize(&OF_3, x, codes, factors)),
};

static OF_4: Codebook = Codebook::new(&CODEBOOK_4);
static OF_3: Codebook = Codebook::new(&CODEBOOK_3);

/// Halves of a unit that are told apart: from −128 to 128.
const HALVES: usize = 512;

/// A codebook, and the code whose integer is nearest to any number: by half units, since the middle of two integers
/// is a multiple of a half.
struct Codebook {
    codes: [u8; HALVES],
    integers: [f32; HALVES],
}

impl Codebook {
    /// The codebook of ascending integers from −127 to 127, given as bits of f32.
    const fn new(table: &[u32]) -> Codebook {
        let (mut codes, mut integers) = ([0; HALVES], [0.0; HALVES]);
        let (mut at, mut code) = (0, 0);
        while at < HALVES {
            // The middle of a half unit.
            let x = (at as f32 - 256.0) / 2.0 + 0.25;
            while code + 1 < table.len() && f32::from_bits(table[code]) + f32::from_bits(table[code + 1]) < 2.0 * x {
                code += 1;
            }
            codes[at] = code as u8;
            integers[at] = f32::from_bits(table[code]);
            at += 1;
        }
        Codebook { codes, integers }
    }

    /// Where the tables have the code of a number, given as a multiple of a half unit.
    fn place(twice: f32) -> usize {
        ((twice + 256.0) as usize).min(HALVES - 1)
    }

    /// `Σ x·i` and `Σ i²` of the integers `i` that are nearest to `x/scale`.
    fn products(&self, x: &[f32], scale: f32) -> (f32, f32) {
        let twice = 2.0 / scale;
        x.iter().fold((0.0, 0.0), |(product, square), x| {
            let i = self.integers[Codebook::place(x * twice)];
            (product + x * i, square + i * i)
        })
    }

    /// The squared error of a group whose squares add up to `squares`.
    fn error(&self, x: &[f32], squares: f32, scale: f32) -> f32 {
        if scale == 0.0 {
            return squares;
        }
        let (product, square) = self.products(x, scale);
        squares - scale * (2.0 * product - scale * square)
    }

    /// The scale of a group: the best of both signs and several sizes, each improved by turns of nearest integers and
    /// the scale of least squared error for them (Lloyd's iteration).
    fn scale(&self, x: &[f32]) -> f32 {
        const SIZES: usize = 8;
        let largest = x.iter().fold(0f32, |m, v| m.max(v.abs()));
        let mut best = (0.0, 0.0);
        let mut better = |product: f32, square: f32| {
            // By so much the error is less than the sum of squares.
            let gain = product * product / square;
            if gain > best.1 {
                best = (product / square, gain);
            }
            product / square
        };
        for i in 0..2 * SIZES {
            let size = (0.6 + 0.07 * (i / 2) as f32) * largest / 127.0;
            let mut scale = if i % 2 == 0 { size } else { -size };
            for _ in 0..2 {
                let (product, square) = self.products(x, scale);
                scale = better(product, square);
                if scale == 0.0 || !scale.is_finite() {
                    break;
                }
            }
        }
        best.0
    }
}

/// Scales of a super-group: that above, and the codes of those below.
#[derive(Clone, Copy)]
struct Scales {
    above: f32,
    codes: [f32; GROUPS],
    error: f32,
}

/// Scales of zeros.
const NONE: Scales = Scales { above: 0.0, codes: [0.0; GROUPS], error: 0.0 };

/// A super-group, divided by its largest magnitude, so that squares are numbers.
struct Super<'a> {
    of: &'a Codebook,
    x: &'a [f32],
    squares: [f32; GROUPS],
    /// By what it was divided.
    unit: f32,
}

impl Super<'_> {
    /// The codes of scales next to `wanted` with the least error, where the scale above is `above` as it is stored.
    fn near(&self, above: f32, wanted: &[f32; GROUPS]) -> Scales {
        let mut out = Scales { above, codes: [0.0; GROUPS], error: 0.0 };
        let stored = above / self.unit;
        if !stored.is_finite() {
            return Scales { error: f32::INFINITY, ..out };
        }
        for (g, x) in self.x.chunks(GROUP).enumerate() {
            let mut best = (0.0, self.squares[g]);
            let first = if stored == 0.0 { 0.0 } else { (wanted[g] / stored).round_ties_even() };
            for step in [0.0, -1.0, 1.0] {
                let code = (first + step).clamp(*SCALES.start(), *SCALES.end());
                let error = self.of.error(x, self.squares[g], stored * code);
                if error < best.1 {
                    best = (code, error);
                }
            }
            out.codes[g] = best.0;
            out.error += best.1;
        }
        out
    }

    /// The scale above of least squared error for the codes of `s`, as it is stored.
    fn refit(&self, s: &Scales) -> f32 {
        let stored = s.above / self.unit;
        let (mut product, mut square) = (0.0, 0.0);
        for (x, code) in self.x.chunks(GROUP).zip(s.codes).filter(|(_, code)| *code != 0.0) {
            let (p, q) = self.of.products(x, stored * code);
            (product, square) = (product + p * code, square + q * code * code);
        }
        if square > 0.0 { round_f16(product / square * self.unit) } else { s.above }
    }

    /// The best scales.
    fn best(&self) -> Scales {
        // Which code the largest scale gets.
        const TOPS: [f32; 5] = [31.6, 30.8, 30.0, 29.2, 28.4];
        let mut wanted = [0.0; GROUPS];
        self.x.chunks(GROUP).zip(&mut wanted).for_each(|(x, scale)| *scale = self.of.scale(x));
        let extreme = wanted.iter().fold(0f32, |m, v| if v.abs() > m.abs() { *v } else { m });
        let candidates = TOPS.into_iter().flat_map(|top| {
            let first = self.near(round_f16(extreme / -top * self.unit), &wanted);
            let below = first.codes.map(|code| first.above / self.unit * code);
            [first, self.near(self.refit(&first), &below)]
        });
        candidates.reduce(|best, s| if s.error < best.error { s } else { best }).unwrap_or(NONE)
    }
}

/// A super-group; see [`super::QuantizeSuper`].
fn quantize(of: &Codebook, x: &[f32], codes: &mut [u8], factors: &mut [(u8, u8)]) -> (f32, f32) {
    factors.fill((0, 0));
    codes.fill(0);
    let unit = x.iter().fold(0f32, |m, v| m.max(v.abs()));
    if unit == 0.0 {
        return (0.0, 0.0);
    }
    let divided: Vec<f32> = x.iter().map(|v| v / unit).collect();
    let mut squares = [0.0; GROUPS];
    divided.chunks(GROUP).zip(&mut squares).for_each(|(x, s)| *s = x.iter().map(|v| v * v).sum());
    let found = Super { of, x: &divided, squares, unit }.best();
    for ((x, codes), (code, factor)) in
        divided.chunks(GROUP).zip(codes.chunks_mut(GROUP)).zip(found.codes.iter().zip(factors))
    {
        *factor = (*code as i8 as u8, 0);
        let scale = found.above / unit * code;
        if scale != 0.0 {
            let twice = 2.0 / scale;
            codes.iter_mut().zip(x).for_each(|(c, x)| *c = of.codes[Codebook::place(x * twice)]);
        }
    }
    (found.above, 0.0)
}

#[cfg(test)]
mod tests {
    use super::super::{Format, FormatDef, pack_block, unpack_row};
    use super::*;
    use crate::eval::fixture::random;

    /// Normally distributed numbers, by the polar form of Box and Muller.
    fn normal(seed: u64, count: usize) -> Vec<f32> {
        let uniform = random(seed, 2 * count);
        let pair = |p: &[f32]| {
            let (u, v) = (f64::from(p[0]).abs().max(1e-9), f64::from(p[1]));
            ((-2.0 * u.ln()).sqrt() * (std::f64::consts::PI * v).cos()) as f32
        };
        uniform.chunks(2).map(pair).collect()
    }

    fn formats() -> impl Iterator<Item = Format> {
        [&C4, &C3].into_iter().flat_map(|def: &'static FormatDef| def.formats())
    }

    /// Root mean square error of packed rows, relative to that of the numbers.
    fn error(format: Format, rows: &[f32], k: usize) -> f64 {
        let (mut error, mut square) = (0.0, 0.0);
        for some in rows.chunks(16 * k) {
            let mut block = vec![0; format.block_bytes(k)];
            pack_block(format, some, k, &mut block).unwrap();
            let mut back = vec![0f32; k];
            for (r, row) in some.chunks(k).enumerate() {
                unpack_row(format, &block, k, r, &mut back);
                for (x, y) in row.iter().zip(&back) {
                    error += f64::from(x - y).powi(2);
                    square += f64::from(*x).powi(2);
                }
            }
        }
        (error / square).sqrt()
    }

    #[test]
    fn errors_of_normal_weights() {
        let rows = normal(11, 64 * 4096);
        for (format, most) in formats().zip([0.0735, 0.152]) {
            for scale in [1.0, 0.02] {
                let x: Vec<f32> = rows.iter().map(|x| x * scale).collect();
                let error = error(format, &x, 4096);
                println!("{format}: {error:.5}");
                assert!(error <= most, "{format}: {error}");
            }
        }
    }

    /// Codes are the nearest to what is stored, and no other code of a group's scale is better.
    #[test]
    fn codes_fit_the_stored_scales() {
        for (book, table) in [(&OF_4, &CODEBOOK_4[..]), (&OF_3, &CODEBOOK_3[..])] {
            for (seed, k) in [(1, 256), (2, 200), (3, 32), (4, 7)] {
                let x = normal(seed, k);
                let (mut codes, mut factors) = (vec![0; k], vec![(0, 0); GROUPS]);
                let (above, _) = quantize(book, &x, &mut codes, &mut factors);
                assert_eq!(above, round_f16(above));
                for ((x, codes), (factor, _)) in x.chunks(GROUP).zip(codes.chunks(GROUP)).zip(&factors) {
                    let factor = *factor as i8;
                    assert!((-32..32).contains(&factor));
                    let scale = above * f32::from(factor);
                    let distance = |x: f32, code: usize| (f32::from_bits(table[code]) * scale - x).abs();
                    for (x, code) in x.iter().zip(codes) {
                        let least = (0..table.len()).map(|i| distance(*x, i)).fold(f32::INFINITY, f32::min);
                        assert!(distance(*x, (*code).into()) <= least * 1.001 + 1e-6, "{x} got {code}");
                    }
                }
            }
        }
    }

    /// Least squares is better than scales of the largest magnitude, even though they are stored in 6 bits.
    #[test]
    fn errors_are_below_those_of_largest_magnitudes() {
        for (format, book) in formats().zip([&OF_4, &OF_3]) {
            for (seed, power) in [(21, 1), (22, 3)] {
                let rows: Vec<f32> = normal(seed, 16 * 1024).iter().map(|x| x.powi(power)).collect();
                let plain: f32 = rows.chunks(GROUP).map(|x| by_largest(book, x)).sum();
                let plain = f64::from(plain / rows.iter().map(|x| x * x).sum::<f32>()).sqrt();
                let ours = error(format, &rows, 1024);
                assert!(ours < plain, "{format}, power {power}: {ours}, {plain}");
            }
        }
    }

    /// The squared error where the number of largest magnitude becomes that of the codebook.
    fn by_largest(book: &Codebook, x: &[f32]) -> f32 {
        let extreme = x.iter().fold(0f32, |m, v| if v.abs() > m.abs() { *v } else { m });
        let sign = if book.integers[0] == -127.0 { -1.0 } else { 1.0 };
        book.error(x, x.iter().map(|v| v * v).sum(), sign * extreme / 127.0)
    }

    #[test]
    fn magnitudes_at_both_ends() {
        for format in formats() {
            let mut block = vec![0; format.block_bytes(64)];
            for (x, fits) in [(0.0, true), (1e-45, true), (-1e-40, true), (1e5, true), (1e12, false), (3e38, false)] {
                let mut row = [0.0; 64];
                row[5] = x;
                assert_eq!(pack_block(format, &row, 64, &mut block).is_ok(), fits, "{format}: {x}");
                let mut back = [1f32; 64];
                unpack_row(format, &block, 64, 0, &mut back);
                // No code is 0: the others of the group are the smallest integers, times a scale that is less for it.
                assert!(
                    !fits || (back[5] - x).abs() <= 0.15 * x.abs().max(1.0),
                    "{format}: {x} came back as {}",
                    back[5]
                );
            }
        }
    }
}
