//! Matmul and pointwise kernels.

use super::generate::{random, segments};
use super::jit::Jit;
use super::{assert_same, config, own_error, run_all, v3};
use llmcc_ir::eval::OperandData;
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Matmul, Norm, Param, ParamId, Pointwise, Prologue, RowElem, RowNorm, Store};
use llmcc_ir::quant::{CodedRow, Elem, Format, pack_codes};
use llmcc_test_support::{Bounds, Case, FORMATS, Gen, newcomers};
use proptest::prelude::*;

/// A matmul with f32 rows (`group` 0) or int8 rows.
fn matmul(seed: u64, k: usize, group: usize, elems: &[Elem]) -> Case {
    let mut g = random(seed, 4, 40);
    let x = if group == 0 { g.input(g.rows, k) } else { g.input_q8(k, group) };
    let elems = elems.to_vec();
    let segments = segments(&mut g, &mut |g, n| {
        (0..g.rng.below(1, 3))
            .map(|_| {
                let mut format = g.format(&elems);
                if group != 0 {
                    format.group = group as u16;
                }
                g.matrix(n, k, format)
            })
            .collect()
    });
    let tile_m = g.rng.below(1, 6);
    g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m, k_parts: 1 }))
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn matmul_of_f32_rows(seed in any::<u64>(), k in 1usize..150) {
        let case = matmul(seed, k, 0, &FORMATS);
        let bounds = Bounds::new(&case, own_error);
        run_all(&case, |got| bounds.check_segments(got));
    }

    #[test]
    fn matmul_of_bf16_rows(seed in any::<u64>(), k in 1usize..150) {
        let mut g = random(seed, 4, 40);
        let x = g.input_half(k, RowElem::Bf16);
        let segments = segments(&mut g, &mut |g, n| vec![g.matrix(n, k, Format::BF16)]);
        let tile_m = g.rng.below(1, 6);
        let case = g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m, k_parts: 1 }));
        let all: Vec<_> = super::with_microkernels().iter().map(|run| case.run(run)).collect();
        let bounds = Bounds::new(&case, own_error);
        for got in &all {
            bounds.check_segments(got);
            assert_same(got, &all[0], "scalar microkernels and those of this processor");
        }
        if let Some(run) = super::with_its_own_order() {
            bounds.check_segments(&case.run(&run));
        }
    }

    /// bf16 rows from a row norm, from a prologue, from an epilogue: the same bits.
    #[test]
    fn bf16_rows_are_the_same_wherever_they_are_made(seed in any::<u64>(), k in 1usize..200) {
        let mut g = random(seed, 4, 40);
        let x = g.input(g.rows, k);
        let gain = g.vector(k);
        let between = g.output(k, RowElem::Bf16);
        let copied = g.output(k, RowElem::Bf16);
        let n = g.rng.below(1, 60);
        let weights = vec![g.matrix(n, k, Format::BF16)];
        let out = g.output(n, RowElem::F32);
        let segment = llmcc_ir::kernel::Segment { n, weights, tile_n: 32, expr: Expr::Acc(0), store: Store::Rows { param: out, start: 0 } };
        let product = |x, prologue| {
            Body::Matmul(Matmul { x, prologue, segments: vec![segment.clone()], tile_m: 3, k_parts: 1 })
        };
        let prologue = Prologue { norm: None, gain: Some(gain), bias: None, elem: RowElem::Bf16 };
        let fused = g.case(product(x, Some(prologue)));
        for run in super::with_microkernels() {
            let together = fused.run(&run);
            let mut first = fused.clone();
            first.kernel.body = Body::RowNorm(RowNorm { gain: Some(gain), ..RowNorm::plain(x, between) });
            let mut second = fused.clone();
            second.operands = first.run(&run);
            let mut pointwise = second.clone();
            let expr = Expr::Binary(BinaryOp::Mul, Box::new(Expr::Rows { param: x, start: 0 }), Box::new(Expr::Vector(gain)));
            let store = Store::Rows { param: copied, start: 0 };
            pointwise.kernel.body =
                Body::Pointwise(Pointwise { segments: vec![llmcc_ir::kernel::Segment { n: k, weights: vec![], tile_n: k.next_multiple_of(16), expr, store }] });
            let pointwise = pointwise.run(&run);
            assert_same(&pointwise[copied..=copied], &pointwise[between..=between], "by a row norm and by a pointwise kernel");
            second.kernel.body = product(between, None);
            let apart = second.run(&run);
            assert_same(&together[out..=out], &apart[out..=out], "fused and in two kernels");
            let want = fused.expected();
            let (OperandData::Rows(got), OperandData::Rows(want)) = (&together[out], &want[out]) else { unreachable!() };
            for (a, b) in got.data.iter().zip(&want.data) {
                // Products of numbers below 4 in a chain of k.
                prop_assert!((a - b).abs() <= (k + 1) as f32 * 16.0 * f32::EPSILON * k as f32, "{a} {b}");
            }
        }
    }

    #[test]
    fn matmul_of_int8_rows(seed in any::<u64>(), k in 1usize..300, group in prop_oneof![Just(32usize), Just(64), Just(128)]) {
        let case = matmul(seed, k, group, &[Elem::W8, Elem::W4, Elem::W4A]);
        let bounds = Bounds::new(&case, own_error);
        run_all(&case, |got| bounds.check_segments(got));
    }

    /// With the scale of their input after the product, as checkpoints have it.
    #[test]
    fn matmul_of_integers(
        seed in any::<u64>(),
        k in 1usize..300,
        group in prop_oneof![Just(32usize), Just(64), Just(128)],
    ) {
        let mut g = random(seed, 6, 40);
        let x = g.input_integers(k, group);
        let n = g.rng.below(1, 80);
        let scale = g.vector(1);
        g.change_vector(scale, |x| (x.abs() + 0.1) / 256.0);
        let elems = [Elem::W8, Format::parse("w8zg32").unwrap().elem, Elem::W4, Elem::W4A];
        let format = Format::new(g.rng.pick(&elems), group as u16);
        let weights: Vec<ParamId> = (0..2).map(|_| g.matrix(n, k, format)).collect();
        let boxed = |op, a, b| Expr::Binary(op, Box::new(a), Box::new(b));
        let scaled = |lane| boxed(BinaryOp::Mul, Expr::Acc(lane), Expr::Vector(scale));
        let expr = boxed(BinaryOp::Mul, Expr::Unary(UnaryOp::Silu, Box::new(scaled(0))), scaled(1));
        let elem = g.rng.pick(&[RowElem::F32, RowElem::I8 { group: 32 }]);
        let store = Store::Rows { param: g.output(n, elem), start: 0 };
        let segments = vec![llmcc_ir::kernel::Segment { n, weights, tile_n: 32, expr, store }];
        let tile_m = g.rng.below(1, 6);
        let case = g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m, k_parts: 1 }));
        let bounds = Bounds::new(&case, own_error);
        run_all(&case, |got| bounds.check_segments(got));
        if let Some([here, calls]) = v3() {
            assert_same(&case.run(&here), &case.run(&calls), "made here and called");
        }
    }

    /// Where sums of products are numbers that f32 holds, nothing is rounded: integers times integers.
    #[test]
    fn products_of_integers_are_exact(
        seed in any::<u64>(),
        k in 1usize..600,
        group in prop_oneof![Just(32usize), Just(128)],
    ) {
        let mut g = random(seed, 6, 40);
        let x = g.input_integers(k, group);
        let (n, format) = (g.rng.below(1, 60), Format::new(Elem::W8, group as u16));
        let coded = |g: &mut Gen| {
            let mut row = CodedRow::new(&format.encoding(), k);
            row.codes.iter_mut().for_each(|c| *c = g.rng.below(0, 256) as u8);
            row.factors.fill((1.0, 0.0));
            row
        };
        let rows: Vec<CodedRow> = (0..n).map(|_| coded(&mut g)).collect();
        let mut bytes = vec![0; format.packed_bytes(n, k)];
        for (rows, out) in rows.chunks(16).zip(bytes.chunks_mut(format.block_bytes(k))) {
            pack_codes(format, rows, k, out).expect("packs");
        }
        let w = g.push(llmcc_ir::kernel::ParamKind::Matrix { n, k, format }, OperandData::Matrix(bytes.into()));
        let out = g.output(n, RowElem::F32);
        let store = Store::Rows { param: out, start: 0 };
        let segments = vec![llmcc_ir::kernel::Segment { n, weights: vec![w], tile_n: 32, expr: Expr::Acc(0), store }];
        let case = g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m: 5, k_parts: 1 }));
        let sum = |i: usize, j: usize| -> f64 {
            let codes = rows[j].codes.iter().map(|c| f64::from(*c) - 128.0);
            case.row(x, i).iter().zip(codes).map(|(x, w)| x * w).sum()
        };
        run_all(&case, |got| {
            let OperandData::Rows(got) = &got[out] else { unreachable!() };
            for (i, j) in (0..case.m()).flat_map(|i| (0..n).map(move |j| (i, j))) {
                assert_eq!(f64::from(got.row(i)[j]), sum(i, j), "row {i}, column {j}");
            }
        });
    }

    #[test]
    fn code_made_here_equals_microkernels(seed in any::<u64>(), k in 1usize..200, group in prop_oneof![Just(0usize), Just(32), Just(128)]) {
        let Some([here, calls]) = v3() else { return Ok(()) };
        let elems: &[Elem] = if group == 0 { &FORMATS } else { &[Elem::W8, Elem::W4, Elem::W4A] };
        let case = matmul(seed, k, group, elems);
        assert_same(&case.run(&here), &case.run(&calls), "made here and called");
    }

    /// Floats of 8 and 4 bits, with all of their scales, by microkernels and by the generic path: the same bits.
    #[test]
    fn small_floats_made_here_equal_microkernels(
        seed in any::<u64>(), k in 1usize..600,
        name in prop_oneof![Just("fp8"), Just("fp8b"), Just("nvfp4")], int8: bool,
    ) {
        let Some([here, calls]) = v3() else { return Ok(()) };
        let format = Format::parse(name).unwrap();
        let mut g = random(seed, 7, 40);
        let x = match format.encoding().integer_group().filter(|_| int8) {
            Some(group) => g.input_q8(k, group),
            None => g.input(g.rows, k),
        };
        let segments = segments(&mut g, &mut |g, n| vec![g.matrix(n, k, format)]);
        let tile_m = g.rng.below(1, 9);
        let case = g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m, k_parts: 1 }));
        assert_same(&case.run(&here), &case.run(&calls), "made here and called");
        let bounds = Bounds::new(&case, own_error);
        run_all(&case, |got| bounds.check_segments(got));
    }

    #[test]
    fn pointwise(seed in any::<u64>()) {
        let mut g = random(seed, 5, 40);
        let segments = segments(&mut g, &mut |_, _| vec![]);
        let case = g.case(Body::Pointwise(Pointwise { segments }));
        let bounds = Bounds::new(&case, own_error);
        run_all(&case, |got| bounds.check_segments(got));
    }

    /// A fused epilogue gives the bits of a matmul that stores its accumulators and a pointwise
    /// kernel.
    #[test]
    fn epilogue_equals_pointwise_kernel(seed in any::<u64>(), k in 1usize..100) {
        let case = matmul(seed, k, 0, &FORMATS);
        let Body::Matmul(body) = &case.kernel.body else { unreachable!() };
        for run in super::all() {
            let fused = case.run(&run);
            // Accumulators first.
            let mut plain = case.clone();
            let mut second = case.clone();
            let mut products = vec![];
            let mut segments = vec![];
            for s in &body.segments {
                let lanes: Vec<ParamId> = s.weights.iter().map(|w| {
                    let out = add_output(&mut plain, s.n);
                    prop_assert_eq!(out, add_output(&mut second, s.n));
                    let store = Store::Rows { param: out, start: 0 };
                    products.push(llmcc_ir::kernel::Segment { weights: vec![*w], expr: Expr::Acc(0), store, ..s.clone() });
                    Ok(out)
                }).collect::<Result<_, TestCaseError>>()?;
                let mut s = s.clone();
                s.weights = vec![];
                s.expr.visit_mut(&mut |e| if let Expr::Acc(l) = e { *e = Expr::Rows { param: lanes[*l], start: 0 } });
                segments.push(s);
            }
            plain.kernel.body = Body::Matmul(Matmul { segments: products, ..body.clone() });
            let plain = plain.run(&run);
            for (i, o) in plain.into_iter().enumerate().skip(case.operands.len()) {
                second.operands[i] = o;
            }
            second.kernel.body = Body::Pointwise(Pointwise { segments });
            let second = second.run(&run);
            assert_same(&fused, &second[..fused.len()], "fused and in two kernels");
        }
    }

    /// A fused prologue gives the bits of a row-norm kernel and a matmul.
    #[test]
    fn prologue_equals_row_norm_kernel(seed in any::<u64>(), k in 1usize..200, quant in prop_oneof![Just(0usize), Just(32), Just(128)]) {
        let mut g = random(seed, 4, 40);
        let x = g.input(g.rows, k);
        let gain = g.rng.chance(2).then(|| g.vector(k));
        let bias = g.rng.chance(2).then(|| g.vector(k));
        let nothing_else = gain.is_none() && bias.is_none() && quant == 0;
        let center = g.rng.chance(2);
        let norm = (nothing_else || !g.rng.chance(4)).then_some(Norm { center, ..Norm::rms(1e-5, k) });
        let format = if quant == 0 { g.format(&FORMATS) } else { Format::new(g.rng.pick(&[Elem::W8, Elem::W4, Elem::W4A]), quant as u16) };
        let n = g.rng.below(1, 60);
        let weights = vec![g.matrix(n, k, format)];
        let group = quant;
        let elem = if quant == 0 { RowElem::F32 } else { g.rng.pick(&[RowElem::Q8 { group }, RowElem::I8 { group }]) };
        let out = g.output(n, RowElem::F32);
        let between = g.output(k, elem);
        let store = Store::Rows { param: out, start: 0 };
        let segments = vec![llmcc_ir::kernel::Segment { n, weights, tile_n: 32, expr: Expr::Acc(0), store }];
        let prologue = Some(Prologue { norm, gain, bias, elem });
        let fused = g.case(Body::Matmul(Matmul { x, prologue, segments: segments.clone(), tile_m: 3, k_parts: 1 }));
        for run in super::all() {
            let together = fused.run(&run);
            let mut first = fused.clone();
            first.kernel.body = Body::RowNorm(RowNorm { norm, gain, bias, ..RowNorm::plain(x, between) });
            let mut second = fused.clone();
            second.operands = first.run(&run);
            second.kernel.body = Body::Matmul(Matmul { x: between, prologue: None, segments: segments.clone(), tile_m: 3, k_parts: 1 });
            let apart = second.run(&run);
            assert_same(&together[out..=out], &apart[out..=out], "fused and in two kernels");
        }
    }
}

/// Adds f32 rows to be written.
fn add_output(case: &mut Case, cols: usize) -> ParamId {
    let kind = llmcc_ir::kernel::ParamKind::Rows { rows: case.kernel.rows, cols, elem: RowElem::F32 };
    case.operands.push(OperandData::poisoned(&kind, &case.batch).unwrap());
    case.kernel.params.push(Param { name: format!("extra{}", case.operands.len()), kind });
    case.operands.len() - 1
}

/// Formats without a microkernel are decoded from their descriptions, by f32 rows and (integers) by
/// int8 rows.
#[test]
fn formats_without_microkernels_are_multiplied_as_described() {
    for (seed, format) in newcomers().into_iter().enumerate() {
        let groups = [None, format.encoding().integer_group()];
        for (k, int8) in [(300, groups[0]), (64, groups[0]), (31, groups[0]), (300, groups[1]), (40, groups[1])] {
            let mut g = random(seed as u64, 4, 40);
            let x = match int8 {
                Some(group) => g.input_q8(k, group),
                None => g.input(g.rows, k),
            };
            let weights = vec![g.matrix(37, k, format)];
            let param = g.output(37, RowElem::F32);
            let store = Store::Rows { param, start: 0 };
            let segments = vec![llmcc_ir::kernel::Segment { n: 37, weights, tile_n: 32, expr: Expr::Acc(0), store }];
            let case = g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m: 3, k_parts: 1 }));
            let bounds = Bounds::new(&case, own_error);
            run_all(&case, |got| bounds.check_segments(got));
        }
    }
}

/// Formats of the table without one.
const SLOW: [&str; 4] = ["q8k", "iq2", "iq3", "iq3s"];

/// Such a product says that it is generic, so that `--deny-fallback` names it; one with a
/// microkernel does not.
#[test]
fn products_without_microkernels_are_counted() {
    use crate::Backend;
    let generic = |format: Format| {
        let mut g = random(1, 4, 40);
        let x = match format.encoding().integer_group() {
            Some(group) => g.input_q8(64, group),
            None => g.input(g.rows, 64),
        };
        let weights = vec![g.matrix(32, 64, format)];
        let store = Store::Rows { param: g.output(32, RowElem::F32), start: 0 };
        let segments = vec![llmcc_ir::kernel::Segment { n: 32, weights, tile_n: 32, expr: Expr::Acc(0), store }];
        let case = g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m: 3, k_parts: 1 }));
        super::CALLS.lower(&case.kernel, super::target(llmcc_ir::target::CpuIsa::X86_64V3)).unwrap().generic.is_some()
    };
    // The name of `mx4` does not matter: its description is in the table.
    let in_table = |format: &Format| Format::parse(&format.to_string()).is_some() || format.to_string() == "mx4";
    let slow = SLOW.into_iter().map(|name| Format::parse(name).unwrap());
    for format in newcomers().into_iter().filter(|format| !in_table(format)).chain(slow) {
        assert!(generic(format), "{format}");
    }
    let fast = |format: &Format| in_table(format) && !SLOW.contains(&format.to_string().as_str());
    for format in newcomers().into_iter().filter(fast) {
        assert!(!generic(format), "{format}");
    }
    for format in ["f32", "f16", "bf16", "w8g32", "w4g64", "w4ag128", "fp8", "fp8b", "nvfp4"] {
        assert!(!generic(Format::parse(format).unwrap()), "{format}");
    }
}
