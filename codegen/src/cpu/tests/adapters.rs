//! Products with the matrices of adapters.

use super::generate::random;
use super::jit::{Jit, same_bits};
use super::{baseline_made_here, config, run_all, v3, with_microkernels};
use proptest::prelude::*;

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn products(
        seed in any::<u64>(),
        k in prop_oneof![1usize..80, Just(64)],
        blocks in prop::collection::vec(1usize..4, 1..4),
    ) {
        let mut g = random(seed, 6, 40);
        let parts: Vec<usize> = blocks.iter().map(|b| 16 * b).collect();
        let body = g.adapter_matmul(k, &parts);
        let case = g.case(body);
        run_all(&case, |got| case.check_close(got, 2e-6));
    }

    /// Microkernels and generated code sum in the same order; and however a step is cut in two, and
    /// whatever other sequences are in it, the bits are the same.
    #[test]
    fn all_have_the_same_bits(seed in any::<u64>(), k in 1usize..80, cut in any::<prop::sample::Index>()) {
        let mut g = random(seed, 6, 40);
        let body = g.adapter_matmul(k, &[32, 16]);
        let case = g.case(body);
        let want = case.run(&baseline_made_here());
        for run in with_microkernels().iter().chain(v3().iter().flatten()) {
            for (i, (got, want)) in case.run(run).iter().zip(&want).enumerate() {
                prop_assert!(same_bits(got, want), "operand {i}");
            }
        }
        let cut = cut.index(case.m());
        for run in super::all() {
            for (i, (got, want)) in case.cut(cut, &case.run(&run), &|part| part.run(&run)).iter().enumerate() {
                prop_assert!(same_bits(got, want), "operand {i}, cut at {cut}");
            }
        }
    }
}
