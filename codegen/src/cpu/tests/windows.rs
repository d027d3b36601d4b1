//! Bounds of windows, the windows that queries select by them, and attention whose KV heads select rows of their own.

use super::generate::random;
use super::jit::{Jit, same_bits};
use super::{run_all, with_microkernels};
use llmcc_ir::eval::{OperandData, Rows};
use llmcc_ir::graph::F32;
use llmcc_ir::kernel::{Attention, Body, RowElem};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::ty::Dim;
use llmcc_test_support::Gen;

#[test]
fn bounds_equal_the_evaluators() {
    for seed in 0..40 {
        let mut g = random(seed, 40, 40);
        let channels = g.rng.pick(&[1, 16, 21, 64, 70]);
        let width = g.rng.below(2, 9);
        let body = g.window_bounds(width, channels);
        let case = g.case(body);
        // No number is computed.
        run_all(&case, |got| case.check_close(got, 0.0));
    }
}

/// Small whole numbers, so that no sum is rounded, and scores of windows are equal.
#[test]
fn selections_equal_the_evaluators() {
    fn whole(g: &mut Gen, n: usize) -> Vec<f32> {
        (0..n).map(|_| g.rng.below(0, 7) as f32 - 3.0).collect()
    }
    for seed in 0..60 {
        let mut g = random(seed, 4, 120);
        let sizes = [g.rng.below(1, 4), g.rng.below(1, 4), g.rng.below(1, 12)];
        let (every, windows) = (g.rng.below(2, 8), g.rng.below(1, 9));
        let body = g.select_windows(sizes, (every, windows), whole);
        let Body::SelectWindows(k) = &body else { panic!("no choice") };
        let out = k.out;
        let case = g.case(body);
        let want = case.expected();
        for run in with_microkernels() {
            let got = case.run(&run);
            assert!(same_bits(&got[out], &want[out]), "seed {seed}: {:?} {:?}\n{}", got[out], want[out], case.text());
        }
    }
}

/// Attention to selections by KV head is attention of each KV head alone to its selection.
#[test]
fn heads_read_their_own_selections() {
    for seed in 0..30 {
        let mut g = random(seed, 4, 90);
        g.rows = Dim::Tokens;
        let dtype = g.rng.pick(KvDType::ALL).0;
        let (kv_heads, group, d, top) =
            (g.rng.below(1, 4), g.rng.below(1, 4), g.rng.pick(&[8, 16]), g.rng.below(1, 30));
        let (window, first) = (None, None);
        let spec = KvSpec { dtype, kv_heads, key_dim: d, value_dim: d, latent: false, window, every: 1, first };
        let q = g.input(g.rows, kv_heads * group * d);
        let kv = g.cached(spec, |g, n| g.rng.floats(n));
        let selected = g.input(g.rows, kv_heads * top);
        let out = g.output(kv_heads * group * d, RowElem::F32);
        let mut numbers = vec![];
        for i in 0..g.batch.tokens.len() {
            for _ in 0..kv_heads {
                let seen = g.batch.positions[i] as usize + 1;
                numbers.extend(g.selection(seen, top));
            }
        }
        let usual = Attention::usual([q, kv, out], kv_heads * group, F32::new(0.2));
        let mut case = g.case(Body::Attention(Attention { selected: Some(selected), by_head: true, ..usual }));
        case.operands[selected] = OperandData::Rows(Rows { cols: kv_heads * top, data: numbers });
        let wanted = case.expected();
        let OperandData::Rows(wanted) = &wanted[out] else { panic!("no rows") };
        for run in with_microkernels() {
            let object = case.compile(&run);
            let got = case.run_object(&object, &run);
            let OperandData::Rows(rows) = &got[out] else { panic!("no rows") };
            for (i, (a, b)) in rows.data.iter().zip(&wanted.data).enumerate() {
                assert!((a - b).abs() <= 1e-4 * b.abs().max(2.0), "{a}, not {b}: {i} of {dtype}, seed {seed}");
            }
            let shared = case.run_object(&object, &run.shared(&case, 7));
            assert!(same_bits(&shared[out], &got[out]), "by threads, seed {seed}");
        }
    }
}
