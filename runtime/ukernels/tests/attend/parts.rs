//! Calls for parts of a context and for several heads.

use super::*;

#[test]
fn a_context_divided_is_the_same() {
    let mut rng = Rng(17);
    let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for dtype in DTYPES {
        // The last one: two groups of many rows.
        for (heads, position, window) in
            [(3, 100, 0), (3, 255, 0), (3, 700, 0), (3, 2111, 0), (3, 2111, 900), (3, 5000, 0), (70, 1000, 0)]
        {
            let mut case = Case::random(dtype, 16, heads, window, vec![position], &mut rng);
            if heads == 70 || window > 0 {
                case.sinks = (0..3 * heads).map(|_| rng.signed()).collect();
            }
            for level in levels() {
                let whole = case.run(level, 0..1);
                for cuts in [&[8][..], &[1, 2, 3], &[5, 11], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]] {
                    let bounds: Vec<usize> = [0].iter().chain(cuts).chain(&[ATTEND_PARTS]).copied().collect();
                    let mut parts: Vec<Range<usize>> = bounds.windows(2).map(|w| w[0]..w[1]).collect();
                    assert_eq!(
                        bits(&case.run_parts(level, 0..1, &parts)),
                        bits(&whole),
                        "{level:?} dtype {dtype} at {position}: {parts:?}"
                    );
                    parts.reverse();
                    assert_eq!(
                        bits(&case.run_parts(level, 0..1, &parts)),
                        bits(&whole),
                        "{level:?} dtype {dtype} at {position}: {parts:?}"
                    );
                }
            }
        }
    }
}

/// One token with all KV heads in a call has the bits of a call for each. Few rows and many,
/// contexts of several blocks, windows, heads that no vector divides.
#[test]
fn heads_in_one_call_are_the_same() {
    let mut rng = Rng(20);
    let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let all = std::slice::from_ref(&(0..ATTEND_PARTS));
    for dtype in DTYPES {
        for (d, heads, position, window) in
            [(64, 4, 700, 0), (20, 1, 90, 0), (24, 3, 1000, 300), (16, 30, 300, 0), (8, 70, 600, 0)]
        {
            let mut case = Case::random(dtype, d, heads, window, vec![position], &mut rng);
            if heads != 4 {
                case.sinks = (0..3 * heads).map(|_| rng.signed()).collect();
            }
            let alone: Vec<f32> = (0..3).flat_map(|n| case.run_heads(Level::Scalar, 0..1, all, n..n + 1)).collect();
            for level in levels() {
                for range in [0..3, 1..3] {
                    let expected = &alone[range.start * heads * d..];
                    let got = case.run_heads(level, 0..1, all, range.clone());
                    assert_eq!(
                        bits(&got),
                        bits(expected),
                        "{level:?} dtype {dtype} d={d} heads={heads}, KV heads {range:?}"
                    );
                }
            }
        }
    }
}
