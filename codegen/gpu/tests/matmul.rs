//! Products through the emulator against the evaluator: every format, odd sizes, prologues, cut
//! tiles.

mod support;

use llmcc_gpu::assembler::{Ptxas, wanted_resident};
use llmcc_gpu::llvm::Compiler;
use llmcc_gpu::worker::Stage;
use llmcc_ir::eval::{OperandData, Rows};
use llmcc_ir::gpu::schedule::{self, Input, Variant};
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Kernel, Matmul, Norm, ParamKind, Prologue, RowElem, Segment, Store};
use llmcc_ir::quant::{Code, Format, Packing, unpack_row};
use llmcc_ir::target::{TargetSpec, find};
use llmcc_ir::ty::Dim;
use std::borrow::Cow;
use support::{Case, Emulated, Gen, step_of};

/// What a product is made of.
#[derive(Clone)]
struct Product {
    m: usize,
    k: usize,
    /// Columns and tile of each segment.
    segments: Vec<(usize, usize)>,
    lanes: usize,
    format: Format,
    /// Of the segments after the first, if another.
    later: Option<Format>,
    /// Storage of the input, and prologue.
    x: RowElem,
    prologue: Option<(bool, bool, RowElem)>,
    tile_m: usize,
    /// Storage of the outputs.
    out: RowElem,
}

impl Product {
    fn new(m: usize, n: usize, k: usize, format: &str, x: RowElem) -> Product {
        let format = Format::parse(format).unwrap().with_packing(Packing::Fragment);
        Product {
            m,
            k,
            segments: vec![(n, 16)],
            lanes: 1,
            format,
            later: None,
            x,
            prologue: None,
            tile_m: 8,
            out: RowElem::F32,
        }
    }

    fn elem(&self) -> RowElem {
        self.prologue.map_or(self.x, |p| p.2)
    }

    fn input(&self, g: &mut Gen) -> usize {
        if self.x == RowElem::F32 { g.input(Dim::Tokens, self.k) } else { g.input_half(self.k, self.x) }
    }

    /// The kernel with its operands.
    fn case(&self) -> Case {
        self.case_with(|g, n, format| g.matrix(n, self.k, format))
    }

    /// The kernel alone.
    fn kernel(&self) -> Kernel {
        let empty = |g: &mut Gen, n, format| {
            g.push(ParamKind::Matrix { n, k: self.k, format }, OperandData::Matrix(Cow::Borrowed(&[])))
        };
        self.case_with(empty).kernel
    }

    fn case_with(&self, matrix: impl Fn(&mut Gen, usize, Format) -> usize) -> Case {
        let mut g = step_of((self.k as u64) << 20 ^ self.m as u64, self.m);
        let x = self.input(&mut g);
        let prologue = self.prologue.map(|(norm, gain, elem)| {
            let gain = gain.then(|| g.vector(self.k));
            Prologue { norm: norm.then_some(Norm::rms(1e-5, self.k)), gain, bias: None, elem }
        });
        let mut segments = vec![];
        for (i, (n, tile_n)) in self.segments.iter().enumerate() {
            let format = self.later.filter(|_| i > 0).unwrap_or(self.format);
            let weights = (0..self.lanes).map(|_| matrix(&mut g, *n, format)).collect();
            let param = g.output(*n, self.out);
            let expr = match self.lanes {
                1 => Expr::Acc(0),
                _ => Expr::Binary(
                    BinaryOp::Mul,
                    Box::new(Expr::Unary(UnaryOp::Silu, Box::new(Expr::Acc(0)))),
                    Box::new(Expr::Acc(1)),
                ),
            };
            segments.push(Segment { n: *n, weights, tile_n: *tile_n, expr, store: Store::Rows { param, start: 0 } });
        }
        g.case(Body::Matmul(Matmul { x, prologue, segments, tile_m: self.tile_m }))
    }
}

/// What rounding the weights to the tensor cores' input costs, relative to each.
fn weight_error(case: &Product) -> f64 {
    let e = case.format.encoding();
    // fp8 fits in both, and its scales multiply the sums; so do those of groups that have whole
    // units, where sums of a unit are kept apart.
    let sums = case.tile_m <= 8 && !e.has_minimum() && e.group().is_none_or(|group| group >= 64);
    let fits = schedule::is_fp8(case.format) || sums && !matches!(e.code, Code::Table { .. });
    match case.elem() {
        _ if fits || !schedule::has_operands(case.format) => 0.0,
        // The scale rounds too, or the number of a table.
        RowElem::Bf16 => 2f64.powi(-8),
        RowElem::F16 => 2f64.powi(-11),
        _ => 0.0,
    }
}

fn check_on(product: &Product, target: &TargetSpec) {
    let case = product.case();
    compare(product, &case.kernel, &case.expected(), &case.run(&Compiler::new(), target));
}

/// Error of a sum of products relative to the sum of their magnitudes: rounded weights
/// ([`weight_error`]), input that the prologue rounds differently where it differs in the last bit
/// of f32, and `k` additions in f32.
fn relative_error(case: &Product) -> f64 {
    let input = match case.prologue.map(|p| p.2) {
        Some(RowElem::Bf16) => 2f64.powi(-11),
        Some(RowElem::F16) => 2f64.powi(-14),
        _ => 0.0,
    };
    weight_error(case) + input + 2f64.powi(-22) * (case.k as f64).sqrt()
}

/// Σ|x·w| for each row of input, with the input as it is before the prologue; a normalized input is
/// 1.3 times as large as those of [`Gen`].
fn magnitudes(case: &Product, x: &Rows, w: &[f32]) -> Vec<f64> {
    let grow = if case.prologue.is_some_and(|p| p.0) { 2.0 } else { 1.0 };
    (0..case.m).map(|i| x.row(i).iter().zip(w).map(|(a, b)| f64::from(a * b).abs()).sum::<f64>() * grow).collect()
}

fn compare(case: &Product, kernel: &Kernel, want: &[OperandData<'_>], got: &[OperandData<'_>]) {
    let Body::Matmul(body) = &kernel.body else { unreachable!() };
    let OperandData::Rows(x) = &want[0] else { unreachable!() };
    let relative = relative_error(case);
    let store = if case.out == RowElem::F32 { 2f64.powi(-22) } else { 2f64.powi(-7) };
    for s in &body.segments {
        let Store::Rows { param, .. } = s.store else { unreachable!() };
        let (OperandData::Rows(want_y), OperandData::Rows(got_y)) = (&want[param], &got[param]) else { unreachable!() };
        let mut w = vec![0f32; case.k];
        for j in 0..s.n {
            let lane = |p: &usize| {
                let OperandData::Matrix(bytes) = &want[*p] else { unreachable!() };
                let ParamKind::Matrix { format, .. } = kernel.params[*p].kind else { unreachable!() };
                unpack_row(format, bytes, case.k, j, &mut w);
                magnitudes(case, x, &w)
            };
            let lanes: Vec<Vec<f64>> = s.weights.iter().map(lane).collect();
            for (i, first) in lanes[0].iter().enumerate() {
                // silu(a)·b: each factor's error times the other, at most; the slope of silu is
                // below 1.1.
                let bound = relative * if case.lanes == 2 { first * lanes[1][i] * 2.2 } else { *first };
                let (a, b) = (want_y.row(i)[j], got_y.row(i)[j]);
                let off = f64::from(a - b).abs();
                assert!(
                    off <= bound + f64::from(a).abs() * store,
                    "row {i} column {j}: {b}, not {a}: off by {off}, allowed {bound}"
                );
            }
        }
    }
}

fn check(product: &Product) {
    check_on(product, find("sm90").unwrap());
}

/// A target of so few multiprocessors that tiles must be shared out and cut at small sizes.
fn small(sms: u32) -> TargetSpec {
    let mut target = *find("sm90").unwrap();
    if let llmcc_ir::target::Arch::Gpu(gpu) = &mut target.arch {
        gpu.sms = sms;
    }
    // Nothing costs anything to launch, so that cutting always pays.
    target.launch = 0.0;
    target
}

const FORMATS: [&str; 10] = ["w4g32", "w4g64", "w4g128", "w4ag32", "w4ag64", "w8g32", "w8g128", "fp8", "f16", "bf16"];

#[test]
fn w4_by_one_row() {
    check(&Product::new(1, 64, 256, "w4g64", RowElem::F16));
}

#[test]
fn all_formats_by_few_rows() {
    for format in FORMATS {
        for elem in [RowElem::F16, RowElem::Bf16] {
            check(&Product::new(3, 40, 320, format, elem));
        }
    }
}

/// Formats that checkpoints have: tensor cores multiply them, as long as rows are of 16 bits. By f32
/// rows, and where there is no code for them, those without factors of f16 are decoded number by
/// number, which the schedule says.
#[test]
fn formats_of_checkpoints() {
    for format in llmcc_test_support::newcomers() {
        let format = format.with_packing(Packing::Fragment);
        for (m, k, elem) in [(3, 320, RowElem::Bf16), (1, 576, RowElem::F32), (10, 100, RowElem::F16)] {
            let product = Product { format, ..Product::new(m, 40, k, "f32", elem) };
            let schedule = schedule::matmul(&product.kernel(), find("sm90").unwrap()).unwrap();
            let cores = elem != RowElem::F32 && schedule::has_operands(format);
            assert_eq!(schedule.variant == Variant::Gemv, cores, "{format}");
            let by_number = !cores && !schedule::has_half_factors(format);
            assert_eq!(schedule.slow.is_some(), by_number, "{format}");
            check(&product);
        }
    }
}

/// The 4-bit ones among them have tensor cores, as do all that are integers.
#[test]
fn formats_that_tensor_cores_multiply() {
    let slow = ["iq2", "iq3", "iq3s"];
    for name in ["nf4", "fp4", "q4k", "iq4nl", "iq4xs", "mxfp4", "nvfp4", "w4zg64", "q6k", "q8k", "fp8b", "ternaryr"] {
        assert!(schedule::has_operands(Format::parse(name).unwrap()), "{name}");
    }
    let without = llmcc_test_support::newcomers().into_iter().filter(|f| !schedule::has_operands(*f));
    for format in without {
        assert!(slow.contains(&&*format.to_string()), "{format}");
    }
}

/// Their tiles of many rows, by `mma.sync` and by `wgmma`.
#[test]
fn tiles_of_formats_of_checkpoints() {
    for (i, format) in llmcc_test_support::newcomers().into_iter().enumerate() {
        let format = format.with_packing(Packing::Fragment);
        if !schedule::has_operands(format) {
            continue;
        }
        let elem = [RowElem::F16, RowElem::Bf16][i % 2];
        for (tile_m, m, k) in [(32, 9, 192), (128, 70, 320)] {
            let product = Product { format, tile_m, segments: vec![(136, 128)], ..Product::new(m, 0, k, "f32", elem) };
            let variant = schedule::matmul(&product.kernel(), find("sm90").unwrap()).unwrap().variant;
            assert_eq!(variant, if tile_m == 128 { Variant::Wgmma } else { Variant::Mma }, "{format}");
            check(&product);
        }
    }
}

#[test]
fn more_rows_than_a_block_takes() {
    check(&Product::new(19, 33, 192, "w4g32", RowElem::F16));
}

#[test]
fn columns_that_are_no_whole_units() {
    for k in [63, 100, 72] {
        check(&Product::new(2, 32, k, "w4g32", RowElem::F16));
        check(&Product::new(2, 32, k, "f32", RowElem::F32));
    }
}

#[test]
fn f32_products() {
    for (format, elem) in [
        ("f32", RowElem::F32),
        ("w4g64", RowElem::F32),
        ("fp8", RowElem::F32),
        ("f32", RowElem::F16),
        ("bf16", RowElem::F32),
        ("bf16", RowElem::F16),
    ] {
        check(&Product::new(3, 24, 256, format, elem));
    }
}

#[test]
fn prologues() {
    for (norm, gain) in [(true, true), (true, false), (false, true), (false, false)] {
        for elem in [RowElem::F16, RowElem::F32] {
            if (norm, gain, elem) == (false, false, RowElem::F32) {
                continue;
            }
            let mut case = Product::new(3, 32, 256, "w4g64", RowElem::F32);
            case.prologue = Some((norm, gain, elem));
            check(&case);
        }
    }
}

#[test]
fn lanes_and_segments() {
    let mut case = Product::new(4, 64, 256, "w4g64", RowElem::F16);
    case.lanes = 2;
    check(&case);
    case.lanes = 1;
    case.segments = vec![(128, 64), (64, 64), (48, 64)];
    check(&case);
    case.segments = vec![(128, 64), (64, 32), (40, 16)];
    check(&case);
}

#[test]
fn tiles_cut_between_blocks() {
    for sms in [1, 3, 5] {
        let mut case = Product::new(5, 100, 512, "w4g64", RowElem::F16);
        check_on(&case, &small(sms));
        case.segments = vec![(128, 64), (64, 64)];
        case.lanes = 2;
        check_on(&case, &small(sms));
    }
}

/// Input of which some rows fit in shared memory beside the weights: as many as do, and one more,
/// which all are read from where they are.
#[test]
fn input_that_fits_for_some_rows() {
    for (k, format, elem) in
        [(4096, "w4g128", RowElem::Bf16), (4096, "bf16", RowElem::Bf16), (14336, "w4g32", RowElem::F16)]
    {
        let of = |m| Product::new(m, 16, k, format, elem);
        let schedule = schedule::matmul(&of(1).kernel(), find("sm90").unwrap()).unwrap();
        let Input::Fitting(most) = schedule.input else { panic!("{k} {format}: {:?}", schedule.input) };
        assert!((1..8).contains(&most), "{k} {format}: {most} rows");
        for m in [1, most, most + 1] {
            check(&of(m));
        }
    }
    // All that there may be, if they fit.
    let all =
        schedule::matmul(&Product::new(1, 16, 2048, "w4g128", RowElem::F16).kernel(), find("sm90").unwrap()).unwrap();
    assert_eq!(all.input, Input::Whole);
}

/// Of few rows, warps with the same strips share out the columns of the input; where they cannot,
/// its rows.
#[test]
fn strips_that_are_decoded_once() {
    let depth = |case: &Product, target: &TargetSpec| schedule::matmul(&case.kernel(), target).unwrap().depth;
    for (tile_m, m, k) in [(16, 3, 512), (16, 20, 384), (32, 29, 256)] {
        for (format, elem) in [
            ("w4g64", RowElem::F16),
            ("w4ag32", RowElem::Bf16),
            ("w8g128", RowElem::F16),
            ("fp8", RowElem::Bf16),
            ("bf16", RowElem::Bf16),
        ] {
            let mut case =
                Product { tile_m, segments: vec![(128, 128), (72, 128)], ..Product::new(m, 0, k, format, elem) };
            assert_eq!(depth(&case, find("sm90").unwrap()), 2);
            check(&case);
            case.segments = vec![(64, 64), (40, 64)];
            case.lanes = 2;
            check(&case);
        }
    }
    // Cut between blocks.
    for sms in [1, 3, 4] {
        let case = Product {
            tile_m: 32,
            segments: vec![(128, 128), (112, 128)],
            ..Product::new(45, 0, 768, "w4g32", RowElem::F16)
        };
        assert!(schedule::matmul(&case.kernel(), &small(sms)).unwrap().phases[0].cut == (sms > 1));
        assert_eq!(depth(&case, &small(sms)), 2);
        check_on(&case, &small(sms));
    }
    let odd = Product { tile_m: 32, segments: vec![(128, 128)], ..Product::new(9, 0, 192, "w4g32", RowElem::F16) };
    assert_eq!(depth(&odd, find("sm90").unwrap()), 1);
}

#[test]
fn tiles_of_many_rows() {
    for (tile_m, m) in [(16, 11), (32, 40), (64, 70), (128, 130)] {
        for (format, elem) in [
            ("w4g64", RowElem::F16),
            ("w4ag32", RowElem::Bf16),
            ("w8g128", RowElem::F16),
            ("fp8", RowElem::Bf16),
            ("bf16", RowElem::Bf16),
        ] {
            let mut case = Product { tile_m, segments: vec![(128, 128)], ..Product::new(m, 0, 192, format, elem) };
            check(&case);
            case.segments = vec![(64, 64), (40, 64)];
            case.lanes = 2;
            check(&case);
        }
    }
}

/// The same sizes go to `mma.sync` on one target and to `wgmma` on the other.
#[test]
fn tiles_by_mma_and_wgmma() {
    for (tile_m, m) in [(128, 130), (256, 200)] {
        for (format, elem) in [
            ("w4g64", RowElem::F16),
            ("w4ag32", RowElem::Bf16),
            ("w8g128", RowElem::F16),
            ("fp8", RowElem::Bf16),
            ("bf16", RowElem::Bf16),
        ] {
            let mut case =
                Product { tile_m, segments: vec![(128, 128), (72, 128)], ..Product::new(m, 0, 256, format, elem) };
            check(&case);
            case.segments = vec![(64, 64), (40, 64)];
            case.lanes = 2;
            check(&case);
            if tile_m == 128 {
                check_on(&case, find("sm80").unwrap());
            }
        }
    }
}

/// The pipeline of `wgmma` kernels: fewer units than stages, one more, an odd number, many turns of
/// the ring; blocks in groups of tiles of rows.
#[test]
fn pipelines_of_wgmma() {
    for (i, k) in [64, 128, 320, 448, 1088].into_iter().enumerate() {
        let (format, elem) =
            [("w4g32", RowElem::Bf16), ("f16", RowElem::F16), ("w8g32", RowElem::F16), ("w4ag64", RowElem::F16)][i % 4];
        check(&Product { tile_m: 128, segments: vec![(136, 128)], ..Product::new(77, 0, k, format, elem) });
    }
    for (format, elem) in [("bf16", RowElem::Bf16), ("w4g128", RowElem::F16), ("w8g64", RowElem::Bf16)] {
        check(&Product { tile_m: 256, segments: vec![(104, 128)], ..Product::new(259, 0, 704, format, elem) });
    }
    let rows = Product {
        tile_m: 128,
        segments: vec![(128, 128), (200, 128)],
        ..Product::new(128 * 9 + 5, 0, 64, "w4g64", RowElem::F16)
    };
    check(&rows);
}

/// Segments of different formats are tiles of their own, which a block computes one after the other
/// through the same ring.
#[test]
fn pipelines_through_several_tiles() {
    for (tile_m, formats) in [(128, ["w4g64", "f16"]), (256, ["w8g32", "f16"]), (128, ["w4ag32", "w4g128"])] {
        let later = Some(Format::parse(formats[1]).unwrap().with_packing(Packing::Fragment));
        let two = Product {
            tile_m,
            segments: vec![(128, 128), (160, 128)],
            later,
            ..Product::new(150, 0, 320, formats[0], RowElem::F16)
        };
        let s = schedule::matmul(&two.kernel(), find("sm90").unwrap()).unwrap();
        assert_eq!((s.phases.len(), s.producers), (2, 4));
        check(&two);
    }
}

#[test]
fn tiles_of_many_rows_cut_between_blocks() {
    for sms in [1, 2, 3] {
        let case = Product {
            tile_m: 32,
            segments: vec![(128, 64), (112, 64)],
            ..Product::new(45, 0, 320, "w4g32", RowElem::F16)
        };
        check_on(&case, &small(sms));
    }
}

/// One small kernel per variant, as MLIR.
#[test]
fn snapshots() {
    let target = find("sm90").unwrap();
    let small = |tile_m, tile_n, format, elem| Product {
        tile_m,
        segments: vec![(tile_n, tile_n)],
        ..Product::new(1, 0, 128, format, elem)
    };
    for (name, case) in [
        ("stream", small(8, 16, "w4g64", RowElem::F16)),
        ("mma", small(16, 32, "w8g64", RowElem::Bf16)),
        ("wgmma", small(128, 128, "bf16", RowElem::Bf16)),
    ] {
        insta::assert_snapshot!(format!("matmul_{name}"), llmcc_gpu::emit(&case.kernel(), target).unwrap().mlir);
    }
}

/// Products of Llama models of 1 and 8 billion parameters, for one token.
fn llama(format: &str, tile_m: usize) -> Vec<Product> {
    let mut out = vec![];
    for (hidden, head, kv, ffn) in [(2048, 64, 512, 8192), (4096, 128, 1024, 14336)] {
        let case = |n: usize, k: usize, tile_n: usize| Product {
            tile_m,
            segments: vec![(n, tile_n)],
            ..Product::new(1, n, k, format, RowElem::F16)
        };
        let normed = |c: Product| {
            if tile_m > 8 { c } else { Product { x: RowElem::F32, prologue: Some((true, true, RowElem::F16)), ..c } }
        };
        let wide = |n: usize| if tile_m > 8 { 128 } else { n };
        let qkv = vec![(hidden, wide(head)), (kv, wide(head)), (kv, wide(head))];
        out.push(normed(Product { segments: qkv, ..case(hidden, hidden, head) }));
        out.push(case(hidden, hidden, wide(16)));
        out.push(normed(Product { lanes: 2, out: RowElem::F16, ..case(ffn, hidden, wide(32) / 2) }));
        out.push(case(hidden, ffn, wide(16)));
        out.push(case(128_256, hidden, wide(64)));
    }
    out
}

/// With `ptxas` at hand: no kernel spills, and as many blocks fit on a multiprocessor as the
/// schedule counts on.
#[test]
fn llama_shapes_assemble() {
    let Some(ptxas) = Ptxas::find() else { return };
    let only = std::env::var("LLMCC_ONLY").unwrap_or_default();
    for target in ["sm80", "sm86", "sm89", "sm90", "sm100"].iter().filter(|t| t.contains(&only)) {
        let target = find(target).unwrap();
        let gpu = target.gpu().unwrap();
        let wanted = std::env::var("LLMCC_TILE_M").ok().and_then(|t| t.parse::<usize>().ok());
        for (format, tile_m) in [
            ("w4g64", 8),
            ("w4g32", 8),
            ("w8g64", 8),
            ("fp8", 8),
            ("bf16", 8),
            ("q4k", 8),
            ("nf4", 8),
            ("mxfp4", 8),
            ("w4g64", 64),
            ("q4k", 64),
            ("w4g64", 128),
            ("q4k", 128),
            ("nf4", 128),
            ("fp8", 128),
            ("bf16", 128),
            ("w4g64", 256),
            ("bf16", 256),
        ] {
            // A tile of 256 rows is for sm90 only; elsewhere it would have too many sums.
            if wanted.is_some_and(|t| t != tile_m) || tile_m == 256 && gpu.sm != 90 {
                continue;
            }
            // The smaller model's, in two formats, on the other targets: five hundred kernels would
            // take minutes.
            let cases = llama(format, tile_m).into_iter().take(if gpu.sm == 90 { 10 } else { 5 });
            if gpu.sm != 90 && !["w4g64", "bf16"].contains(&format) {
                continue;
            }
            for case in cases {
                let case = if format == "bf16" { to_bf16(case) } else { case };
                let source = llmcc_gpu::emit(&case.kernel(), target).unwrap();
                let ptx = Compiler::new().lower(&source.mlir, gpu.processor, gpu.ptx, Stage::Ptx).unwrap();
                let done = ptxas.assemble(&ptx, gpu.processor).unwrap();
                let name = format!("{} {format} tile_m {tile_m} {:?} k {}", target.name, case.segments, case.k);
                assert!(
                    done.spills == [0; 3] && done.warnings.is_empty(),
                    "{name}: {:?} {:?}",
                    done.spills,
                    done.warnings
                );
                let (resident, wanted) = (done.resident(gpu, source.threads, source.shared), wanted_resident(&ptx));
                println!(
                    "{name}: {} registers, {} bytes shared, {resident} blocks of {wanted}",
                    done.registers, source.shared
                );
                assert!(resident >= wanted, "{name}: {} registers, {resident} blocks of {wanted} fit", done.registers);
            }
        }
    }
}

fn to_bf16(case: Product) -> Product {
    let half = |e| if e == RowElem::F16 { RowElem::Bf16 } else { e };
    Product { x: half(case.x), out: half(case.out), prologue: case.prologue.map(|(n, g, e)| (n, g, half(e))), ..case }
}
