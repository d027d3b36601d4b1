//! Panels: every level against the scalar reference, bit for bit, and the reference against f64.

use crate::support;
use crate::support::matrix::Matrix;
use crate::support::{Int8Rows, Kind, Operands, Rng, Rows, bits, kinds, lay_out, levels};
use llmcc_abi::encoding::{Code, Encoding, Float, PAIRS_ZERO};
use llmcc_abi::layout::BLOCK;
use llmcc_ukernels::Level;
use proptest::prelude::*;
use std::sync::LazyLock;

/// Unit roundoff of f32.
const U: f64 = 1.0 / (1 << 24) as f64;

#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    m: usize,
    blocks: usize,
    k: usize,
    group: usize,
    /// Codes at the ends of their range.
    extreme: bool,
    /// Bytes between rows (× 4) and blocks (× 64) that are not part of them.
    gap: usize,
    seed: u64,
}

impl Case {
    fn new(kind: Kind, m: usize, blocks: usize, k: usize, group: usize) -> Case {
        let seed = (m + 31 * blocks + 1009 * k + group) as u64;
        Case { kind, m, blocks, k, group, extreme: false, gap: seed as usize % 3, seed }
    }

    /// Whether it is one of the cases to run. `LLMCC_TEST_SHARE=N` runs one in N, where an emulator of another
    /// processor takes as many times as long.
    fn is_chosen(&self) -> bool {
        static SHARE: LazyLock<u64> = LazyLock::new(|| {
            let share = std::env::var("LLMCC_TEST_SHARE").ok();
            share.map_or(1, |n| n.parse::<u64>().expect("LLMCC_TEST_SHARE is a number").max(1))
        });
        let case = self.seed << 16 ^ (self.kind.uk as u64) << 8 ^ self.group as u64;
        Rng(case).bits().is_multiple_of(*SHARE)
    }

    /// Whether the order of summation is that of the matrix unit.
    fn sums_in_tiles(&self, level: Level) -> bool {
        level == Level::Amx && self.kind.rows == Rows::Bf16 && self.k > 0 && self.k.is_multiple_of(32)
    }
}

/// Exact output and the sum of the magnitudes of its terms, as f64; and how many roundings its
/// chain has.
struct Exact {
    value: f64,
    magnitude: f64,
    roundings: usize,
}

/// The operands of a case and a function from `(row of a, row of w)` to the exact output.
fn build(case: Case) -> (Operands, Box<dyn Fn(usize, usize) -> Exact>) {
    let Case { kind, m, blocks, k, group, extreme, gap, seed } = case;
    let mut rng = Rng(seed);
    // The last block is not full: its padding rows must come out as 0.
    let n = (blocks * BLOCK).saturating_sub(seed as usize % 5);
    let w = Matrix::random(kind.weights, n, k, group, extreme, &mut rng);
    let (packed, w_stride) = w.pack(gap * 64);
    let operands = |a: (support::Guarded, usize)| Operands {
        kind,
        m,
        blocks,
        k,
        group,
        w: packed,
        w_stride,
        a: a.0,
        a_stride: a.1,
    };
    if kind.rows == Rows::Int8 {
        // Tables are not multiplied with rows of fixed scales.
        let least = matches!(kind.weights.code, Code::Int { .. } | Code::Pairs);
        let a = Int8Rows::random(m, k, group, (extreme, least), &mut rng);
        let rows: Vec<_> = (0..m).map(|m| a.row_bytes(m)).collect();
        return (operands(lay_out(&rows, gap * 4)), Box::new(move |m, n| exact_int8(&w, &a, m, n)));
    }
    let bf16 = kind.rows == Rows::Bf16;
    let rounded = |x: f32| if bf16 { half::bf16::from_f32(x).to_f32() } else { x };
    let a: Vec<f32> = (0..m * k).map(|_| rounded(rng.signed())).collect();
    // The upper half of an f32 is a bf16.
    let bytes = |x: &f32| x.to_le_bytes()[if bf16 { 2 } else { 0 }..].to_vec();
    let rows: Vec<_> = (0..m).map(|m| a[m * k..][..k].iter().flat_map(bytes).collect()).collect();
    (operands(lay_out(&rows, gap * 4)), Box::new(move |m, n| exact_f32(&w, &a[m * w.k..][..w.k], n)))
}

fn exact_f32(w: &Matrix, a: &[f32], n: usize) -> Exact {
    let mut exact = Exact { value: 0.0, magnitude: 0.0, roundings: w.k + 1 };
    if n < w.n {
        for (k, &a) in a.iter().enumerate() {
            exact.value += w.value(n, k) * a as f64;
            exact.magnitude += (w.value(n, k) * a as f64).abs();
        }
    }
    exact
}

fn exact_int8(w: &Matrix, a: &Int8Rows, m: usize, n: usize) -> Exact {
    let mut exact = Exact { value: 0.0, magnitude: 0.0, roundings: 2 * a.groups() + 1 };
    if n < w.n {
        for g in 0..w.groups() {
            let (scale, min) = w.scale_min(n, g);
            let a_scale = a.scales[m * a.groups() + g * w.group / a.group] as f64;
            let code = |k: usize| f64::from(a.codes[m * a.k + k]);
            let columns = g * w.group..a.k.min((g + 1) * w.group);
            let sum: f64 = columns.clone().map(|k| w.number(n, k) * code(k)).sum();
            let min = if w.weights.has_minimum() { min } else { 0.0 };
            for term in [sum * scale * a_scale, columns.map(code).sum::<f64>() * min * a_scale] {
                exact.value += term;
                exact.magnitude += term.abs();
            }
        }
    }
    exact
}

/// The reference is within the error bound of its chain of roundings (first order, plus one for the
/// second), all levels equal it, and so do single rows and single blocks.
fn check(case: Case) {
    if !case.is_chosen() {
        return;
    }
    let (operands, exact) = build(case);
    let reference = operands.run_all(Level::Scalar);
    assert_eq!(reference.len(), case.m * case.blocks * BLOCK);
    for (i, &got) in reference.iter().enumerate() {
        let exact = exact(i / (case.blocks * BLOCK), i % (case.blocks * BLOCK));
        let bound = (exact.roundings + 1) as f64 * U * exact.magnitude;
        assert!(
            (got as f64 - exact.value).abs() <= bound,
            "{case:?}, output {i}: {got} is not {} ± {bound:e}",
            exact.value
        );
    }
    for level in levels().skip(1) {
        let expected = if case.sums_in_tiles(level) { operands.bf16_in_tiles() } else { reference.clone() };
        assert_eq!(bits(&operands.run_all(level)), bits(&expected), "{case:?} at {level:?}");
    }
}

/// Pieces of a panel are the same bits as the whole.
fn check_pieces(case: Case) {
    if !case.is_chosen() {
        return;
    }
    let (operands, _) = build(case);
    let n = case.blocks * BLOCK;
    for level in levels() {
        let whole = bits(&operands.run_all(level));
        for m in 0..case.m {
            let row = bits(&operands.run(level, m..m + 1, 0..case.blocks));
            assert_eq!(row, whole[m * n..][..n], "{case:?} at {level:?}, row {m}");
        }
        for b in 0..case.blocks {
            let column = bits(&operands.run(level, 0..case.m, b..b + 1));
            let expected: Vec<u32> = (0..case.m).flat_map(|m| &whole[m * n + b * BLOCK..][..BLOCK]).copied().collect();
            assert_eq!(column, expected, "{case:?} at {level:?}, block {b}");
        }
    }
}

#[test]
fn every_tile_size() {
    for kind in kinds() {
        for group in kind.groups() {
            for (m, blocks) in (0..=20).flat_map(|m| (0..=5).map(move |b| (m, b))) {
                check(Case::new(kind, m, blocks, 67, group));
            }
            for m in 21..=40 {
                check(Case::new(kind, m, 1, 33, group));
            }
        }
    }
}

/// Matrix units take over where rows are many and columns whole tiles: all numbers of rows in their
/// tiles, one block and pairs, steps and groups that end early.
#[test]
fn whole_tiles() {
    let in_tiles = |kind: &Kind| match kind.rows {
        Rows::F32 => false,
        Rows::Bf16 => true,
        Rows::Int8 => kind.weights.group() == Some(0),
    };
    for kind in kinds().into_iter().filter(in_tiles) {
        for group in kind.groups() {
            for m in [1, 2, 5, 6, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 70] {
                for (blocks, k) in
                    [(1, 64), (2, 128), (3, 192), (2, 250), (1, 256), (3, 320), (2, 576), (4, 1024), (3, 1184)]
                {
                    check(Case { extreme: k == 256, ..Case::new(kind, m, blocks, k, group) });
                }
            }
        }
    }
}

/// f32 rows that share widened weights: more columns and more rows than pass at once, whole tiles
/// and remainders, blocks that end early.
#[test]
fn many_rows() {
    for kind in kinds().into_iter().filter(|kind| kind.rows == Rows::F32) {
        for group in kind.groups() {
            for (m, blocks, k) in [(9, 5, 129), (24, 2, 300), (25, 3, 256), (128, 1, 130), (129, 3, 136), (260, 2, 143)]
            {
                check(Case::new(kind, m, blocks, k, group));
            }
        }
    }
}

#[test]
fn every_tail() {
    for kind in kinds() {
        for group in kind.groups() {
            for k in 0..=160 {
                check(Case::new(kind, 1 + k % 3, 1 + k % 2, k, group));
            }
        }
    }
}

#[test]
fn long_rows() {
    for kind in kinds() {
        for group in kind.groups() {
            for (k, m, blocks) in [(172, 7, 3), (576, 13, 2), (2048, 2, 2), (2048, 1, 5), (4099, 3, 1)] {
                check(Case::new(kind, m, blocks, k, group));
            }
        }
    }
}

#[test]
fn largest_codes_do_not_saturate() {
    for kind in kinds() {
        for group in kind.groups() {
            for (m, k) in [(1, 256), (4, 128), (7, 160)] {
                check(Case { extreme: true, ..Case::new(kind, m, 2, k, group) });
            }
        }
    }
    // All products of one sign.
    for level in levels() {
        for kind in kinds().into_iter().filter(|kind| kind.rows == Rows::Int8) {
            for (stored, code) in [(0u8, 127i8), (0, -127), (255, 127), (255, -127)] {
                same_sign(level, kind, stored, code);
            }
        }
    }
}

/// 16 rows × 256 columns of one weight code and one activation code: the result is an exactly known
/// integer.
fn same_sign(level: Level, kind: Kind, stored: u8, code: i8) {
    let k = 256;
    let group = kind.groups().last().copied().unwrap_or(k);
    let mut w = Matrix::random(kind.weights, BLOCK, k, group, false, &mut Rng(1));
    let pairs = matches!(kind.weights.code, Code::Pairs);
    let largest = 0xff >> (8 - if pairs { 4 } else { kind.weights.bits() });
    w.codes.fill(stored.min(largest));
    if pairs {
        w.codes.chunks_mut(4).for_each(|four| four[2..].fill(PAIRS_ZERO as u8));
    }
    w.without_scales();
    let a = Int8Rows { k, group, codes: vec![code; k], scales: vec![1.0; k / group] };
    let numbers: f64 = (0..k).map(|k| w.number(0, k)).sum();
    let expected = (numbers * f64::from(code)) as f32;
    for m in [1, 20] {
        let (packed, w_stride) = w.pack(0);
        let (rows, a_stride) = lay_out(&vec![a.row_bytes(0); m], 0);
        let operands = Operands { kind, m, blocks: 1, k, group, w: packed, w_stride, a: rows, a_stride };
        assert_eq!(operands.run_all(level), vec![expected; m * BLOCK], "{kind:?} {level:?} {stored} {code}");
    }
}

/// Sums next to the middle between two f32, where rounding to f64 on the way goes wrong: ordinary
/// and subnormal numbers, all signs; and overflows.
#[test]
fn sums_are_rounded_once() {
    let kind = kinds()[0];
    let mut rng = Rng(7);
    let mut misled = 0;
    for round in 0..4000 {
        // The product of two numbers `1 ± a few ulp` has bits far below.
        let near_one = |rng: &mut Rng| f32::from_bits((1.0f32.to_bits() as i32 + rng.below(9) as i32 - 4) as u32);
        let sign = |rng: &mut Rng| if rng.below(2) == 0 { 1.0f32 } else { -1.0 };
        let (start, half) = match round % 4 {
            // Exponent of the addend, and half of its last place.
            0 | 1 => (127, 127 - 24),
            2 => (0, 127 - 150),
            _ => (254, 127 + 127),
        };
        // The exponent of the product in two factors.
        let a = near_one(&mut rng) * 2f32.powi((half - 127) / 2) * sign(&mut rng);
        let other = 2f32.powi((half - 127) - (half - 127) / 2);
        let mut w = Matrix::random(kind.weights, BLOCK, 2, 0, false, &mut rng);
        for n in 0..BLOCK {
            let mantissa = if rng.below(4) == 0 { 0x7f_ffff } else { rng.below(1 << 23) as u32 };
            w.dense[2 * n] = f32::from_bits(start << 23 | mantissa) * sign(&mut rng);
            w.dense[2 * n + 1] = near_one(&mut rng) * other * sign(&mut rng);
        }
        let expected: Vec<f32> = (0..BLOCK).map(|n| w.dense[2 * n + 1].mul_add(a, w.dense[2 * n])).collect();
        let twice =
            (0..BLOCK).map(|n| (f64::from(w.dense[2 * n + 1]) * f64::from(a) + f64::from(w.dense[2 * n])) as f32);
        misled += twice.zip(&expected).filter(|(t, e)| t != *e).count();
        let row = [1f32, a].iter().flat_map(|x| x.to_le_bytes()).collect();
        let ((packed, w_stride), (rows, a_stride)) = (w.pack(0), lay_out(&[row], 0));
        let operands = Operands { kind, m: 1, blocks: 1, k: 2, group: 0, w: packed, w_stride, a: rows, a_stride };
        for level in levels() {
            assert_eq!(bits(&operands.run_all(level)), bits(&expected), "{level:?} {a:e} {:?}", w.dense);
        }
    }
    assert!(misled > 100, "only {misled} sums would be rounded wrong in two steps");
}

/// 8-bit floats whose scales times 256 are beyond f32, though no product is.
#[test]
fn scales_may_be_next_to_the_largest_number() {
    let kind = kinds().into_iter().find(|kind| kind.weights == Encoding::FP8B).unwrap();
    let mut rng = Rng(3);
    let k = 300;
    let mut w = Matrix::random(kind.weights, 2 * BLOCK, k, 128, false, &mut rng);
    // Exponents of two and less: below 2⁻⁴.
    w.codes.iter_mut().for_each(|code| *code = *code & 0x87 | 8 << rng.below(2));
    // Beside ordinary ones.
    w.multiply_scales(2f32.powi(122));
    let a: Vec<f32> = (0..3 * k).map(|_| rng.signed()).collect();
    let rows: Vec<Vec<u8>> = a.chunks(k).map(|row| row.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let ((packed, w_stride), (a_rows, a_stride)) = (w.pack(0), lay_out(&rows, 0));
    let operands = Operands { kind, m: 3, blocks: 2, k, group: 128, w: packed, w_stride, a: a_rows, a_stride };
    let reference = operands.run_all(Level::Scalar);
    for (i, got) in reference.iter().enumerate() {
        let exact = exact_f32(&w, &a[i / (2 * BLOCK) * k..][..k], i % (2 * BLOCK));
        assert!((f64::from(*got) - exact.value).abs() <= (k + 2) as f64 * U * exact.magnitude, "{got} {}", exact.value);
    }
    assert!(reference.iter().any(|x| x.abs() > 2f32.powi(112)), "{reference:?}");
    for level in levels() {
        assert_eq!(bits(&operands.run_all(level)), bits(&reference), "{level:?}");
    }
}

/// All numbers of e4m3, each as a weight of its own.
#[test]
fn all_codes_of_e4m3_are_exact() {
    let codes: Vec<u8> = (0..=255).filter(|code| code & 0x7f != 0x7f).collect();
    for kind in kinds().into_iter().filter(|kind| kind.weights.code == Code::Float(Float::E4m3)) {
        for m in [1, 2, 4, 9] {
            let (k, group) = (codes.len(), kind.groups()[0]);
            let mut w = Matrix::random(kind.weights, 2 * BLOCK, k, group, false, &mut Rng(5));
            w.codes = codes.repeat(2 * BLOCK);
            // One column at a time.
            for column in 0..k {
                let row: Vec<u8> = (0..k).flat_map(|i| f32::from(u8::from(i == column)).to_le_bytes()).collect();
                let ((packed, w_stride), (a, a_stride)) = (w.pack(0), lay_out(&vec![row; m], 0));
                let operands = Operands { kind, m, blocks: 2, k, group, w: packed, w_stride, a, a_stride };
                let expected: Vec<f32> = (0..2 * BLOCK).map(|n| w.value(n, column) as f32).collect();
                for level in levels() {
                    let got = operands.run_all(level);
                    assert!(got.chunks(2 * BLOCK).all(|row| row == expected), "{kind:?} {level:?} {column}");
                }
            }
        }
    }
}

#[test]
fn pieces_equal_the_whole() {
    for kind in kinds() {
        for group in kind.groups() {
            for (m, blocks, k) in [(7, 5, 67), (13, 3, 96), (20, 2, 131), (2, 5, 200)] {
                check_pieces(Case::new(kind, m, blocks, k, group));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn random_shapes(
        kind in 0..kinds().len(), m in 0usize..=20, blocks in 0usize..=5, k in 0usize..600, group in 0usize..3,
        extreme: bool, gap in 0usize..3, seed: u64,
    ) {
        let kind = kinds()[kind];
        let group = kind.groups()[group % kind.groups().len()];
        check(Case { kind, m, blocks, k, group, extreme, gap, seed });
    }
}
