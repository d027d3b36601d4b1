//! Rounding of rows to int8 and bf16, and RoPE tables.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "entries of a table of this machine, and memory that the test owns"
)]

use crate::support::{Guarded, Rng, levels, quant_rows};
use llmcc_abi::layout::{groups, padded_k, q8_row, q8_sum_bytes};
use llmcc_abi::{HalfKind, RopeTableFn, RoundHalvesFn, Uk};
use llmcc_ukernels::{Level, table};

/// Quantizes `x` at `level`; input and output end at inaccessible memory.
fn quantize(level: Level, x: &[f32], group: usize) -> Vec<u8> {
    let input: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let input = Guarded::from_bytes(&input);
    let (codes, groups) = (padded_k(x.len()), groups(x.len(), group));
    let mut out =
        [codes, groups * 4, groups * q8_sum_bytes(group)].map(|bytes| Guarded::from_bytes(&vec![0xaa; bytes]));
    let [c, f, s] = &mut out;
    unsafe {
        quant_rows(level)(
            input.as_ptr().cast(),
            x.len() as u64,
            group as u64,
            c.as_mut_ptr().cast(),
            f.as_mut_ptr().cast(),
            s.as_mut_ptr().cast(),
        )
    };
    let mut row = out.map(|part| part.as_bytes().to_vec()).concat();
    row.resize(q8_row(x.len(), group).bytes, 0);
    row
}

/// Every level gives the bytes that the definition in `layout` gives.
fn check(x: &[f32], group: usize) {
    let expected = define(x, group);
    for level in levels() {
        assert_eq!(quantize(level, x, group), expected, "{level:?}, k={}, group={group}", x.len());
    }
}

/// The definition, for finite rows whose groups are zero or of ordinary size.
fn define(x: &[f32], group: usize) -> Vec<u8> {
    let (mut codes, mut scales, mut sums) = (vec![], vec![], vec![]);
    // Groups of 256 have the excesses of their parts.
    let wide = group == 256;
    for group in x.chunks(group) {
        let amax = group.iter().fold(0.0f32, |a, x| a.max(x.abs()));
        let code = |x: &f32| if amax == 0.0 { 0 } else { (x * (127.0 / amax)).round_ties_even() as i8 };
        let group: Vec<i8> = group.iter().map(code).collect();
        sums.extend(group.iter().map(|&c| c as i32).sum::<i32>().to_le_bytes());
        if wide {
            let part = |i: usize| group.iter().skip(i * 32).take(32).map(|&c| c as i32).sum::<i32>();
            sums.extend((0..8).flat_map(|i| (part(i) * -128).to_le_bytes()));
        }
        scales.extend((amax / 127.0).to_le_bytes());
        codes.extend(group.iter().map(|&c| c as u8));
    }
    codes.resize(codes.len().next_multiple_of(32), 0);
    // The padding has a group of its own where groups are small.
    let groups = codes.len().div_ceil(group) * 4;
    scales.resize(groups, 0);
    sums.resize(groups * if wide { 9 } else { 1 }, 0);
    let mut row = [codes, scales, sums].concat();
    row.resize((row.len().div_ceil(64) | 1) * 64, 0);
    row
}

#[test]
fn quantized_rows_follow_the_definition() {
    let mut rng = Rng(7);
    for group in [16, 32, 64, 128, 256] {
        for k in (0..200).chain([576, 2048, 4099]) {
            let x: Vec<f32> = (0..k).map(|_| rng.signed() * (1 << rng.below(12)) as f32).collect();
            check(&x, group);
        }
    }
}

#[test]
fn ties_go_to_even() {
    // amax 127 makes the inverse scale 1.
    let mut x = vec![0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 127.0, 126.5, -126.5, -127.0];
    x.resize(45, 3.5);
    check(&x, 32);
    let expected = [0i8, 2, 2, 0, -2, -2, 127, 126, -126, -127, 4];
    for level in levels() {
        let codes: Vec<i8> = quantize(level, &x, 32)[..11].iter().map(|&b| b as i8).collect();
        assert_eq!(codes, expected, "{level:?}");
    }
}

#[test]
fn zero_and_huge_groups() {
    check(&[0.0; 40], 32);
    check(&[-0.0; 33], 32);
    check(&[f32::MAX, -f32::MAX, 1.0, f32::MAX / 2.0], 32);
    check(&[1e-30, -1e-31, 3e-32], 32);
}

#[test]
fn tiny_groups_become_zero() {
    // 127 / amax would overflow.
    for amax in [f32::from_bits(1), 1e-40, 3e-37] {
        for level in levels() {
            let row = quantize(level, &[amax, -amax, 0.0], 32);
            assert_eq!(row[..32], [0; 32], "{level:?}");
            assert_eq!(row[32..36], (amax / 127.0).to_le_bytes(), "{level:?}");
            assert_eq!(row[36..40], [0; 4], "{level:?}");
        }
    }
}

#[test]
fn infinity_and_nan_reach_the_scale() {
    for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
        for position in [0, 5, 16, 39, 40] {
            let mut x = [1.0f32; 41];
            x[position] = bad;
            x[(position + 1) % 41] = f32::INFINITY;
            let reference = quantize(Level::Scalar, &x, 64);
            let scale = f32::from_le_bytes([reference[64], reference[65], reference[66], reference[67]]);
            assert!(if bad.is_nan() { scale.is_nan() } else { scale == f32::INFINITY });
            assert_eq!(reference[..64], [0; 64]);
            for level in levels() {
                let row = quantize(level, &x, 64);
                assert_eq!(row[..64], reference[..64], "{level:?}");
                let s = f32::from_le_bytes([row[64], row[65], row[66], row[67]]);
                assert!(s == scale || s.is_nan() && scale.is_nan(), "{level:?}");
            }
        }
    }
}

/// The expected halves of `x`.
fn halves(x: &[f32], to: HalfKind, [first, run, jump]: [usize; 3]) -> Vec<u16> {
    let at = |i: usize| (first + i) / run * jump + (first + i) % run;
    let mut out = vec![0xaaaa; x.len().checked_sub(1).map_or(0, |last| at(last) + 1)];
    for (i, x) in x.iter().enumerate() {
        out[at(i)] = match to {
            HalfKind::Bf16 => half::bf16::from_f32(*x).to_bits(),
            HalfKind::F16 if x.is_nan() => 0x7e00 | ((x.to_bits() >> 16) as u16 & 0x8000),
            HalfKind::F16 => half::f16::from_f32(*x).to_bits(),
        };
    }
    out
}

#[test]
fn halves_are_rounded_to_nearest_even_and_go_where_they_belong() {
    let mut rng = Rng(9);
    // Around the middle between two numbers, and anything.
    let number = |rng: &mut Rng| match rng.below(4) {
        0 => (rng.bits() as u32 & 0xffff_0000) | (0x7fff + rng.below(3) as u32),
        // f16 values, and half a place beside them, subnormal numbers among them.
        1 => {
            let exact = half::f16::from_bits(rng.bits() as u16).to_f32().to_bits();
            exact.wrapping_add(0x0fff + rng.below(3) as u32)
        }
        _ => rng.bits() as u32,
    };
    for n in (0..70).chain([4099]) {
        let x: Vec<f32> = (0..n).map(|_| f32::from_bits(number(&mut rng))).collect();
        let input = Guarded::from_bytes(&x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        for (to, runs) in [HalfKind::Bf16, HalfKind::F16].into_iter().flat_map(|to| {
            [[0, usize::MAX >> 1, 0], [0, 1, 16], [0, 24, 70], [5, 7, 9], [40, 13, 13 * 16]].map(|runs| (to, runs))
        }) {
            let want: Vec<u8> = halves(&x, to, runs).iter().flat_map(|x| x.to_le_bytes()).collect();
            for level in levels() {
                let function = table(level).f[Uk::RoundHalves as usize];
                let round = unsafe { std::mem::transmute::<usize, RoundHalvesFn>(function) };
                let mut out = Guarded::from_bytes(&vec![0xaa; want.len()]);
                let [first, run, jump] = runs.map(|x| x as u64);
                unsafe { round(input.as_ptr().cast(), n as u64, to, out.as_mut_ptr().cast(), first, run, jump) };
                assert_eq!(out.as_bytes(), want, "{level:?}, {to:?}, {runs:?}, {n} numbers");
            }
        }
    }
}

#[test]
fn rope_table_is_correctly_rounded() {
    let half = 48;
    let inv_freq: Vec<f32> = (0..half).map(|j| 10000f64.powf(-(j as f64) / half as f64) as f32).collect();
    let positions = [0i32, 1, 2, 17, 511, 4095, 131_071, 16_777_215];
    for level in levels() {
        let f = unsafe { std::mem::transmute::<usize, RopeTableFn>(table(level).f[Uk::RopeTable as usize]) };
        for scale in [1.0f32, 1.1902381] {
            let mut out = vec![f32::NAN; positions.len() * 2 * half + 1];
            unsafe {
                f(
                    positions.as_ptr(),
                    positions.len() as u64,
                    inv_freq.as_ptr(),
                    half as u64,
                    1,
                    scale,
                    out.as_mut_ptr(),
                )
            };
            assert!(out[positions.len() * 2 * half].is_nan());
            for (i, &pos) in positions.iter().enumerate() {
                for (j, &freq) in inv_freq.iter().enumerate() {
                    let angle = (pos as f32 * freq) as f64;
                    let row = &out[i * 2 * half..];
                    for (got, exact) in [(row[j], angle.cos()), (row[half + j], angle.sin())] {
                        let exact = exact * scale as f64;
                        // HalfKind an ulp, and the last bits of two f64 sine implementations.
                        let bound = (0.5 + 1e-6) * (exact.abs() as f32).max(f32::MIN_POSITIVE).next_up() as f64
                            / (1 << 23) as f64;
                        assert!((got as f64 - exact).abs() <= bound, "pos {pos}, j {j}: {got} is not {exact}");
                    }
                }
            }
        }
    }
}

/// Where each pair turns along one axis, an angle follows from one position alone.
#[test]
fn rope_tables_turn_along_axes() {
    let (half, scale) = (6, 1.25f32);
    let inv_freq: Vec<f32> = (0..half).map(|j| 0.3f32.powi(j as i32)).collect();
    let spread: Vec<f32> = (0..3)
        .flat_map(|axis| (0..half).map(move |j| (axis, j)))
        .map(|(axis, j)| if j % 3 == axis { inv_freq[j] } else { 0.0 })
        .collect();
    let positions = [[0i32, 0, 0], [7, 7, 7], [3, 900, 16_777_215]];
    for level in levels() {
        let f = unsafe { std::mem::transmute::<usize, RopeTableFn>(table(level).f[Uk::RopeTable as usize]) };
        let run = |positions: &[i32], axes: usize, inv_freq: &[f32]| {
            let n = positions.len() / axes;
            let mut out = vec![f32::NAN; n * 2 * half];
            let (at, n, pairs) = (positions.as_ptr(), n as u64, half as u64);
            unsafe { f(at, n, inv_freq.as_ptr(), pairs, axes as u64, scale, out.as_mut_ptr()) };
            out
        };
        let got = run(positions.as_flattened(), 3, &spread);
        for (i, at) in positions.iter().enumerate() {
            let alone: Vec<Vec<f32>> = at.iter().map(|p| run(&[*p], 1, &inv_freq)).collect();
            for (j, value) in got[i * 2 * half..][..2 * half].iter().enumerate() {
                assert_eq!(value.to_bits(), alone[j % half % 3][j].to_bits(), "token {i}, column {j}");
            }
        }
    }
}
