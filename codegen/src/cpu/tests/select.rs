//! The rows of a cache that an indexer selects, and attention over them.

use super::generate::random;
use super::jit::{Jit, check_threads, same_bits};
use super::{config, with_microkernels};
use llmcc_ir::eval::{OperandData, Rows};
use llmcc_ir::graph::F32;
use llmcc_ir::kernel::RowElem;
use llmcc_ir::kernel::{Attention, Body, Select};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::ty::Dim;
use llmcc_test_support::selected::rows_of;
use llmcc_test_support::{Gen, ULP};
use proptest::prelude::*;

fn random_row(g: &mut Gen, n: usize) -> Vec<f32> {
    g.rng.floats(n)
}

proptest! {
    #![proptest_config(config(40))]

    /// The evaluator's rows, but for those whose scores differ by less than what f32 loses.
    #[test]
    fn the_best_rows_are_selected(seed in any::<u64>(), d in 1usize..20, heads in 1usize..14, top in 1usize..30) {
        let mut g = random(seed, 4, 120);
        g.rows = Dim::Tokens;
        let dtype = g.rng.pick(KvDType::ALL).0;
        let d = if dtype == KvDType::Int4 { d.next_multiple_of(2) } else { d };
        let every = g.rng.pick(&[1, 1, 4]);
        let body = g.select(rows_of(d, dtype, every), [heads, top], random_row);
        let case = g.case(body);
        for run in with_microkernels() {
            case.check_select(&case.run(&run));
        }
    }
}

/// A token's selection depends on nothing but its sequence: not on threads, nor on the other tokens.
#[test]
fn selections_depend_on_the_sequence_alone() {
    let (heads, d, top) = (5, 16, 20);
    let mut g = random(7, 3, 10);
    g.rows = Dim::Tokens;
    for i in 0..g.batch.tokens.len() {
        (g.batch.seqs[i], g.batch.positions[i]) = (i, (1300 - 500 * i as i32).max(30));
    }
    let body = g.select(rows_of(d, KvDType::F16, 1), [heads, top], random_row);
    let case = g.case(body);
    let Body::Select(Select { out, .. }) = case.kernel.body else { panic!("no choice") };
    for run in with_microkernels() {
        check_threads(&case, &run, out, "a selection");
    }
}

/// Attention over a selection is attention over the rows that are left of a cache without the others.
#[test]
fn attention_reads_the_selected_rows_alone() {
    for seed in 0..40 {
        let mut g = random(seed, 4, 90);
        g.rows = Dim::Tokens;
        let dtype = g.rng.pick(KvDType::ALL).0;
        let (own_dim, dv) = (g.rng.pick(&[0, 6, 20]), g.rng.pick(&[4, 24]));
        let spec = KvSpec {
            dtype,
            kv_heads: 1,
            key_dim: own_dim + dv,
            value_dim: dv,
            latent: true,
            window: None,
            every: if own_dim == 0 { g.rng.pick(&[1, 4]) } else { 1 },
            first: None,
        };
        let heads = g.rng.below(1, 40);
        let q = g.input(g.rows, heads * dv);
        let own = (own_dim > 0).then(|| g.input(g.rows, heads * own_dim));
        let kv = g.cached(spec, random_row);
        let sinks = g.rng.chance(2).then(|| g.vector(heads));
        let top = g.rng.below(1, 40);
        let selected = g.input(g.rows, top);
        let sums = own_dim == 0 && g.rng.chance(2);
        let cols = heads * (dv + if sums { 2 } else { 0 });
        let out = g.output(cols, RowElem::F32);
        let numbers: Vec<f32> = (0..g.batch.tokens.len())
            .flat_map(|i| {
                let seen = spec.rows(g.batch.positions[i] as usize + 1);
                g.selection(seen, top)
            })
            .collect();
        let usual = Attention::usual([q, kv, out], heads, F32::new(0.2));
        let mut case = g.case(Body::Attention(Attention { own, sinks, selected: Some(selected), sums, ..usual }));
        case.operands[selected] = OperandData::Rows(Rows { cols: top, data: numbers.clone() });
        let wanted = case.expected();
        let OperandData::Rows(wanted) = &wanted[out] else { panic!("no rows") };
        for run in with_microkernels() {
            let object = case.compile(&run);
            let got = case.run_object(&object, &run);
            let OperandData::Rows(rows) = &got[out] else { panic!("no rows") };
            for (i, (a, b)) in rows.data.iter().zip(&wanted.data).enumerate() {
                // |k|, |v| ≤ 2 and |q| ≤ 2: an error of a score changes a weight by as much, relatively.
                let score = 0.2 * 4.0 * spec.key_dim as f64;
                let error = 2.0 * score * (spec.key_dim as f64 + 4.0) * ULP + (top as f64 * 1.25 + 16.0) * ULP;
                let most = f64::from(b.abs()).max(2.0);
                let none = numbers[i / cols * top] < 0.0 && sinks.is_none();
                assert!(
                    if none { a == b } else { f64::from(a - b).abs() <= 2.0 * error * most },
                    "{a}, not {b}: {i} of {dtype}, seed {seed}"
                );
            }
            let shared = case.run_object(&object, &run.shared(&case, 7));
            assert!(same_bits(&shared[out], &got[out]), "by threads, seed {seed}");
        }
    }
}
