//! Attention to caches that drop tokens.

use super::generate::random;
use super::jit::{Jit, same_bits};
use super::with_microkernels;
use llmcc_ir::graph::Criterion;
use llmcc_test_support::{Case, Gen};

/// A random step of up to 60 tokens.
fn case(seed: u64, criterion: Criterion) -> Case {
    let mut g: Gen = random(seed, 60, 1);
    let heads = [g.rng.below(1, 4), g.rng.below(1, 4)];
    let dims = [g.rng.below(1, 20), g.rng.below(1, 40)];
    let body = g.evicting(criterion, heads, dims);
    g.case(body)
}

/// Seeds are fixed: where two scores differ by less than f32 loses, either token may leave.
#[test]
fn results_and_caches_equal_the_evaluators() {
    for criterion in Criterion::ALL {
        for seed in 0..20 {
            let case = case(seed, criterion);
            for run in with_microkernels() {
                case.check_close(&case.run(&run), 1e-4);
            }
        }
    }
}

/// However a step is cut in two, the bits are the same.
#[test]
fn steps_may_be_cut_anywhere() {
    for seed in 0..30 {
        let case = case(seed, Criterion::ALL[seed as usize % Criterion::ALL.len()]);
        let cut = seed as usize % case.m();
        for run in with_microkernels() {
            for (i, (got, want)) in case.cut(cut, &case.run(&run), &|part| part.run(&run)).iter().enumerate() {
                assert!(same_bits(got, want), "operand {i}, cut at {cut}, seed {seed}");
            }
        }
    }
}
