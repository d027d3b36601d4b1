//! Row norms, embedding, RoPE tables and pointwise kernels against the evaluator, through LLVM and
//! the PTX emulator.

use crate::support::{Case, Emulated, Gen, own_error, segment};
use llmcc_abi::layout::BLOCK;
use llmcc_gpu::llvm::Compiler;
use llmcc_ir::eval::{OperandData, Rows};
use llmcc_ir::graph::{Balance, F32, UnaryOp};
use llmcc_ir::kernel::{Body, Embed, Expr, Norm, Pointwise, RowElem, RowNorm, Segment, Store};
use llmcc_ir::quant::Packing;
use llmcc_ir::target::{TargetSpec, find};
use llmcc_ir::ty::Dim;
use llmcc_test_support::{Bounds, FORMATS};

/// Random cases per test.
const CASES: u64 = 40;

fn target(seed: u64) -> &'static TargetSpec {
    find(["sm80", "sm90"][(seed % 2) as usize]).expect("a target")
}

#[test]
fn sinkhorn() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let mut g = Gen::new(seed, 9, 40);
        g.rows = g.rng.pick(&[Dim::Tokens, Dim::Rows]);
        let body = g.sinkhorn(1 + seed as usize % Balance::MOST_SIDE);
        let case = g.case(body);
        case.check_sinkhorn(&case.run(&compiler, target(seed)));
    }
}

#[test]
fn absmax() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let mut g = Gen::new(seed, 9, 40);
        g.rows = g.rng.pick(&[Dim::Tokens, Dim::Rows]);
        let (runs, width) = (g.rng.below(1, 7), g.rng.below(1, 100));
        let body = g.absmax(runs, width);
        let case = g.case(body).with_specials(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        case.check_absmax(&case.run(&compiler, target(seed)));
    }
}

#[test]
fn row_norm() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let mut g = Gen::new(seed, 3, 40);
        g.rows = g.rng.pick(&[Dim::Tokens, Dim::Rows]);
        // Whole rows of many widths, among them one that threads read twice; runs of a row.
        let (width, runs) = match seed % 4 {
            0 => (g.rng.below(1, 150), g.rng.below(2, 5)),
            1 => (4 * g.rng.below(1, 700), 1),
            2 => (g.rng.below(1, 3000), 1),
            _ => (64, g.rng.below(2, 40)),
        };
        check_row_norm(&compiler, g, width, runs, seed);
    }
}

fn check_row_norm(compiler: &Compiler, mut g: Gen, width: usize, runs: usize, seed: u64) {
    let cols = width * runs;
    let gather = g.rows == Dim::Rows;
    let x = g.input(if gather { Dim::Tokens } else { g.rows }, cols);
    let center = g.rng.chance(2);
    let norm = (!g.rng.chance(4)).then_some(Norm { center, ..Norm::rms(1e-5, width) });
    let gain_len = if g.rng.chance(2) { cols } else { width };
    let gain = g.rng.chance(2).then(|| g.vector(gain_len));
    let bias = g.rng.chance(2).then(|| g.vector(gain_len));
    let residual = (!gather && g.rng.chance(2)).then(|| g.input(g.rows, cols));
    let elem = g.rng.pick(&[RowElem::F32, RowElem::F16, RowElem::Bf16]);
    let out = g.output(cols, elem);
    let case = g.case(Body::RowNorm(RowNorm { x, gather, norm, gain, bias, residual, out }));
    Bounds::new(&case, own_error).check_row_norm(&case.run(compiler, target(seed)));
}

/// Rounding is exact, and even in the middle between two numbers.
#[test]
fn rounding() {
    let compiler = Compiler::new();
    let quarters = (-2400..2400).map(|i| i as f32 / 4.0);
    let x: Vec<f32> = quarters.chain((-600..600).map(|i| i as f32 / 8192.0)).collect();
    for op in [UnaryOp::RoundI8, UnaryOp::RoundE4m3] {
        let mut g = Gen::new(1, 1, 1);
        g.rows = Dim::Tokens;
        let (p, out) = (g.input(g.rows, x.len()), g.output(x.len(), RowElem::F32));
        let expr = Expr::Unary(op, Box::new(Expr::Rows { param: p, start: 0 }));
        let store = Store::Rows { param: out, start: 0 };
        // A pointwise segment is one tile.
        let segment = Segment { n: x.len(), weights: vec![], tile_n: x.len().next_multiple_of(BLOCK), expr, store };
        let mut case = g.case(Body::Pointwise(Pointwise { segments: vec![segment] }));
        case.operands[p] = OperandData::Rows(Rows { cols: x.len(), data: x.repeat(case.m()) });
        let mut got = case.run(&compiler, target(0));
        let OperandData::Rows(got) = got.swap_remove(out) else { panic!("rows") };
        let wanted: Vec<f32> = x.iter().map(|x| op.eval(f64::from(*x)) as f32).collect();
        assert_eq!(got.data, wanted.repeat(case.m()), "{op:?}");
    }
}

/// Codes decode to the very number the evaluator has.
#[test]
fn embed() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let mut g = Gen::new(seed, 4, 40);
        let cols = if seed % 2 == 0 { g.rng.below(1, 300) } else { 4 * g.rng.below(1, 80) };
        let format = g.format(&FORMATS).with_packing(Packing::Fragment);
        let table = g.matrix(40, cols, format);
        let (index, scale) = (g.index(), F32::new(g.rng.pick(&[1.0, 0.1])));
        let (every, shift) = g.steps(index);
        let add = g.rng.chance(2).then(|| g.input(g.rows, cols));
        let out = g.output(cols, RowElem::F32);
        let case = g.case(Body::Embed(Embed { table, index, every, shift, scale, add, out }));
        let got = case.run(&compiler, target(seed));
        if scale == F32::new(1.0) && add.is_none() {
            assert_eq!(got[out], case.expected()[out], "{}", case.text());
        } else {
            Bounds::new(&case, own_error).check_embed(&got);
        }
    }
}

/// Ids as numbers, and rows by hashes of them, to the bit.
#[test]
fn ids_and_hashes() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let mut g = Gen::new(seed, 4, 40);
        let body = g.token_ids();
        let case = g.case(body);
        assert_eq!(case.run(&compiler, target(seed)), case.expected(), "{}", case.text());
        let mut g = Gen::new(seed, 4, 40);
        let cols = if seed % 2 == 0 { g.rng.below(1, 150) } else { 4 * g.rng.below(1, 40) };
        let body = g.given_rows(cols);
        let case = g.case(body);
        assert_eq!(case.run(&compiler, target(seed)), case.expected(), "{}", case.text());
        let mut g = Gen::new(seed, 4, 40);
        let body = g.substitute(cols);
        let case = g.case(body);
        assert_eq!(case.run(&compiler, target(seed)), case.expected(), "{}", case.text());
        let mut g = Gen::new(seed, 4, 40);
        let format = g.format(&FORMATS).with_packing(Packing::Fragment);
        let body = g.embed_hashed(cols, format);
        let case = g.case(body);
        assert_eq!(case.run(&compiler, target(seed)), case.expected(), "{}", case.text());
    }
}

/// The same for formats that only their descriptions tell of.
#[test]
fn embed_any_format() {
    let compiler = Compiler::new();
    for (seed, format) in llmcc_test_support::newcomers().into_iter().enumerate() {
        let mut g = Gen::new(seed as u64, 4, 40);
        let format = format.with_packing(Packing::Fragment);
        let table = g.matrix(40, 332, format);
        let out = g.output(332, RowElem::F32);
        let case = g.case(Body::Embed(Embed::of_tokens(table, out)));
        assert_eq!(case.run(&compiler, target(seed as u64))[out], case.expected()[out], "{format}");
    }
}

#[test]
fn rope_table() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let mut g = Gen::new(seed, 4, [100, 5000, 1_000_000][(seed % 3) as usize]);
        let half = g.rng.below(1, 70);
        let (out, body) = g.rope_table(half);
        let case = g.case(body);
        let (got, want) = (case.run(&compiler, target(seed)), case.expected());
        let (OperandData::Rows(got), OperandData::Rows(want)) = (&got[out], &want[out]) else { unreachable!() };
        for (a, b) in got.data.iter().zip(&want.data) {
            // Both are f64 rounded once; they may fall on two sides of a tie.
            assert!((a - b).abs() <= f32::EPSILON * b.abs(), "{a} {b}\n{}", case.text());
        }
    }
}

#[test]
fn pointwise() {
    let compiler = Compiler::new();
    for seed in 0..3 * CASES {
        let mut g = Gen::new(seed, 4, 60);
        g.rows = if g.rng.chance(4) { Dim::Rows } else { Dim::Tokens };
        let segments: Vec<_> = (0..g.rng.below(1, 4)).map(|_| segment(&mut g)).collect();
        let case: Case = g.case(Body::Pointwise(Pointwise { segments }));
        Bounds::new(&case, own_error).check_segments(&case.run(&compiler, target(seed)));
    }
}

/// Every field of a kernel changes the results, or is refused.
#[test]
fn every_field_of_a_kernel_matters() {
    use llmcc_test_support::edits;
    let (compiler, target) = (Compiler::new(), target(1));
    let run = |case: &Case| llmcc_gpu::emit(&case.kernel, target).is_ok().then(|| case.run(&compiler, target));
    for texts in [
        &[edits::ROW_NORM, edits::GATHER][..],
        &[edits::EMBED, edits::EMBED_TYPES, edits::EMBED_STEPS],
        &[edits::EMBED_HASHED],
        &[edits::ROPE_TABLE, edits::ROPE_TABLE_OF_TWO, edits::ROPE_TABLE_OF_AXES],
        &[edits::MATMUL],
    ] {
        let texts: Vec<String> = texts.iter().map(|text| text.replace("matrix f32[", "matrix f32.frag[")).collect();
        edits::check(&texts.iter().map(String::as_str).collect::<Vec<_>>(), &run);
    }
    let attention = [
        edits::ATTENTION,
        edits::CHUNKED,
        edits::BIASED,
        edits::BIDIRECTIONAL,
        edits::RELATIVE,
        edits::LATENT,
        edits::ROWS,
        edits::SELECTED,
    ];
    edits::check_but(&["by_head"], &attention, &run);
    // On tensor cores.
    let rounded =
        edits::MATMUL.replace("matrix f32[", "matrix f16.frag[").replace("bias=%bias}", "bias=%bias, round=f16}");
    edits::check(&[&rounded], &run);
}
