//! A family and a state that are in no shipped table: `dummy.rs`.

use super::generate::random;
use super::jit::{Jit, same_bits};
use super::{all, config, run_all};
use llmcc_ir::graph::F32;
use llmcc_ir::kernel::{Body, Climb, RowElem};
use llmcc_ir::state::{State, TallySpec};
use llmcc_ir::ty::Dim;
use llmcc_test_support::Case;
use proptest::prelude::*;

/// Sequences that have had some tokens already.
fn climb(seed: u64, cols: usize, most: usize) -> Case {
    let mut g = random(seed, 6, 40);
    g.rows = Dim::Tokens;
    let x = g.input(Dim::Tokens, cols);
    let mut state = State::new(TallySpec { most }.into());
    for seq in g.batch.seqs.clone() {
        let tally = state.tally_mut().expect("a tally");
        (0..g.rng.below(0, 4)).for_each(|_| _ = tally.count(seq));
    }
    let tally = g.state(state);
    let out = g.output(cols, RowElem::F32);
    g.case(Body::Climb(Climb { x, step: F32::new(0.3), tally, out }))
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn rows_climb(seed in any::<u64>(), cols in 1usize..9, most in 1usize..7) {
        let case = climb(seed, cols, most);
        let want = case.expected();
        run_all(&case, |got| {
            for (i, (got, want)) in got.iter().zip(&want).enumerate().skip(1) {
                assert!(same_bits(got, want), "operand {i}: {got:?}, expected {want:?}");
            }
        });
    }

    #[test]
    fn steps_may_be_cut_anywhere(seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
        let case = climb(seed, 3, 5);
        let cut = cut.index(case.m());
        for run in all() {
            for (i, (got, want)) in case.cut(cut, &case.run(&run), &|part| part.run(&run)).iter().enumerate().skip(1) {
                prop_assert!(same_bits(got, want), "operand {i}, cut at {cut}");
            }
        }
    }
}
