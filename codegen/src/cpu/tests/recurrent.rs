//! Convolutions over time and linear recurrences.

use super::generate::random;
use super::jit::{Jit, same_bits};
use super::{config, run_all};
use llmcc_ir::eval::{Batch, OperandData, Rows};
use llmcc_ir::kernel::{Body, CausalConv, Param, ParamId, ParamKind, Recurrence, RowElem};
use llmcc_ir::state::FixedSpec;
use llmcc_ir::ty::Dim;
use llmcc_test_support::{Case, Gen};
use proptest::prelude::*;

/// Rows and states are what the evaluator says, up to `tolerance` of the largest number there.
fn close(case: &Case, got: &[OperandData], tolerance: f64) {
    let numbers = |o: &OperandData| -> Vec<f64> {
        match o {
            OperandData::Rows(r) => r.data.iter().map(|v| f64::from(*v)).collect(),
            OperandData::Fixed(s) => (0..s.sequences()).flat_map(|seq| s.clone().of(seq).to_vec()).collect(),
            _ => vec![],
        }
    };
    for (i, (want, got)) in case.expected().iter().zip(got).enumerate() {
        let (want, got) = (numbers(want), numbers(got));
        let most = want.iter().fold(1e-30, |m: f64, v| m.max(v.abs()));
        assert_eq!(want.len(), got.len());
        for (w, g) in want.iter().zip(&got) {
            assert!((w - g).abs() <= tolerance * most, "operand {i}: {g}, expected {w}\n{}", case.text());
        }
    }
}

/// Rows with columns before and after those that are read; the first of these.
fn slice(g: &mut Gen, cols: usize) -> (ParamId, usize) {
    let (before, after) = (g.rng.below(0, 5), g.rng.below(0, 5));
    (g.input(Dim::Tokens, before + cols + after), before)
}

/// Numbers from 0 to 1.
fn below_one(g: &mut Gen, cols: usize) -> ParamId {
    let p = g.input(Dim::Tokens, cols);
    g.change_rows(p, |x| 1.0 / (1.0 + x.abs()));
    p
}

fn convolution(g: &mut Gen, width: usize, channels: usize) -> Body {
    let (x, start) = slice(g, channels);
    let taps = g.vector(width * channels);
    let state = g.fixed(FixedSpec { heads: 1, rows: width - 1, cols: channels });
    let out = g.output(channels, RowElem::F32);
    Body::CausalConv(CausalConv { x, start, taps, width, state, out })
}

fn recurrence(g: &mut Gen, spec: FixedSpec, groups: usize, [delta, per_row]: [bool; 2]) -> Body {
    let FixedSpec { heads, rows, cols } = spec;
    let ((q, q_start), (k, k_start)) = (slice(g, groups * rows), slice(g, groups * rows));
    // Keys of a length below 1, so that the state does not grow.
    g.change_rows(k, |x| x / (2.0 * rows as f32).sqrt());
    let (v, v_start) = slice(g, heads * cols);
    let decay = below_one(g, if per_row { heads * rows } else { heads });
    let rate = below_one(g, heads);
    let state = g.fixed(spec);
    let out = g.output(heads * cols, RowElem::F32);
    Body::Recurrence(Recurrence { q, q_start, k, k_start, groups, v, v_start, decay, rate, delta, state, out })
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn convolutions(seed in any::<u64>(), width in 2usize..6, channels in prop_oneof![1usize..90, Just(64)]) {
        let mut g = random(seed, 6, 40);
        g.rows = Dim::Tokens;
        let body = convolution(&mut g, width, channels);
        let case = g.case(body);
        run_all(&case, |got| close(&case, got, 1e-6));
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
        g.rows = Dim::Tokens;
        let body = recurrence(&mut g, FixedSpec { heads: groups * shared, rows, cols }, groups, kinds);
        let case = g.case(body);
        run_all(&case, |got| close(&case, got, 2e-5));
    }

    /// However a step is cut in two, and whatever other sequences are in it, the bits are the same.
    #[test]
    fn steps_may_be_cut_anywhere(seed in any::<u64>(), cut in any::<prop::sample::Index>(), delta in any::<bool>()) {
        let mut g = random(seed, 6, 40);
        g.rows = Dim::Tokens;
        let body = match seed % 3 {
            0 => convolution(&mut g, 4, 21),
            _ => recurrence(&mut g, FixedSpec { heads: 4, rows: 7, cols: 12 }, 2, [delta, seed % 2 == 0]),
        };
        let case = g.case(body);
        let cut = cut.index(case.m());
        for run in super::all() {
            let whole = case.run(&run);
            let first = part(&case, 0..cut);
            let mut second = part(&case, cut..case.m());
            if cut > 0 {
                for (o, after) in second.operands.iter_mut().zip(first.run(&run)) {
                    if let OperandData::Fixed(_) = o {
                        *o = after;
                    }
                }
            }
            let got = second.run(&run);
            for (i, whole) in whole.iter().enumerate() {
                let want = match whole {
                    OperandData::Rows(r) => OperandData::Rows(rows(r, cut..case.m())),
                    other => other.clone(),
                };
                prop_assert!(same_bits(&got[i], &want), "operand {i}, cut at {cut}");
            }
        }
    }
}

fn rows(r: &Rows, tokens: std::ops::Range<usize>) -> Rows {
    Rows { cols: r.cols, data: r.data[tokens.start * r.cols..tokens.end * r.cols].to_vec() }
}

/// Some of the tokens of a case.
fn part(case: &Case, tokens: std::ops::Range<usize>) -> Case {
    let b = &case.batch;
    let batch = Batch {
        tokens: b.tokens[tokens.clone()].to_vec(),
        seqs: b.seqs[tokens.clone()].to_vec(),
        positions: b.positions[tokens.clone()].to_vec(),
        out_rows: vec![],
        ..Batch::default()
    };
    let operand = |(p, o): (&Param, &OperandData<'static>)| match (&p.kind, o) {
        (ParamKind::Rows { .. }, OperandData::Rows(r)) => OperandData::Rows(rows(r, tokens.clone())),
        _ => o.clone(),
    };
    Case {
        kernel: case.kernel.clone(),
        batch,
        operands: case.kernel.params.iter().zip(&case.operands).map(operand).collect(),
    }
}
