use super::*;
use crate::eval::fixture::random;
use crate::quant::{Elem, FORMATS, FormatDef};
use proptest::prelude::*;

fn formats() -> Vec<Format> {
    FORMATS.iter().flat_map(FormatDef::formats).flat_map(|f| [f, f.with_packing(Packing::Fragment)]).collect()
}

/// Largest error of a format on a group: half a step, a code clipped at the short end of the
/// symmetric range, and f16 rounding of scale and minimum.
fn bound(format: Format, x: &[f32]) -> f32 {
    let amax = x.iter().fold(0f32, |m, v| m.max(v.abs()));
    let tiny = 2f32.powi(-24) * 256.0;
    // Rounding of f16 scales that are subnormal, multiplied by the largest code of a scale and the
    // largest number; that of minima by the former.
    let subnormal = |most: f32, top: f32| 2f32.powi(-25) * most * top;
    match format.def().name {
        "f32" => 0.0,
        "f16" => amax * 2f32.powi(-11) + tiny,
        "bf16" => amax * 2f32.powi(-8),
        "w8" => amax * (0.5 / 127.0 + 2f32.powi(-10)) + tiny,
        // Half of a step, and weights beside two that are not smaller.
        "w4s" => amax * 1.07 + tiny,
        "w4" => amax * (1.0 / 8.0 + 2f32.powi(-8)) + tiny,
        "w4a" => amax * (2.0 / 15.0 * 0.5 + 2f32.powi(-7)) + tiny,
        // Half of the largest step, 32 of 448.
        "fp8" => amax * (16.0 / 448.0 + 2f32.powi(-11)) + tiny,
        "fp8b" => amax * (16.0 / 448.0 + 2f32.powi(-20)) + tiny,
        // Half of the largest distance of two numbers, 0.3038.
        "nf4" => amax * 0.152,
        // Half a step of all numbers from the least to the largest, a code of the step half a
        // unit too small (15 times), one of the minimum, and f16 scales.
        "q4k" => amax * (1.0 / 15.0 + 1.0 / 63.0 + 0.5 / 63.0 + 2f32.powi(-8)) + subnormal(63.0, 15.0 + 1.0),
        "q5k" => amax * (1.0 / 31.0 + 1.0 / 63.0 + 0.5 / 63.0 + 2f32.powi(-8)) + subnormal(63.0, 31.0 + 1.0),
        "q2k" => amax * (1.0 / 3.0 + 1.0 / 15.0 + 0.5 / 15.0 + 2f32.powi(-8)) + subnormal(15.0, 3.0 + 1.0),
        "w4z" => amax * (2.0 / 15.0 + 2f32.powi(-8)) + tiny,
        "w8z" => amax * (2.0 / 255.0 + 2f32.powi(-8)) + tiny,
        // Half of the largest distance of two numbers, of a third.
        "fp4" => amax * 0.17,
        // Half of the distance of 4 and 6, the largest number being more than 3.
        "mxfp4" => amax * 0.34,
        "w5" => amax * (1.0 / 16.0 + 2f32.powi(-8)) + tiny,
        "w5a" => amax * (2.0 / 31.0 * 0.5 + 2f32.powi(-7)) + tiny,
        // A step at the short end, and codes of scales half a unit off.
        "q3k" => amax * (1.0 / 4.0 + 0.5 / 31.0 + 2f32.powi(-8)) + subnormal(31.0, 4.0),
        "q6k" => amax * (1.0 / 32.0 + 0.5 / 127.0 + 2f32.powi(-8)) + subnormal(127.0, 32.0),
        "q8k" => amax * (0.5 / 127.0 + 2f32.powi(-20)) + tiny,
        // 127 where there are 113.
        "iq4nl" => amax * (14.0 / 127.0 + 2f32.powi(-8)) + tiny,
        "iq4xs" => amax * (14.0 / 127.0 + 0.5 / 31.0 + 2f32.powi(-8)) + subnormal(31.0, 127.0),
        // Half of the largest distance of two numbers, and codes of scales half a unit off.
        "iq2" => amax * (1.125 / 5.375 + 0.5 / 31.0 + 2f32.powi(-8)) + subnormal(31.0, 5.375),
        "iq3" => amax * (1.25 / 15.5 + 0.5 / 31.0 + 2f32.powi(-8)) + subnormal(31.0, 15.5),
        "iq3s" => amax * (1.0 / 15.0 + 0.5 / 31.0 + 2f32.powi(-8)) + subnormal(31.0, 15.0),
        "ternary" => amax * (0.5 + 2f32.powi(-8)) + tiny,
        // Half of the distance of 4 and 6, and scales with 4 bits.
        "nvfp4" => amax * (1.0 / 6.0 + 1.0 / 16.0 + 0.05) + tiny,
        "ternaryr" => amax * 0.5 + tiny,
        "w2z" => amax * (2.0 / 3.0 + 2f32.powi(-8)) + tiny,
        "w3z" => amax * (2.0 / 7.0 + 2f32.powi(-8)) + tiny,
        // A number out of reach loses less than its magnitude, one between two integers less than their distance.
        "c4" | "c3" => amax + subnormal(32.0, 127.0),
        // Levels are out of reach of nothing by more than the largest.
        "t2" | "t3" => amax * 3.8 + tiny,
        name => panic!("the bound of {name} belongs here"),
    }
}

/// Packs rows of `k` columns in all formats and reads them back.
fn reads_back(rows: &[f32], k: usize) {
    for f in formats() {
        let mut block = vec![0xAA; f.block_bytes(k)];
        pack_block(f, rows, k, &mut block).unwrap();
        let mut back = vec![0f32; k];
        for (r, row) in rows.chunks(k).enumerate() {
            unpack_row(f, &block, k, r, &mut back);
            let e = f.encoding();
            let group = e.super_group().or(e.group()).unwrap_or(k);
            for (x, y) in row.chunks(group).zip(back.chunks(group)) {
                for (a, b) in x.iter().zip(y) {
                    assert!((a - b).abs() <= bound(f, x), "{f}: {a} came back as {b}");
                }
            }
        }
    }
}

/// A row may be so small that its scales of scales are subnormal f16, or none at all.
#[test]
fn small_rows_read_back() {
    for magnitude in (0..24).map(|i| 0.5f32.powi(i)) {
        for x in random(magnitude.to_bits().into(), 100) {
            reads_back(&[x * magnitude, magnitude], 1);
        }
    }
}

proptest! {
    #[test]
    fn packed_rows_read_back_within_half_a_step(seed in 0u64..1000, n in 1usize..17, k in 1usize..300) {
        reads_back(&random(seed, n * k), k);
    }
}

#[test]
fn not_a_number_and_overflow_are_located() {
    let mut rows = vec![0.5f32; 3 * 40];
    rows[47] = f32::NAN;
    for f in formats() {
        let mut block = vec![0; f.block_bytes(40)];
        assert_eq!(pack_block(f, &rows, 40, &mut block), Err(PackError::NotFinite { row: 1, col: 7 }), "{f}");
    }
    rows[47] = 1e30;
    let w4 = Format::new(Elem::W4, 32);
    let mut block = vec![0; w4.block_bytes(40)];
    assert_eq!(pack_block(w4, &rows, 40, &mut block), Err(PackError::TooLarge { row: 1, col: 0 }));
}

/// Codes and scales of a block stay the same bits when they are packed in the other order. Only the path of a
/// trellis is not in its fragments.
#[test]
fn codes_move_from_one_order_to_the_other() {
    for panel in FORMATS.iter().flat_map(FormatDef::formats).filter(|f| f.is_quantized()) {
        let fragment = panel.with_packing(Packing::Fragment);
        let trellis = matches!(panel.encoding().code, Code::Trellis(_));
        assert_eq!((panel.keeps_codes(), fragment.keeps_codes()), (true, !trellis), "{panel}");
        for (n, k) in [(16, 64), (5, 300), (1, 33)] {
            let rows = random(k as u64, n * k);
            let packed = |f: Format| {
                let mut block = vec![0xAA; f.block_bytes(k)];
                pack_block(f, &rows, k, &mut block).expect("finite");
                block
            };
            for (from, to) in [(panel, fragment), (fragment, panel), (panel, panel)] {
                let block = packed(from);
                let codes: Option<Vec<CodedRow>> = (0..n).map(|r| unpack_codes(from, &block, k, r)).collect();
                let Some(codes) = codes else {
                    assert!(trellis, "{from}");
                    continue;
                };
                let mut again = vec![0xAA; to.block_bytes(k)];
                pack_codes(to, &codes, k, &mut again).expect("finite");
                let at = again.iter().zip(&packed(to)).position(|(a, b)| a != b);
                assert_eq!(at, None, "{from} as {to}, {n}×{k}");
            }
        }
    }
    assert_eq!(unpack_codes(Format::BF16, &[0; 64], 1, 0), None);
}

#[test]
fn names_round_trip() {
    for f in formats() {
        assert_eq!(Format::parse(&f.to_string()), Some(f));
    }
    assert_eq!(Format::parse("w4g33"), None);
    assert_eq!(Format::parse("w4"), None);
    assert_eq!(Format::parse("fp8"), Some(Format::FP8));
    assert_eq!(Format::parse("fp8g32"), None);
    assert_eq!(Format::parse("fp8g0"), None);
    assert_eq!(Format::parse("bf16g32"), None);
    assert_eq!(Format::parse("w4.fragg32"), None);
    assert_eq!(Format::parse("w4g32.frag").map(|f| f.packing), Some(Packing::Fragment));
}
