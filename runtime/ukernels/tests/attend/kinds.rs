//! Other kinds of softmax: caps, sinks, biases, chunks, tokens that look both ways.

use super::*;

/// Softcaps that matter and that do not, sinks that weigh more and less than all else, and tokens
/// that look both ways, alone and together, over one block and several.
#[test]
fn softcaps_sinks_and_both_ways() {
    let mut rng = Rng(21);
    for (i, dtype) in DTYPES.into_iter().cycle().take(24).enumerate() {
        let (softcap, sinks, both) = ([0.0, 0.5, 30.0][i % 3], i % 2 == 0, i / 2 % 3 > 0);
        let (d, heads) = [(16, 2), (24, 13), (if dtype == kv_dtype::INT4 { 10 } else { 9 }, 30), (64, 1)][i % 4];
        for (positions, more) in [(vec![3, 4, 9], 30), ((250..262).collect::<Vec<i32>>(), 300), (vec![0], 1)] {
            let slots = *positions.last().expect("tokens") as usize + if both { more } else { 1 };
            let window = [0, 0, 20, 280][i / 3 % 4];
            let mut case = Case::of(dtype, (d, d, heads), window, (positions, slots), &mut rng);
            case.softcap = softcap;
            case.end = both.then_some(slots);
            if sinks {
                case.sinks = (0..3 * heads).map(|_| rng.signed() * 12.0).collect();
            }
            case.check();
        }
    }
}

/// Slopes and tables, of distances and of slots, shorter and longer than contexts; chunks that begin
/// anywhere in blocks.
#[test]
fn biases_and_chunks() {
    let mut rng = Rng(22);
    for (i, dtype) in DTYPES.into_iter().cycle().take(24).enumerate() {
        let (reach, both) = ([0, 0, 1, 20, 400][i % 5], i % 3 == 2);
        let (d, heads) = [(16, 2), (24, 13), (10, 30), (64, 1)][i % 4];
        for (positions, more) in [(vec![3, 4, 9], 30), ((250..262).collect::<Vec<i32>>(), 300), (vec![0], 1)] {
            let slots = *positions.last().expect("tokens") as usize + if both { more } else { 1 };
            let window = [0, 7, 253, 0, 256][i % 5];
            let mut case = Case::of(dtype, (d, d, heads), window, (positions, slots), &mut rng);
            (case.reach, case.chunked, case.end) = (reach, i % 2 == 0 && !both, both.then_some(slots));
            case.bias_slots = [0, 0, 0, 40, 600][i / 2 % 5];
            let (count, slopes) = (3 * heads * case.bias_width(), reach == 0 && case.bias_slots == 0);
            case.bias = (0..count).map(|_| if slopes { rng.signed().abs() } else { rng.signed() * 3.0 }).collect();
            if i % 7 == 0 {
                case.sinks = (0..3 * heads).map(|_| rng.signed()).collect();
            }
            case.check();
            case.bias.clear();
            case.check();
        }
    }
}
