//! Convolutions over time and linear recurrences.

use super::generate::random;
use super::jit::{Jit, same_bits};
use super::{config, run_all};
use llmcc_ir::state::FixedSpec;
use proptest::prelude::*;

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
    fn recurrences(
        seed in any::<u64>(),
        groups in 1usize..4,
        shared in 1usize..4,
        rows in 1usize..20,
        cols in prop_oneof![1usize..40, Just(32)],
        kinds in any::<[bool; 2]>(),
    ) {
        let mut g = random(seed, 6, 40);
        let body = g.recurrence(FixedSpec { heads: groups * shared, rows, cols }, groups, kinds);
        let case = g.case(body);
        run_all(&case, |got| case.check_close(got, 2e-5));
    }

    /// However a step is cut in two, and whatever other sequences are in it, the bits are the same.
    #[test]
    fn steps_may_be_cut_anywhere(seed in any::<u64>(), cut in any::<prop::sample::Index>(), delta in any::<bool>()) {
        let mut g = random(seed, 6, 40);
        let body = match seed % 3 {
            0 => g.convolution(4, 21),
            _ => g.recurrence(FixedSpec { heads: 4, rows: 7, cols: 12 }, 2, [delta, seed % 2 == 0]),
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
