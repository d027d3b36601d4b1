//! Row norms, attention, embedding and RoPE tables.

use super::generate::random;
use super::jit::{Guarded, Jit, check_threads, same_bits};
use super::{assert_same, config, own_error, run_all};
use llmcc_abi::{QuantRowsFn, Uk};
use llmcc_ir::eval::{KvState, OperandData, Q8Rows, q8_rows_from_bytes};
use llmcc_ir::graph::{Balance, F32};
use llmcc_ir::kernel::{Attention, Body, Embed, Norm, ParamId, ParamKind, RowElem, RowNorm};
use llmcc_ir::kv::{First, KvDType, KvSpec};
use llmcc_ir::ty::Dim;
use llmcc_test_support::{Approx, Bounds, FORMATS, Gen, ULP};
use llmcc_ukernels::{Level, table};
use proptest::prelude::*;

/// A cache with random keys and values up to the position of every token.
fn cached(g: &mut Gen, spec: KvSpec) -> ParamId {
    let mut state = KvState::new(spec);
    for i in 0..g.batch.tokens.len() {
        for p in 0..=g.batch.positions[i] as usize {
            let row = |g: &mut Gen| g.rng.floats(spec.width(true)).into_iter().map(f64::from).collect::<Vec<_>>();
            let (k, v) = (row(g), row(g));
            state.store_key(g.batch.seqs[i], p, &k);
            state.store_value(g.batch.seqs[i], p, &v);
        }
    }
    g.kv(state)
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn row_norm(seed in any::<u64>(), width in 1usize..150, runs in 1usize..4) {
        let mut g = random(seed, 5, 40);
        let cols = width * runs;
        let gather = g.rows == Dim::Rows;
        let x = if gather { g.input(Dim::Tokens, cols) } else { g.input(g.rows, cols) };
        let center = g.rng.chance(2);
        let norm = (!g.rng.chance(4)).then_some(Norm { center, ..Norm::rms(1e-5, width) });
        let gain_len = if g.rng.chance(2) { cols } else { width };
        let gain = g.rng.chance(2).then(|| g.vector(gain_len));
        let bias = g.rng.chance(2).then(|| g.vector(gain_len));
        let residual = (!gather && g.rng.chance(2)).then(|| g.input(g.rows, cols));
        let group = g.rng.pick(&[16, 32, 128, 256]);
        let elem = g.rng.pick(&[RowElem::F32, RowElem::Q8 { group }, RowElem::I8 { group }]);
        let out = g.output(cols, elem);
        let case = g.case(Body::RowNorm(RowNorm { x, gather, norm, gain, bias, residual, out }));
        let bounds = Bounds::new(&case, own_error);
        run_all(&case, |got| bounds.check_row_norm(got));
    }

    /// Quantization without a norm has no rounding to disagree about: the bytes of the microkernel.
    #[test]
    fn quantized_rows_equal_the_microkernel(seed in any::<u64>(), k in 1usize..300, group in prop_oneof![Just(16usize), Just(32), Just(128), Just(256)]) {
        let mut g = random(seed, 3, 40);
        g.rows = Dim::Tokens;
        let x = g.input(g.rows, k);
        let out = g.output(k, RowElem::Q8 { group });
        let mut case = g.case(Body::RowNorm(RowNorm::plain(x, out)));
        let OperandData::Rows(rows) = &mut case.operands[x] else { unreachable!() };
        // Zeros, tiny and huge values, ties, and values that must not be lost.
        let special = [0.0, 1e-45, 1e-39, 0.5, 63.5, 127.0, f32::MAX, f32::INFINITY, f32::NAN, -0.0];
        for (i, v) in rows.data.iter_mut().enumerate() {
            if (seed.rotate_left(i as u32) & 7) == 0 {
                *v = special[(seed.rotate_right(i as u32) % 10) as usize];
            }
            if seed % 3 == 0 {
                *v = (*v * 8.0).round() / 2.0;
            }
        }
        let rows = rows.clone();
        // SAFETY: the table's entry has this type.
        let quantize: QuantRowsFn = unsafe { std::mem::transmute(table(Level::Scalar).f[Uk::QuantRows as usize]) };
        let layout = llmcc_abi::layout::q8_row(k, group);
        let bytes = layout.bytes;
        let mut want = vec![0u8; bytes * rows.rows()];
        for (i, want) in want.chunks_mut(bytes).enumerate() {
            // SAFETY: a row of k floats, and the bytes of its int8 form.
            unsafe {
                let (scales, sums) = (want.as_mut_ptr().add(layout.scales), want.as_mut_ptr().add(layout.sums));
                quantize(rows.row(i).as_ptr(), k as u64, group as u64, want.as_mut_ptr().cast(), scales.cast(), sums.cast());
            }
        }
        let want = OperandData::Q8(q8_rows_from_bytes(k, group, &want));
        run_all(&case, |got| assert!(same_bits(&got[out], &want), "{:?}\n{want:?}", got[out]));
    }

    /// Nor has rounding to integers: like the evaluator for ties, values out of range, and NaN.
    #[test]
    fn rows_of_integers_equal_the_evaluator(
        seed in any::<u64>(),
        k in 1usize..300,
        group in prop_oneof![Just(16usize), Just(32), Just(128), Just(256)],
    ) {
        let mut g = random(seed, 3, 40);
        g.rows = Dim::Tokens;
        let x = g.input(g.rows, k);
        let out = g.output(k, RowElem::I8 { group });
        let mut case = g.case(Body::RowNorm(RowNorm::plain(x, out)));
        let OperandData::Rows(rows) = &mut case.operands[x] else { unreachable!() };
        let special = [
            0.5, 1.5, -0.5, -2.5, 126.5, 127.5, -128.5, -129.0, 1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0,
            1e-45,
        ];
        for (i, v) in rows.data.iter_mut().enumerate() {
            *v *= 100.0;
            if (seed.rotate_left(i as u32) & 15) == 0 {
                *v = special[(seed.rotate_right(i as u32) % 14) as usize];
            }
        }
        let want = [OperandData::Q8(Q8Rows::integers(rows, group))];
        run_all(&case, |got| assert_same(&got[out..=out], &want, "codes, scales and sums"));
    }

    #[test]
    fn sinkhorn(seed in any::<u64>(), side in 1usize..=Balance::MOST_SIDE) {
        let mut g = random(seed, 5, 40);
        let body = g.sinkhorn(side);
        let case = g.case(body);
        run_all(&case, |got| case.check_sinkhorn(got));
    }

    #[test]
    fn absmax(seed in any::<u64>(), runs in 1usize..5, width in 1usize..80) {
        let mut g = random(seed, 5, 40);
        let body = g.absmax(runs, width);
        let case = g.case(body).with_specials(seed);
        run_all(&case, |got| case.check_absmax(got));
    }

    #[test]
    fn embed(seed in any::<u64>(), cols in 1usize..150) {
        let mut g = random(seed, 5, 40);
        g.rows = Dim::Tokens;
        let format = g.format(&FORMATS);
        let table = g.matrix(40, cols, format);
        let (index, scale) = (g.index(), F32::new(g.rng.pick(&[1.0, 0.1])));
        let (every, shift) = g.steps(index);
        let add = g.rng.chance(2).then(|| g.input(g.rows, cols));
        let out = g.output(cols, RowElem::F32);
        let case = g.case(Body::Embed(Embed { table, index, every, shift, scale, add, out }));
        let oracle = case.expected();
        let bounds = Bounds::new(&case, own_error);
        if scale == F32::new(1.0) && add.is_none() {
            run_all(&case, |got| assert!(same_bits(&got[out], &oracle[out]), "{format}"));
        } else {
            run_all(&case, |got| bounds.check_embed(got));
        }
    }

    #[test]
    fn ids_and_hashes(seed in any::<u64>(), cols in 1usize..150) {
        let mut g = random(seed, 5, 40);
        let body = g.token_ids();
        let case = g.case(body);
        let oracle = case.expected();
        run_all(&case, |got| assert!(same_bits(&got[0], &oracle[0]), "{}", case.text()));
        let mut g = random(seed, 5, 40);
        let body = g.given_rows(cols);
        let case = g.case(body);
        let oracle = case.expected();
        run_all(&case, |got| assert!(same_bits(&got[0], &oracle[0]), "{}", case.text()));
        let mut g = random(seed, 5, 40);
        let body = g.substitute(cols);
        let case = g.case(body);
        let oracle = case.expected();
        run_all(&case, |got| assert!(same_bits(&got[1], &oracle[1]), "{}", case.text()));
        let mut g = random(seed, 5, 40);
        let format = g.format(&FORMATS);
        let body = g.embed_hashed(cols, format);
        let case = g.case(body);
        let oracle = case.expected();
        run_all(&case, |got| assert!(got.iter().zip(&oracle).all(|(a, b)| same_bits(a, b)), "{}", case.text()));
    }

    #[test]
    fn rope_table(seed in any::<u64>(), half in 1usize..70) {
        let mut g = random(seed, 5, 4000);
        g.rows = Dim::Tokens;
        let (out, body) = g.rope_table(half);
        let case = g.case(body);
        let oracle = case.expected();
        let OperandData::Rows(want) = &oracle[out] else { unreachable!() };
        run_all(&case, |got| {
            let OperandData::Rows(got) = &got[out] else { unreachable!() };
            for (a, b) in got.data.iter().zip(&want.data) {
                assert!((a - b).abs() <= f32::EPSILON, "{a} {b}");
            }
        });
    }

    /// Attention into bf16 rows is attention into f32 rows, rounded.
    #[test]
    fn attention_into_bf16_rows(seed in any::<u64>(), d in prop_oneof![Just(8usize), 1usize..40]) {
        let mut g = random(seed, 5, 60);
        g.rows = Dim::Tokens;
        let (kv_heads, heads) = (2, 4);
        let dtype = KvDType::F16;
        let (latent, window, first) = (false, None, None);
        let spec = KvSpec { dtype, kv_heads, key_dim: d, value_dim: d, latent, window, every: 1, first };
        let q = g.input(g.rows, heads * d);
        let kv = cached(&mut g, spec);
        let (exact, rounded) = (g.output(heads * d, RowElem::F32), g.output(heads * d, RowElem::Bf16));
        let attention = |out| Body::Attention(Attention::usual([q, kv, out], heads, F32::new(0.3)));
        let mut case = g.case(attention(exact));
        for run in super::with_microkernels() {
            case.kernel.body = attention(exact);
            let first = case.run(&run).swap_remove(exact);
            case.kernel.body = attention(rounded);
            let second = case.run(&run).swap_remove(rounded);
            let (OperandData::Rows(a), OperandData::Rows(b)) = (first, second) else { unreachable!() };
            for (a, b) in a.data.iter().zip(&b.data) {
                prop_assert_eq!(RowElem::Bf16.round(*a).to_bits(), b.to_bits());
            }
        }
    }

    #[test]
    fn attention(seed in any::<u64>(), d in prop_oneof![Just(8usize), Just(64), Just(80), 1usize..40]) {
        attends(seed, (d, d, false), false);
    }

    /// Keys that are values.
    #[test]
    fn attention_to_rows(seed in any::<u64>(), dv in prop_oneof![Just(64usize), 1usize..40], more in any::<bool>()) {
        attends(seed, (0, dv, true), more);
    }

    /// Values narrower or wider than keys, and values that keys end with.
    #[test]
    fn attention_of_different_widths(
        seed in any::<u64>(),
        d in 1usize..40,
        dv in prop_oneof![Just(64usize), 1usize..40],
        latent in any::<bool>(),
    ) {
        attends(seed, (d, dv, latent), false);
    }

    /// Softcaps, sinks, and tokens that look both ways.
    #[test]
    fn attention_of_other_kinds(
        seed in any::<u64>(),
        d in prop_oneof![Just(8usize), Just(64), 1usize..40],
        latent in any::<bool>(),
    ) {
        attends(seed, (d, d, latent), true);
    }
}

/// Attention against the evaluator, for `d` columns that are stored as keys and `dv` of values, which
/// end a `latent` cache's keys; `more`: with anything but the usual softmax.
fn attends(seed: u64, (d, dv, latent): (usize, usize, bool), more: bool) {
    let mut g = random(seed, 5, 90);
    g.rows = Dim::Tokens;
    let dtype = g.rng.pick(KvDType::ALL).0;
    let [d, dv] = [d, dv].map(|d| if dtype == KvDType::Int4 { d.next_multiple_of(2) } else { d });
    let key_dim = if latent { d + dv } else { d };
    let kv_heads = g.rng.below(1, 4);
    let heads = kv_heads * g.rng.below(1, 4);
    let window = g.rng.chance(3).then(|| g.rng.below(1, 40));
    let apart = d == 0 && window.is_none() && g.rng.chance(2);
    let every = if apart { g.rng.below(2, 20) } else { 1 };
    let first = (!more && !latent && window.is_none() && g.rng.chance(2))
        .then(|| First { rows: g.rng.below(1, 40), behind: g.rng.below(1, 60) });
    let spec = KvSpec { dtype, kv_heads, key_dim, value_dim: dv, latent, window, every, first };
    let q = g.input(g.rows, heads * if latent { dv } else { d });
    let own = (d > 0).then_some(latent).filter(|is| *is).map(|_| g.input(g.rows, heads * d));
    let sums = (d == 0 || first.is_some()) && g.rng.chance(2);
    let causal = !more || apart || g.rng.chance(2);
    let chunked = more && causal && window.is_some() && g.rng.chance(2);
    // Only slots that the tokens may see are stored: anything else is NaN in the pages.
    let mut state = KvState::new(spec);
    let mut ends = g.batch.ends();
    if !causal && window.is_none() && g.rng.chance(2) {
        // A state of other tokens than the step's: as many as it has, wherever the step's are.
        let len = |seq: &usize| 1 + ((*seq as u64).wrapping_mul(37).wrapping_add(seed) % 300) as i32;
        ends = g.batch.seqs.iter().map(len).collect();
    }
    for (i, end) in ends.iter().enumerate() {
        let (seq, position) = (g.batch.seqs[i], g.batch.positions[i] as usize);
        let seen = spec.sees(position, (!causal).then_some(*end as usize));
        for p in seen {
            let mut row = |key| g.rng.floats(spec.width(key)).into_iter().map(f64::from).collect::<Vec<_>>();
            let (k, v) = (row(true), row(false));
            if d > 0 {
                state.store_key(seq, p, &k);
            }
            state.store_value(seq, p, &v);
        }
    }
    let kv = g.kv(state);
    let elem = RowElem::Q8 { group: g.rng.pick(&[16, 32]) };
    let whole = !sums && (heads / kv_heads * dv).is_multiple_of(elem.run()) && g.rng.chance(2);
    let cols = heads * (dv + if sums { 2 } else { 0 });
    let out = g.output(cols, if whole { elem } else { RowElem::F32 });
    // They come alone.
    let near = more && !causal && window.is_none() && !latent && !apart && !sums && d == dv && g.rng.chance(2);
    let near = near.then(|| heads * d * (2 * g.rng.below(0, 60) + 1));
    let relative = near.map(|len| [g.vector(len), g.vector(len)]);
    let extra = more && relative.is_none();
    let softcap = (extra && g.rng.chance(2)).then(|| F32::new(g.rng.pick(&[0.5, 3.0, 50.0])));
    let sinks = (extra && g.rng.chance(2)).then(|| g.vector(heads));
    let width = g.rng.pick(&[1, 3, 61, 2, 30]);
    let bias = (extra && !apart && g.rng.chance(2)).then(|| g.vector(heads * width));
    let scale = 1.0 / (key_dim as f32).sqrt();
    let usual = Attention::usual([q, kv, out], heads, F32::new(scale));
    let body = Attention { own, softcap, sinks, bias, relative, causal, chunked, sums, ..usual };
    let case = g.case(Body::Attention(body));
    let oracle_f32 = {
        let mut c = case.clone();
        c.kernel.params[out].kind = ParamKind::Rows { rows: Dim::Tokens, cols, elem: RowElem::F32 };
        c.operands[out] = OperandData::poisoned(&c.kernel.params[out].kind, &c.batch).unwrap();
        c.expected().swap_remove(out)
    };
    let bounds = Bounds::new(&case, own_error);
    let (OperandData::Rows(want), OperandData::Rows(queries)) = (&oracle_f32, &case.operands[q]) else {
        unreachable!()
    };
    let check = |got: &[OperandData]| {
        for (i, end) in ends.iter().enumerate() {
            // |k|, |v| ≤ 2: an error of a score is at most that of its sum, and changes a
            // probability by as much, relatively.
            let n =
                f64::from(if causal { case.batch.positions[i] + 1 } else { (*end).max(case.batch.positions[i] + 1) });
            let abs = |q: &[f32]| q.iter().map(|x| f64::from(x.abs())).sum::<f64>();
            let mut sums: Vec<f64> = queries.row(i).chunks(queries.cols / heads).map(abs).collect();
            if let Some(OperandData::Rows(own)) = own.map(|own| &case.operands[own]) {
                sums.iter_mut().zip(own.row(i).chunks(d)).for_each(|(sum, own)| *sum += abs(own));
            }
            let sum = sums.into_iter().fold(0.0, f64::max);
            // Keys and queries of distances are no larger than 2 either.
            let near = if relative.is_some() { 2.0 * sum + 4.0 * d as f64 } else { 0.0 };
            let score = f64::from(scale) * (2.0 * sum + near);
            // A bias of at most 2 times the distance is rounded, and so is its sum with the score.
            let bias = if bias.is_some() { 2.0 * n } else { 0.0 };
            let relative = 2.0 * score * (key_dim as f64 + 4.0) * ULP + (n + n / 4.0 + 16.0 + 4.0 * bias) * ULP;
            // Maxima and sums are as large as they are.
            let most = |j: usize, v: f32| if j < heads * dv { 2.0 } else { f64::from(v.abs()).max(2.0) };
            let approx = |(j, v): (usize, &f32)| Approx { value: (*v).into(), error: 2.0 * relative * most(j, *v) };
            let values: Vec<Approx> = want.row(i).iter().enumerate().map(approx).collect();
            bounds.check_row(&values, got, out, i, 0);
        }
    };
    // The others need the microkernel.
    if !more && d > 0 && first.is_none() && dtype != KvDType::Int4 {
        return run_all(&case, check);
    }
    for run in super::with_microkernels() {
        check(&case.run(&run));
    }
}

/// However many threads divide long contexts, and in whatever order they finish: the same bits.
#[test]
fn threads_share_long_contexts() {
    for (seed, dtype, tokens) in [(1, KvDType::F16, 1), (2, KvDType::Int8, 3), (3, KvDType::F32, 2)] {
        let mut g = random(seed, tokens, 10);
        g.rows = Dim::Tokens;
        for i in 0..g.batch.tokens.len() {
            (g.batch.seqs[i], g.batch.positions[i]) = (i, (1300 - 500 * i as i32).max(20));
        }
        let (kv_heads, heads, d) = (2, 6, 32);
        let spec =
            KvSpec { dtype, kv_heads, key_dim: d, value_dim: d, latent: false, window: None, every: 1, first: None };
        let q = g.input(g.rows, heads * d);
        let kv = cached(&mut g, spec);
        let out = g.output(heads * d, RowElem::Q8 { group: 32 });
        let case = g.case(Body::Attention(Attention::usual([q, kv, out], heads, F32::new(0.3))));
        for run in super::with_microkernels() {
            check_threads(&case, &run, out, &dtype.to_string());
        }
    }
}

#[test]
fn operands_end_at_an_inaccessible_page() {
    let g = Guarded::new(&[1, 2, 3]);
    assert_eq!((g.bytes(), (g.ptr() as usize + 3) % 4096), (&[1u8, 2, 3][..], 0));
}

/// Tables in formats that only their descriptions tell of.
#[test]
fn tables_of_any_format_are_read_as_described() {
    for (seed, format) in llmcc_test_support::newcomers().into_iter().enumerate() {
        for cols in [1, 30, 64, 300] {
            let mut g = random(seed as u64, 5, 40);
            g.rows = Dim::Tokens;
            let table = g.matrix(40, cols, format);
            let out = g.output(cols, RowElem::F32);
            let case = g.case(Body::Embed(Embed::of_tokens(table, out)));
            let oracle = case.expected();
            run_all(&case, |got| assert!(same_bits(&got[out], &oracle[out]), "{format}, {cols} columns"));
        }
    }
}
