//! The rows of a cache that an indexer selects, and attention over them.

use super::generate::random;
use super::jit::{Jit, check_threads, same_bits};
use super::{config, with_microkernels};
use llmcc_ir::eval::{KvState, OperandData, Rows};
use llmcc_ir::graph::F32;
use llmcc_ir::kernel::RowElem;
use llmcc_ir::kernel::{Attention, Body, ParamId, Select};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::ty::Dim;
use llmcc_test_support::{Gen, ULP};
use proptest::prelude::*;

/// A cache whose rows are random for all tokens.
fn cached(g: &mut Gen, spec: KvSpec) -> ParamId {
    let mut state = KvState::new(spec);
    for i in 0..g.batch.tokens.len() {
        for p in 0..=g.batch.positions[i] as usize {
            let row = |g: &mut Gen, n| g.rng.floats(n).into_iter().map(f64::from).collect::<Vec<_>>();
            let (k, v) = (row(g, spec.width(true)), row(g, spec.width(false)));
            if spec.own_dim() > 0 {
                state.store_key(g.batch.seqs[i], p, &k);
            }
            state.store_value(g.batch.seqs[i], p, &v);
        }
    }
    g.kv(state)
}

fn rows_of(d: usize, dtype: KvDType, every: usize) -> KvSpec {
    KvSpec { dtype, kv_heads: 1, key_dim: d, value_dim: d, latent: true, window: None, every }
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
        let (q, weights) = (g.input(g.rows, heads * d), g.input(g.rows, heads));
        let kv = cached(&mut g, rows_of(d, dtype, every));
        let out = g.output(top, RowElem::F32);
        let case = g.case(Body::Select(Select { q, weights, kv, heads, top, out }));
        let f32s = |operands: &[OperandData], p: ParamId, i: usize| match &operands[p] {
            OperandData::Rows(rows) => rows.row(i).to_vec(),
            _ => panic!("no rows"),
        };
        let OperandData::State(state) = &case.operands[kv] else { panic!("no state") };
        let state = state.paged().expect("a cache");
        let wanted = case.expected();
        for run in with_microkernels() {
            let got = case.run(&run);
            for i in 0..case.m() {
                let (got, want) = (f32s(&got, out, i), f32s(&wanted, out, i));
                let (q, w) = (f32s(&case.operands, q, i), f32s(&case.operands, weights, i));
                let row = |n: f32| {
                    let at = (n as usize + 1) * every - 1;
                    state.value(case.batch.seqs[i], at, 0).expect("a row")
                };
                // The score, and the sum of magnitudes that it is made of.
                let score = |n: f32| {
                    let row = row(n);
                    let of_head = |(q, w): (&[f32], &f32)| {
                        let terms = || q.iter().zip(&row).map(|(q, x)| f64::from(*q) * x);
                        let w = f64::from(*w);
                        (w * terms().sum::<f64>().max(0.0), w.abs() * terms().map(f64::abs).sum::<f64>())
                    };
                    let all = q.chunks(d).zip(&w).map(of_head);
                    all.fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y))
                };
                prop_assert!(got.windows(2).all(|w| w[0] < w[1] || w[1] == -1.0), "{:?}", got);
                let only = |a: &[f32], b: &[f32]| a.iter().copied().filter(|n| !b.contains(n)).collect::<Vec<f32>>();
                let (more, less) = (only(&got, &want), only(&want, &got));
                prop_assert_eq!(more.len(), less.len());
                for (a, b) in more.iter().flat_map(|a| less.iter().map(move |b| (*a, *b))) {
                    let ((x, of_x), (y, of_y)) = (score(a), score(b));
                    let bound = (d + heads + 4) as f64 * ULP * (of_x + of_y);
                    prop_assert!((x - y).abs() <= bound, "row {} ({}) for {} ({})", a, x, b, y);
                }
            }
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
    let (q, weights) = (g.input(g.rows, heads * d), g.input(g.rows, heads));
    let kv = cached(&mut g, rows_of(d, KvDType::F16, 1));
    let out = g.output(top, RowElem::F32);
    let case = g.case(Body::Select(Select { q, weights, kv, heads, top, out }));
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
        };
        let heads = g.rng.below(1, 40);
        let q = g.input(g.rows, heads * dv);
        let own = (own_dim > 0).then(|| g.input(g.rows, heads * own_dim));
        let kv = cached(&mut g, spec);
        let sinks = g.rng.chance(2).then(|| g.vector(heads));
        let top = g.rng.below(1, 40);
        let selected = g.input(g.rows, top);
        let sums = own_dim == 0 && g.rng.chance(2);
        let cols = heads * (dv + if sums { 2 } else { 0 });
        let out = g.output(cols, RowElem::F32);
        let numbers: Vec<f32> = (0..g.batch.tokens.len())
            .flat_map(|i| {
                let seen = spec.rows(g.batch.positions[i] as usize + 1);
                let some: Vec<f32> = (0..seen).filter(|_| g.rng.chance(2)).map(|n| n as f32).take(top).collect();
                let rest = top - some.len();
                some.into_iter().chain(std::iter::repeat_n(-1.0, rest)).collect::<Vec<f32>>()
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
