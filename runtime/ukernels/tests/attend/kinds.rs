//! Other kinds of softmax: caps, sinks, biases, chunks, tokens that look both ways.

use super::*;

impl Case {
    /// Bias of the key at `s` in head `h` of this KV head for a query at `position`.
    pub(super) fn bias(&self, h: usize, position: usize, s: usize) -> f64 {
        let of_head = self.bias.chunks(self.bias_width()).nth(self.head * self.heads + h);
        let far = s as f64 - position as f64;
        let reach = self.reach as f64;
        let near = (far.clamp(-reach, reach) + reach) as usize;
        of_head.map_or(0.0, |b| match (self.bias_slots, self.reach) {
            (0, 0) => -f64::from(b[0]) * far.abs(),
            (0, _) => b[near].into(),
            (slots, _) => b[s.min(slots - 1)].into(),
        })
    }

    /// Products of a query with the key of a distance, and of a key with its query.
    pub(super) fn near(&self, h: usize, position: usize, s: usize, q: &[f32], key: &[f64]) -> f64 {
        let [keys, queries] = &self.relative[..] else { return 0.0 };
        let reach = self.reach as f64;
        let at = ((s as f64 - position as f64).clamp(-reach, reach) + reach) as usize;
        let of = |table: &[f32], i: usize| {
            f64::from(table[((self.head * self.heads + h) * self.d + i) * self.bias_width() + at])
        };
        (0..self.d).map(|i| f64::from(q[i]) * of(keys, i) + of(queries, i) * key[i]).sum()
    }
}

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

/// Keys and queries of distances, which go on for longer than the context or not.
#[test]
fn keys_and_queries_of_distances() {
    let mut rng = Rng(23);
    for (i, dtype) in DTYPES.into_iter().cycle().take(20).enumerate() {
        let reach = [0, 1, 20, 400][i % 4];
        let (d, heads) = [(16, 2), (24, 1), (10, 30), (64, 1)][i / 2 % 4];
        for (positions, more) in [(vec![3, 4, 9], 30), ((250..262).collect::<Vec<i32>>(), 300), (vec![0], 1)] {
            let slots = *positions.last().expect("tokens") as usize + more;
            let mut case = Case::of(dtype, (d, d, heads), 0, (positions, slots), &mut rng);
            (case.reach, case.end) = (reach, Some(slots));
            let count = 3 * heads * d * case.bias_width();
            let mut table = || (0..count).map(|_| rng.signed()).collect();
            case.relative = vec![table(), table()];
            case.check();
            let heads = case.run_heads(Level::Scalar, 0..1, std::slice::from_ref(&(0..ATTEND_PARTS)), 0..3);
            assert_eq!(heads[case.heads * d..][..case.heads * d], case.run(Level::Scalar, 0..1));
        }
    }
}

/// Values narrower and wider than keys, and values that are a part of the keys, with few rows and
/// with many, in sizes of whole vectors and others.
#[test]
fn keys_and_values_of_different_width() {
    let mut rng = Rng(31);
    for (i, dtype) in DTYPES.into_iter().cycle().take(30).enumerate() {
        let dims = [(24, 16, false), (16, 40, false), (72, 64, true), (10, 6, false), (28, 20, true), (48, 32, false)];
        let heads = [1, 4, 13, 30][i % 4];
        for positions in [vec![3, 4, 9], (250..262).collect::<Vec<i32>>(), vec![290]] {
            Case::widths(dtype, dims[i % 6], heads, positions, &mut rng).check();
        }
    }
}

/// Keys that are values, of every token and of several, in contexts of less than one of these, of a
/// few and of several blocks of them; the sums of their weights, with sinks and without. Threads
/// share contexts in which there is nothing to be seen, too.
#[test]
fn keys_that_are_values() {
    let mut rng = Rng(23);
    for (i, dtype) in DTYPES.into_iter().cycle().take(30).enumerate() {
        let (d, heads) = [(16, 2), (24, 13), (10, 30), (64, 1)][i % 4];
        let every = [1, 4, 10, 16, 40, 3][i % 6];
        for positions in [vec![0, 2, 3, 9], (250..262).collect::<Vec<i32>>(), vec![1290]] {
            let mut case = Case::widths(dtype, (d, d, true), heads, positions, &mut rng);
            case.apart(every);
            case.sums = i % 5 > 0;
            if i % 3 == 0 {
                case.sinks = (0..3 * heads).map(|_| rng.signed() * 4.0).collect();
            }
            case.check();
            let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            for level in levels() {
                for t in 0..case.positions.len() {
                    let parts = case.run_parts(level, t..t + 1, &[0..3, 3..4, 4..ATTEND_PARTS]);
                    assert_eq!(bits(parts), bits(case.run(level, t..t + 1)), "{level:?}, every {every}");
                }
            }
        }
    }
}

/// The first slots alone, seen by tokens far behind them: none, some or all, in one block and in several; keys with
/// values of their own and without.
#[test]
fn first_slots() {
    let mut rng = Rng(29);
    for (i, dtype) in DTYPES.into_iter().cycle().take(30).enumerate() {
        let (d, heads) = [(16, 2), (24, 13), (10, 30), (64, 1)][i % 4];
        let first = [[1, 1], [4, 20], [16, 5], [300, 2], [20, 256]][i % 5];
        for positions in [vec![0, 2, 3, 9], (250..280).collect::<Vec<i32>>(), vec![1290]] {
            let mut case = Case::widths(dtype, (d, d, i % 7 == 0), heads, positions, &mut rng);
            (case.first, case.sums) = (first, i % 4 > 0);
            case.check();
            let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            for level in levels() {
                for t in 0..case.positions.len() {
                    let parts = case.run_parts(level, t..t + 1, &[0..3, 3..4, 4..ATTEND_PARTS]);
                    assert_eq!(bits(parts), bits(case.run(level, t..t + 1)), "{level:?}, first {first:?}");
                }
            }
        }
    }
}

impl Case {
    /// A slot is of so many tokens; those that nobody sees have no values.
    fn apart(&mut self, every: usize) {
        self.every = every;
        let layout = page(self.kv_heads, self.own_dim(), self.dv, bits(self.dtype));
        let bytes = self.dv * bits(self.dtype) / 8;
        let most = self.positions.iter().max().map_or(0, |p| (*p as usize + 1) / every);
        for slot in most..self.values.len() {
            let base = self.pages[slot / PAGE_TOKENS] as usize * layout.bytes;
            for n in 0..self.kv_heads {
                let row = n * PAGE_TOKENS + slot % PAGE_TOKENS;
                self.pool[base + layout.v + row * bytes..][..bytes].fill(0xff);
                if bits(self.dtype) <= 8 {
                    self.pool[base + layout.v_scales + row * 4..][..4].fill(0xff);
                }
            }
        }
    }
}

/// Selected slots, over one block and several: all levels agree, and however the context is divided;
/// with all slots selected a latent cache of floats gives the bits that it has without a selection.
#[test]
fn selected_slots() {
    let mut rng = Rng(25);
    for (i, dtype) in DTYPES.into_iter().cycle().take(20).enumerate() {
        let (d, dv) = [(24, 16), (16, 16), (90, 64), (10, 2)][i % 4];
        let position = [700, 40, 15, 300][i / 4 % 4];
        let mut case = Case::widths(dtype, (d, dv, true), [3, 30, 70][i % 3], vec![position], &mut rng);
        let floats = !matches!(dtype, kv_dtype::INT8 | kv_dtype::INT4);
        let dense = case.run(Level::Scalar, 0..1);
        case.selected = (0..=position).map(|n| n as f32).chain([-1.0; 5]).collect();
        for level in [Level::Scalar].into_iter().chain(levels()) {
            assert!(!floats || case.run(level, 0..1) == dense, "{level:?} {dtype} {d} {dv}");
        }
        // Some of them, a number that is of no slot, and one that comes too late.
        case.selected = (0..=position).filter(|_| rng.below(3) == 0).map(|n| n as f32).collect();
        case.selected.extend([position as f32 + 1.0, 0.0]);
        let want = case.run(Level::Scalar, 0..1);
        assert!(case.selected.len() < 10 || want != dense);
        for level in levels() {
            assert_eq!(case.run(level, 0..1), want, "{level:?} {dtype} {d} {dv}");
            assert_eq!(case.run_parts(level, 0..1, &[9..16, 0..3, 3..9]), want, "{level:?} in parts");
        }
    }
}
