//! Convolutions over time and linear recurrences.

use super::generate::random;
use super::jit::{Jit, same_bits};
use super::{baseline_made_here, config, run_all, v3, with_microkernels};
use llmcc_ir::graph::Update;
use llmcc_ir::state::FixedSpec;
use proptest::prelude::*;
use proptest::sample::select;

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn convolutions(seed in any::<u64>(), width in 2usize..6, channels in prop_oneof![1usize..90, Just(64)]) {
        let mut g = random(seed, 6, 40);
        let body = g.convolution(width, channels);
        let case = g.case(body);
        run_all(&case, |got| case.check_close(got, 1e-6));
    }

    #[test]
    fn means(seed in any::<u64>(), channels in prop_oneof![1usize..90, Just(64)]) {
        let mut g = random(seed, 6, 40);
        let body = g.wkv(channels);
        let case = g.case(body);
        run_all(&case, |got| case.check_close(got, 2e-5));
    }

    #[test]
    fn windows(
        seed in any::<u64>(),
        width in 2usize..9,
        series in 1usize..3,
        channels in prop_oneof![1usize..90, Just(64)],
    ) {
        let mut g = random(seed, 20, 40);
        let body = g.window_means(width, series, channels);
        let case = g.case(body);
        run_all(&case, |got| case.check_close(got, 2e-5));
    }

    #[test]
    fn recurrences(
        seed in any::<u64>(),
        groups in 1usize..4,
        shared in 1usize..4,
        rows in 1usize..20,
        cols in prop_oneof![1usize..40, Just(32), Just(64), Just(128), Just(112), Just(53)],
        update in select(&Update::ALL[..]),
        per_row in any::<bool>(),
    ) {
        let mut g = random(seed, 6, 40);
        let body = g.recurrence(FixedSpec { heads: groups * shared, rows, cols }, groups, update, per_row);
        let case = g.case(body);
        run_all(&case, |got| case.check_close(got, 2e-5));
    }

    /// Microkernels and generated code sum in the same order.
    #[test]
    fn all_have_the_same_bits(
        seed in any::<u64>(),
        rows in 1usize..20,
        cols in prop_oneof![1usize..70, Just(128)],
        update in select(&Update::ALL[..]),
        per_row in any::<bool>(),
    ) {
        let mut g = random(seed, 6, 40);
        let body = g.recurrence(FixedSpec { heads: 2, rows, cols }, 1, update, per_row);
        let case = g.case(body);
        let want = case.run(&baseline_made_here());
        for run in with_microkernels().iter().chain(v3().iter().flatten()) {
            for (i, (got, want)) in case.run(run).iter().zip(&want).enumerate() {
                prop_assert!(same_bits(got, want), "operand {i}");
            }
        }
    }

    /// However a step is cut in two, and whatever other sequences are in it, the bits are the same.
    #[test]
    fn steps_may_be_cut_anywhere(
        seed in any::<u64>(),
        cut in any::<prop::sample::Index>(),
        update in select(&Update::ALL[..]),
    ) {
        let mut g = random(seed, 6, 40);
        let body = match seed % 7 {
            0 => g.convolution(4, 21),
            1 => g.wkv(21),
            2 => g.window_means(3, 2, 21),
            _ => g.recurrence(FixedSpec { heads: 4, rows: 7, cols: 12 }, 2, update, seed % 2 == 0),
        };
        let case = g.case(body);
        let cut = cut.index(case.m());
        for run in super::all() {
            for (i, (got, want)) in case.cut(cut, &case.run(&run), &|part| part.run(&run)).iter().enumerate() {
                prop_assert!(same_bits(got, want), "operand {i}, cut at {cut}");
            }
        }
    }
}
