//! fp8 rows through the emulator against the evaluator: made by row-wise kernels, multiplied with
//! fp8 weights by every instruction that there is for it.

use crate::support::{Case, Compiled, Emulated, Gen, step_of};
use llmcc_gpu::assembler::{Ptxas, disassemble, wanted_resident};
use llmcc_gpu::llvm::Compiler;
use llmcc_gpu::worker::Stage;
use llmcc_ir::eval::{Fp8Rows, OperandData, Rows, eval_kernel};
use llmcc_ir::gpu::schedule::{Variant, matmul, matmul_tiles};
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Matmul, Norm, ParamKind, RowElem, RowNorm, Segment, Store};
use llmcc_ir::quant::{Format, Packing, e4m3_to_f32, unpack_row};
use llmcc_ir::target::find;
use llmcc_ir::ty::Dim;
use llmcc_ptx::Options;
use llmcc_test_support::folded;
use std::borrow::Cow;

fn codes(o: &OperandData<'_>) -> Fp8Rows {
    let OperandData::Fp8(rows) = o else { panic!("not fp8 rows") };
    rows.clone()
}

/// Rows of every size: whole and broken units, in registers and in passes.
const COLS: [usize; 7] = [64, 576, 4096, 14336, 50, 130, 33];

#[test]
fn rounded_rows_are_those_of_the_evaluator() {
    let (compiler, target) = (Compiler::new(), find("sm90").unwrap());
    for cols in COLS {
        let mut g = step_of(cols as u64, 3);
        let x = g.input(Dim::Tokens, cols);
        let out = g.output(cols, RowElem::Fp8);
        let mut case = g.case(Body::RowNorm(RowNorm::plain(x, out)));
        // A row of zeros and one of tiny numbers.
        let OperandData::Rows(rows) = &mut case.operands[x] else { unreachable!() };
        rows.data[..cols].fill(0.0);
        rows.data[cols..2 * cols].iter_mut().for_each(|v| *v *= 1e-30);
        let mut want = case.operands.clone();
        eval_kernel(&case.kernel, &case.batch, &mut want).unwrap();
        assert_eq!(codes(&case.run(&compiler, target)[out]), codes(&want[out]), "{cols} columns");
    }
}

#[test]
fn normalized_rows_are_near_those_of_the_evaluator() {
    let (compiler, target) = (Compiler::new(), find("sm90").unwrap());
    for (cols, with_gain) in COLS.into_iter().flat_map(|c| [(c, true), (c, false)]) {
        let mut g = step_of(cols as u64, 3);
        let x = g.input(Dim::Tokens, cols);
        let gain = with_gain.then(|| g.vector(cols));
        let out = g.output(cols, RowElem::Fp8);
        let norm = Some(Norm::rms(1e-5, cols));
        let case = g.case(Body::RowNorm(RowNorm { x, gather: false, norm, gain, bias: None, residual: None, out }));
        let mut want = case.operands.clone();
        eval_kernel(&case.kernel, &case.batch, &mut want).unwrap();
        let (got, want) = (codes(&case.run(&compiler, target)[out]), codes(&want[out]));
        for (a, b) in got.scales.iter().zip(&want.scales) {
            assert!((a / b - 1.0).abs() < 1e-5, "scale {a}, not {b}");
        }
        // The other side of a rounding boundary, at most.
        let near =
            |a: u8, b: u8| a == b || a & 0x80 == b & 0x80 && a.abs_diff(b) == 1 || e4m3_to_f32(a) == e4m3_to_f32(b);
        let off =
            got.codes.iter().zip(&want.codes).filter(|(a, b)| a != b).inspect(|(a, b)| assert!(near(**a, **b))).count();
        assert!(off * 500 <= got.codes.len().max(500), "{off} of {} codes differ", got.codes.len());
    }
}

struct Product {
    m: usize,
    k: usize,
    /// Columns and tile of each segment; an output tile has 128 columns, of one lane or of two.
    segments: Vec<(usize, usize)>,
    tile_m: usize,
}

impl Product {
    fn case(&self) -> Case {
        let mut g = step_of((self.m * self.k) as u64, self.m);
        let data = g.rng.floats(self.m * self.k);
        let rows = Fp8Rows::quantize(&Rows { cols: self.k, data });
        let x = g.push(ParamKind::Rows { rows: Dim::Tokens, cols: self.k, elem: RowElem::Fp8 }, OperandData::Fp8(rows));
        let mut segments = vec![];
        for (n, tile_n) in &self.segments {
            let lanes = 128 / tile_n;
            let weights =
                (0..lanes).map(|_| g.matrix(*n, self.k, Format::FP8.with_packing(Packing::Fragment))).collect();
            let param = g.output(*n, RowElem::F32);
            let silu = |x| Box::new(Expr::Unary(UnaryOp::Silu, Box::new(x)));
            let expr = if lanes == 1 {
                Expr::Acc(0)
            } else {
                Expr::Binary(BinaryOp::Mul, silu(Expr::Acc(0)), Box::new(Expr::Acc(1)))
            };
            segments.push(Segment { n: *n, weights, tile_n: *tile_n, expr, store: Store::Rows { param, start: 0 } });
        }
        g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m: self.tile_m, k_parts: 1 }))
    }

    fn check(&self, targets: &[(&str, Variant)]) {
        self.check_in_parts(1, targets);
    }

    /// With so many blocks for each output tile.
    fn check_in_parts(&self, k_parts: usize, targets: &[(&str, Variant)]) {
        let mut case = self.case();
        let Body::Matmul(body) = &mut case.kernel.body else { unreachable!() };
        body.k_parts = k_parts;
        let mut want = case.operands.clone();
        eval_kernel(&case.kernel, &case.batch, &mut want).unwrap();
        for (name, variant) in targets {
            let target = find(name).unwrap();
            assert_eq!(matmul(&case.kernel, target).unwrap().variant, *variant, "{name}");
            self.compare(&case, &want, &case.run(&Compiler::new(), target));
        }
    }

    /// Both factors are exact in the tensor cores: `k` additions in f32 and two scales remain.
    fn compare(&self, case: &Case, want: &[OperandData<'_>], got: &[OperandData<'_>]) {
        let Body::Matmul(body) = &case.kernel.body else { unreachable!() };
        let x = codes(&case.operands[body.x]);
        let relative = 2f64.powi(-21) * (self.k as f64).sqrt();
        for s in &body.segments {
            let Store::Rows { param, .. } = s.store else { unreachable!() };
            let (OperandData::Rows(a), OperandData::Rows(b)) = (&want[param], &got[param]) else { unreachable!() };
            let mut w = vec![0f32; self.k];
            for j in 0..s.n {
                let sizes: Vec<Vec<f64>> = s
                    .weights
                    .iter()
                    .map(|p| {
                        let OperandData::Matrix(bytes) = &want[*p] else { unreachable!() };
                        unpack_row(Format::FP8.with_packing(Packing::Fragment), bytes, self.k, j, &mut w);
                        (0..self.m)
                            .map(|i| x.row(i).iter().zip(&w).map(|(a, b)| (a * f64::from(*b)).abs()).sum())
                            .collect()
                    })
                    .collect();
                let both = sizes.get(1);
                for (i, size) in sizes[0].iter().enumerate() {
                    let bound = relative * both.map_or(*size, |other| size * other[i] * 2.2);
                    let (a, b) = (f64::from(a.row(i)[j]), f64::from(b.row(i)[j]));
                    assert!(
                        (a - b).abs() <= bound + a.abs() * 2f64.powi(-22),
                        "row {i} column {j}: {b}, not {a}, allowed {bound:e}"
                    );
                }
            }
        }
    }
}

#[test]
fn products_of_few_rows() {
    let targets = [("sm90", Variant::Mma), ("sm89", Variant::Mma)];
    for (m, k, tile_m) in [(1, 64, 16), (5, 576, 16), (11, 100, 16), (40, 320, 32), (70, 192, 64)] {
        Product { m, k, segments: vec![(128, 128)], tile_m }.check(&targets);
        Product { m, k, segments: vec![(64, 64), (40, 64)], tile_m }.check(&targets);
    }
}

/// Tiles of 64 rows, and tiles in parts.
#[test]
fn products_of_some_rows() {
    let targets = [("sm90", Variant::WgmmaFp8)];
    for (m, tile_m, k, k_parts) in [(40, 64, 256, 1), (70, 64, 1024, 2), (130, 128, 1536, 3)] {
        Product { m, k, segments: vec![(128, 128), (72, 128)], tile_m }.check_in_parts(k_parts, &targets);
        Product { m, k, segments: vec![(64, 64), (40, 64)], tile_m }.check_in_parts(k_parts, &targets);
    }
}

#[test]
fn products_of_prompts() {
    let targets = [("sm90", Variant::WgmmaFp8), ("sm89", Variant::Mma)];
    for k in [128, 384, 1024] {
        Product { m: 130, k, segments: vec![(128, 128), (72, 128)], tile_m: 128 }.check(&targets);
        Product { m: 200, k, segments: vec![(64, 64), (40, 64)], tile_m: 128 }.check(&targets[..1]);
    }
    // Output tiles of two kinds, one after the other through the same ring: few and many stages, an
    // even and an odd number.
    for k in [256, 640] {
        let p = Product { m: 150, k, segments: vec![(128, 128), (72, 64), (136, 128)], tile_m: 128 };
        let s = matmul(&p.case().kernel, find("sm90").unwrap()).unwrap();
        assert_eq!((s.phases.len(), s.producers), (3, 4));
        p.check(&targets[..1]);
    }
    // A row of input tiles beyond the first eight.
    Product { m: 128 * 9 + 5, k: 128, segments: vec![(200, 128)], tile_m: 128 }.check(&targets[..1]);
    // No whole stages.
    Product { m: 130, k: 192, segments: vec![(128, 128)], tile_m: 128 }.check(&[("sm90", Variant::Mma)]);
}

/// The tensor cores of sm90 keep about 14 bits of a sum: every 128 columns it starts afresh, and
/// the sum so far is waited for and added in f32. The emulator, which adds exactly, would not
/// notice if it were not.
#[test]
fn sums_of_128_columns_are_added_in_f32() {
    let (compiler, target) = (Compiler::new(), find("sm90").unwrap());
    for k in [128, 256, 384, 1024] {
        let kernel = Product { m: 1, k, segments: vec![(128, 128)], tile_m: 128 }.case().kernel;
        let (source, gpu) = (llmcc_gpu::emit(&kernel, target).unwrap(), target.gpu().unwrap());
        let ptx = compiler.lower(&source.mlir, gpu.processor, gpu.ptx_for(&kernel), Stage::Ptx).unwrap();
        let chains: Vec<&str> = ptx.split("wgmma.fence").collect();
        // Two in the loop, and the last one or two.
        assert!((1..=4).contains(&(chains.len() - 1)), "{k}: {} chains", chains.len() - 1);
        for pair in chains.windows(2) {
            let (before, chain) = (pair[0], pair[1]);
            let last = before.rfind("setp.").map(|at| &before[at..]).unwrap_or_default();
            assert!(
                last.starts_with("setp.ne.b32 p, 0, 0;"),
                "the first step adds to what is in the registers: {last}"
            );
            let (steps, after) = chain.split_once("wgmma.commit_group").unwrap();
            let steps: Vec<&str> = steps.split("wgmma.mma_async").skip(1).collect();
            assert!(steps.len() == 4 && steps.iter().all(|s| s.contains("m64n128k32.f32.e4m3.e4m3")), "{k}: {steps:?}");
            assert!(
                steps[0].contains("setp.eq.b32 p, 0, 0;") && !steps[1..].iter().any(|s| s.contains("setp")),
                "{k}: {steps:?}"
            );
            let (between, added) =
                after.split_once("wgmma.wait_group.sync.aligned 0;").expect("products are waited for");
            assert!(
                !between.contains("add.rn.f32") && !between.contains("add.f32"),
                "{k}: sums are added before the products are there"
            );
            let adds = added.matches("add.rn.f32").count() + added.matches("add.f32").count();
            assert!(adds >= 64, "{k}: {adds} of 64 sums are added");
        }
    }
}

/// On tensor cores that cut terms at 13 bits below the largest of a step, the loss of a sum is at
/// most 33 terms' in each of the four steps of 128 columns, however many columns there are. In one
/// chain through all of them, the sum would outgrow the products until most of their bits were
/// lost: 3 % of it here.
#[test]
fn short_sums_lose_little() {
    let (compiler, target) = (Compiler::new(), find("sm90").unwrap());
    let mut case = Product { m: 3, k: 2048, segments: vec![(128, 128)], tile_m: 128 }.case();
    let Body::Matmul(body) = &case.kernel.body else { unreachable!() };
    let (x, w) = (body.x, body.segments[0].weights[0]);
    let Store::Rows { param: out, .. } = body.segments[0].store else { unreachable!() };
    // Nothing cancels.
    let OperandData::Fp8(rows) = &mut case.operands[x] else { unreachable!() };
    rows.codes.iter_mut().for_each(|c| *c &= 0x7f);
    let OperandData::Matrix(bytes) = &mut case.operands[w] else { unreachable!() };
    bytes.to_mut().iter_mut().for_each(|c| *c &= 0x7f);
    let mut want = case.operands.clone();
    eval_kernel(&case.kernel, &case.batch, &mut want).unwrap();
    let hopper = Options { short_fp8_sums: true, ..Options::default() };
    let (got, _) = Compiled::new(&case.kernel, &compiler, target).run_with(&case, 1, &hopper);
    let (OperandData::Rows(a), OperandData::Rows(b)) = (&want[out], &got[0][out]) else { unreachable!() };
    let lost = a.data.iter().zip(&b.data).map(|(a, b)| f64::from((a - b) / a)).fold(0.0, f64::max);
    assert!(lost > 0.0 && lost < 4.0 * 33.0 * 2f64.powi(-13), "{lost:.4} of a sum is lost");
}

/// Prompts of fp8 rows have tiles of at most 128 rows on sm90, whose registers hold two sets of sums.
#[test]
fn prompts_have_tiles_of_128_rows() {
    let kernel = Product { m: 1, k: 4096, segments: vec![(4096, 128)], tile_m: 128 }.case().kernel;
    let target = find("sm90").unwrap();
    for rows in [512, 2048, 8192] {
        assert_eq!(matmul_tiles(&kernel, target, rows).map(|t| t.rows), Some(128), "{rows} rows");
    }
}

#[test]
fn snapshot() {
    let case = Product { m: 1, k: 256, segments: vec![(128, 128)], tile_m: 128 }.case();
    let mlir = llmcc_gpu::emit(&case.kernel, find("sm90").unwrap()).unwrap().mlir;
    insta::assert_snapshot!("matmul_wgmma_fp8", folded(&mlir));
}

/// Products of Llama models of 1 and 8 billion parameters through `ptxas`, where it is: nothing is
/// spilled, and prompts on sm90 are multiplied by the fp8 `wgmma`.
#[test]
fn llama_shapes_assemble() {
    let Some(ptxas) = Ptxas::find() else { return };
    let compiler = Compiler::new();
    let sizes = [(2048, 8192), (4096, 14336)];
    for (name, tile_m) in
        [("sm89", 16), ("sm89", 128), ("sm90", 16), ("sm90", 64), ("sm90", 128), ("sm100", 16), ("sm100", 128)]
    {
        let target = find(name).unwrap();
        let gpu = target.gpu().unwrap();
        for (hidden, ffn) in sizes.into_iter().take(if name == "sm90" { 2 } else { 1 }) {
            for (k, n, lanes) in [(hidden, hidden, 1), (hidden, ffn, 2), (ffn, hidden, 1)] {
                let format = Format::FP8.with_packing(Packing::Fragment);
                let mut g = step_of(1, 1);
                let x = g.push(
                    ParamKind::Rows { rows: Dim::Tokens, cols: k, elem: RowElem::Fp8 },
                    OperandData::Fp8(Fp8Rows::poisoned(1, k)),
                );
                let matrix =
                    |g: &mut Gen| g.push(ParamKind::Matrix { n, k, format }, OperandData::Matrix(Cow::Borrowed(&[])));
                let weights = (0..lanes).map(|_| matrix(&mut g)).collect();
                let param = g.output(n, RowElem::F32);
                let acc = |l| Box::new(Expr::Acc(l));
                let expr = if lanes == 1 { Expr::Acc(0) } else { Expr::Binary(BinaryOp::Mul, acc(0), acc(1)) };
                let segments =
                    vec![Segment { n, weights, tile_n: 128 / lanes, expr, store: Store::Rows { param, start: 0 } }];
                let kernel = g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m, k_parts: 1 })).kernel;
                let source = llmcc_gpu::emit(&kernel, target).unwrap();
                let ptx = compiler.lower(&source.mlir, gpu.processor, gpu.ptx_for(&kernel), Stage::Ptx).unwrap();
                let done = ptxas.assemble(&ptx, gpu.processor).unwrap();
                let place = format!("{name} tile_m {tile_m} k {k} n {n}");
                assert!(
                    done.spills == [0; 3] && done.warnings.is_empty(),
                    "{place}: {:?} {:?}",
                    done.spills,
                    done.warnings
                );
                let resident = done.resident(gpu, source.threads, source.shared);
                assert!(
                    resident >= wanted_resident(&ptx).max(1),
                    "{place}: {} registers, {resident} blocks fit",
                    done.registers
                );
                let sass = disassemble(&done.cubin).unwrap();
                let wanted = match (name, tile_m) {
                    ("sm90", 64..) => "QGMMA",
                    // The assembler widens e4m3 to f16 for sm100's `mma.sync`; that processor
                    // multiplies e4m3 itself only with `tcgen05`.
                    ("sm90" | "sm100", _) => "HMMA",
                    _ => "QMMA",
                };
                assert!(
                    sass.contains(wanted),
                    "{place}: no {wanted}: {:?}",
                    sass.lines().filter(|l| l.contains("MMA")).take(3).collect::<Vec<_>>()
                );
                println!(
                    "{place}: {} registers, {} shared, {resident} blocks, {wanted}",
                    done.registers, source.shared
                );
            }
        }
    }
}
