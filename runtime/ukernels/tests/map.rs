//! Elementwise functions: every level gives the bits of the scalar reference.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "entries of a table of this machine, and memory that the test owns"
)]

use crate::support::{Guarded, Rng, levels};
use llmcc_abi::math::{Binary, Unary};
use llmcc_abi::{MapFn, Uk};
use llmcc_ukernels::{Level, table};

fn map_of(level: Level) -> MapFn {
    unsafe { std::mem::transmute::<usize, MapFn>(table(level).f[Uk::Map as usize]) }
}

fn guarded(x: &[f32]) -> Guarded {
    Guarded::from_bytes(&x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
}

/// Bits of the results; all NaN are the same.
fn bits(out: &Guarded) -> Vec<u32> {
    let word = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    out.as_bytes().chunks(4).map(word).map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect()
}

/// Where results go.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Out {
    Apart,
    First,
    Second,
}

/// Operands and results end at inaccessible memory.
fn map(level: Level, unary: Unary, binary: Binary, a: &[f32], b: &[f32], to: Out) -> Vec<u32> {
    let n = a.len() as u64;
    let mut memory = [guarded(a), guarded(b), guarded(&vec![f32::NAN; a.len()])];
    let [a, b, apart] = memory.each_mut().map(|m| m.as_mut_ptr().cast::<f32>());
    let (out, number) = match to {
        Out::Apart => (apart, 2),
        Out::First => (a, 0),
        Out::Second => (b, 1),
    };
    // Missing operands are not read.
    let b = if binary == Binary::First { std::ptr::null() } else { b.cast_const() };
    unsafe { map_of(level)(unary, binary, n, a, b, out) };
    bits(&memory[number])
}

/// Both signs, all exponents, the edges of every range of the functions, and NaN.
fn arguments(rng: &mut Rng, n: usize) -> Vec<f32> {
    let edges = [
        0.0,
        0.625,
        14.5,
        13.0,
        87.0,
        87.5,
        88.8,
        89.0,
        89.5,
        103.9,
        104.0,
        104.5,
        1e-45,
        1e-39,
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
    ];
    let number = |rng: &mut Rng| match rng.below(8) {
        0 => edges[rng.below(edges.len())] * if rng.below(2) == 0 { 1.0 } else { -1.0 },
        1 => f32::from_bits(rng.bits() as u32),
        2 => rng.signed() * 110.0,
        _ => rng.signed() * 10.0,
    };
    (0..n).map(|_| number(rng)).collect()
}

#[test]
fn levels_agree() {
    let mut rng = Rng(3);
    for unary in Unary::ALL {
        for binary in Binary::ALL {
            for n in [0, 1, 7, 8, 15, 16, 17, 33, 255, 256, 257, 600] {
                let (a, b) = (arguments(&mut rng, n), arguments(&mut rng, n));
                let want = map(Level::Scalar, unary, binary, &a, &b, Out::Apart);
                for level in levels() {
                    for to in [Out::Apart, Out::First, Out::Second] {
                        if to == Out::Second && binary == Binary::First {
                            continue;
                        }
                        let got = map(level, unary, binary, &a, &b, to);
                        if let Some(i) = (0..n).find(|&i| got[i] != want[i]) {
                            let (x, y) = (f32::from_bits(got[i]), f32::from_bits(want[i]));
                            panic!(
                                "{level:?} {unary:?} {binary:?} {to:?}, {n} numbers: of {:e} and {:e} {x:e} instead of {y:e}",
                                a[i], b[i]
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Every 9973rd of all numbers.
#[test]
fn functions_agree_everywhere() {
    for unary in Unary::ALL {
        let bits: Vec<u32> = (0..=u32::MAX).step_by(9973).collect();
        let x: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        let want = map(Level::Scalar, unary, Binary::First, &x, &x, Out::Apart);
        for level in levels() {
            assert!(map(level, unary, Binary::First, &x, &x, Out::Apart) == want, "{level:?} {unary:?}");
        }
    }
}
