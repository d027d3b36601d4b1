//! The skeletons of kernels of all forms: the recording is in order, and nothing in it can be left
//! out.

#[path = "skeletons/left_out.rs"]
mod left_out;

use left_out::unnoticed;
use llmcc_codegen::CodegenError;
use llmcc_gpu::{Source, emit};
use llmcc_ir::gpu::program::Program;
use llmcc_ir::gpu::schedule::{self, Variant};
use llmcc_ir::gpu::verify::verify_program;
use llmcc_ir::graph::{BinaryOp, F32};
use llmcc_ir::kernel::{
    Attention, Body, Expr, Kernel, Matmul, Norm, Param, ParamKind, RowElem, RowNorm, Segment, Store, TopK,
};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::quant::{Format, Packing};
use llmcc_ir::target::{TargetSpec, find};
use llmcc_ir::ty::Dim;
use llmcc_test_support::Rng;

fn kernel(kinds: Vec<ParamKind>, body: Body) -> Kernel {
    let params = kinds.into_iter().enumerate().map(|(i, kind)| Param { name: format!("p{i}"), kind }).collect();
    Kernel { name: "k".into(), rows: Dim::Tokens, params, body }
}

fn rows(cols: usize, elem: RowElem) -> ParamKind {
    ParamKind::Rows { rows: Dim::Tokens, cols, elem }
}

/// A product with `n` columns.
fn product(format: &str, elem: RowElem, tile_m: usize, (n, k): (usize, usize)) -> Kernel {
    let format = Format::parse(format).unwrap().with_packing(Packing::Fragment);
    let kinds = vec![rows(k, elem), ParamKind::Matrix { n, k, format }, rows(n, RowElem::F32)];
    let tile_n = if tile_m > 8 { 128 } else { 32 };
    let store = Store::Rows { param: 2, start: 0 };
    let segments = vec![Segment { n, weights: vec![1], tile_n, expr: Expr::Acc(0), store }];
    kernel(kinds, Body::Matmul(Matmul { x: 0, prologue: None, segments, tile_m, k_parts: 1 }))
}

/// Attention over heads of one size.
fn attention(dtype: KvDType, head_dim: usize, tile_m: usize) -> Kernel {
    let (key_dim, value_dim) = (head_dim, head_dim);
    over(
        KvSpec { dtype, kv_heads: 2, key_dim, value_dim, latent: false, window: None, every: 1, first: None },
        8,
        tile_m,
    )
}

/// Attention over any cache.
fn over(spec: KvSpec, heads: usize, tile_m: usize) -> Kernel {
    let rows = |of_head: usize| rows(heads * of_head, RowElem::F32);
    let q = if spec.latent { spec.value_dim } else { spec.key_dim };
    let mut kinds = vec![rows(q), ParamKind::State(spec.into()), rows(spec.value_dim)];
    kinds.extend(spec.latent.then(|| rows(spec.own_dim())));
    let own = spec.latent.then_some(3);
    let body = Attention { own, tile_m, ..Attention::usual([0, 1, 2], heads, F32::new(0.1)) };
    kernel(kinds, Body::Attention(body))
}

fn source(kernel: &Kernel, target: &str) -> Source {
    source_on(kernel, find(target).unwrap())
}

fn source_on(kernel: &Kernel, target: &TargetSpec) -> Source {
    let source = emit(kernel, target).unwrap_or_else(|e| panic!("{}: {e}", target.name));
    assert_eq!(verify_program(&source.program), [], "{}: {}", target.name, source.program);
    source
}

/// The skeleton of every variant is in order, whether lanes copy for themselves or, scales, for
/// each other.
#[test]
fn skeletons_are_in_order() {
    let mut seen = vec![];
    for (format, elem) in [
        ("w4g32", RowElem::F16),
        ("w4ag64", RowElem::Bf16),
        ("bf16", RowElem::Bf16),
        ("fp8", RowElem::Bf16),
        ("f32", RowElem::F32),
        ("fp8", RowElem::Fp8),
    ] {
        for (tile_m, k) in [(8, 256), (8, 14336), (32, 512), (128, 512), (256, 512)] {
            for target in ["sm80", "sm86", "sm89", "sm90"] {
                // fp8 rows are multiplied in tiles, where there is an instruction for them.
                let fp8 = elem == RowElem::Fp8;
                if tile_m == 256 && (target != "sm90" || fp8)
                    || fp8 && (tile_m == 8 || ["sm80", "sm86"].contains(&target))
                {
                    continue;
                }
                let kernel = product(format, elem, tile_m, (1024, k));
                let source = source(&kernel, target);
                assert!(!source.program.buffers.is_empty());
                seen.push(schedule::matmul(&kernel, find(target).unwrap()).unwrap().variant);
            }
        }
    }
    assert!(
        [Variant::Gemv, Variant::Fma, Variant::Mma, Variant::Wgmma, Variant::WgmmaFp8].iter().all(|v| seen.contains(v))
    );
}

/// So are the skeletons of attention, in all its forms, of row norms and of the most probable
/// tokens.
#[test]
fn skeletons_of_other_kernels_are_in_order() {
    for dtype in [KvDType::F16, KvDType::Bf16, KvDType::Int8, KvDType::F32] {
        for (d, tile_m) in [16, 64, 80, 128, 256].into_iter().flat_map(|d| [1, 8, 32].map(|m| (d, m))) {
            for target in ["sm80", "sm90"] {
                let source = source(&attention(dtype, d, tile_m), target);
                assert!(!source.program.buffers.is_empty(), "{dtype:?} {d} {tile_m} {target}");
            }
        }
    }
    for (key_dim, value_dim, latent) in [(576, 512, true), (512, 512, false), (192, 128, false)] {
        for target in ["sm80", "sm86", "sm90"] {
            let spec = KvSpec {
                dtype: KvDType::Bf16,
                kv_heads: 1,
                key_dim,
                value_dim,
                latent,
                window: None,
                every: 1,
                first: None,
            };
            assert!(!source(&over(spec, 16, 1), target).program.buffers.is_empty());
        }
    }
    let norm = Some(Norm::rms(1e-5, 4096));
    for elem in [RowElem::Bf16, RowElem::Fp8] {
        let body = Body::RowNorm(RowNorm { norm, ..RowNorm::plain(0, 1) });
        let source = source(&kernel(vec![rows(4096, RowElem::F32), rows(4096, elem)], body), "sm90");
        assert!(!source.program.buffers.is_empty());
    }
    let top = |vocab| {
        let logits = |cols| ParamKind::Rows { rows: Dim::Rows, cols, elem: RowElem::F32 };
        let k = kernel(vec![logits(vocab), logits(129)], Body::TopK(TopK { x: 0, k: 64, out: 1 }));
        Kernel { rows: Dim::Rows, ..k }
    };
    for vocab in [1000, 128256] {
        assert!(!source(&top(vocab), "sm90").program.buffers.is_empty());
    }
}

/// A product with segments of one matrix and of two: two output tiles of a block, of different
/// kinds, through the same ring.
fn two_phases(format: &str, elem: RowElem, tile_m: usize, k: usize) -> Kernel {
    let mut kernel = product(format, elem, tile_m, (1024, k));
    let Body::Matmul(body) = &mut kernel.body else { unreachable!() };
    let product = Expr::Binary(BinaryOp::Mul, Box::new(Expr::Acc(0)), Box::new(Expr::Acc(1)));
    body.segments.push(Segment {
        n: 512,
        weights: vec![3, 4],
        tile_n: 64,
        expr: product,
        store: Store::Rows { param: 5, start: 0 },
    });
    let format = Format::parse(format).unwrap().with_packing(Packing::Fragment);
    let matrix = ParamKind::Matrix { n: 512, k, format };
    let kinds = [matrix.clone(), matrix, rows(512, RowElem::F32)];
    kernel.params.extend(kinds.into_iter().enumerate().map(|(i, kind)| Param { name: format!("p{}", i + 3), kind }));
    kernel
}

/// A product of two random segments, whose weights, widths and stores are their own.
fn random_segments(seed: u64) -> (Kernel, &'static str) {
    let mut r = Rng::new(seed);
    let tile_m = r.pick(&[8, 8, 32, 128]);
    let elem = r.pick(&[RowElem::F16, RowElem::Bf16, RowElem::F32]);
    let formats: &[&str] = match elem {
        RowElem::F32 => &["f32"],
        RowElem::F16 => &["w4g32", "w8g32", "w4ag64", "fp8"],
        _ => &["w4g32", "w4ag64", "bf16", "fp8"],
    };
    let k = r.pick(&[128, 256, 512, 2048]);
    let (mut kinds, mut segments) = (vec![rows(k, elem)], vec![]);
    for lanes in [r.below(1, 3), r.below(1, 3)] {
        let n = 64 * r.below(1, 40);
        let lanes_from = kinds.len();
        for _ in 0..lanes {
            let format = Format::parse(r.pick(formats)).unwrap().with_packing(Packing::Fragment);
            kinds.push(ParamKind::Matrix { n, k, format });
        }
        let param = kinds.len();
        kinds.push(rows(n, r.pick(&[RowElem::F32, RowElem::F16, RowElem::Bf16])));
        let acc = |i| Expr::Acc(i);
        let product = Expr::Binary(BinaryOp::Mul, Box::new(acc(0)), Box::new(acc(lanes - 1)));
        let tile_n = if tile_m > 8 { 128 / lanes } else { r.pick(&[16, 32, 64]) };
        let (weights, store) = ((lanes_from..param).collect(), Store::Rows { param, start: 0 });
        segments.push(Segment { n, weights, tile_n, expr: if lanes == 1 { acc(0) } else { product }, store });
    }
    let target = r.pick(&["sm80", "sm86", "sm89", "sm90"]);
    (kernel(kinds, Body::Matmul(Matmul { x: 0, prologue: None, segments, tile_m, k_parts: 1 })), target)
}

/// Phases that follow each other in the same rings and sums are in order, whatever they are made of.
#[test]
fn two_random_segments_are_in_order() {
    let mut two = 0;
    for seed in 0..400 {
        let (kernel, target) = random_segments(seed);
        let target = find(target).unwrap();
        let Some(schedule) = schedule::matmul(&kernel, target) else { continue };
        two += usize::from(schedule.phases.len() > 1);
        // Some do not fit shared memory.
        match emit(&kernel, target) {
            Err(CodegenError::Unsupported { .. }) => continue,
            Err(e) => panic!("seed {seed}: {e}"),
            Ok(source) if seed % 8 == 0 => assert_eq!(verify_program(&source.program), [], "seed {seed}"),
            Ok(_) => {}
        }
        two += usize::from(schedule.phases.len() > 1);
    }
    assert!(two > 100, "{two}");
}

/// The operations that nobody misses are those whose texts end like this, in their order.
fn check_missed(program: &Program, known: &[&str]) {
    let missed = unnoticed(program);
    let fits = missed.len() == known.len() && missed.iter().zip(known).all(|(m, k)| m.contains(k));
    assert!(fits, "{program}{}", missed.join("\n"));
}

/// Whatever orders something in the pipeline of a `wgmma` kernel, the verifier misses it when it is
/// left out. There are two output tiles of each block. Not needed: in the last units of a tile the
/// groups of products, which are waited for all together before the block meets; the barrier at the
/// end of an epilogue, before the block's; and the operations that make room for a third tile.
#[test]
fn nothing_can_be_left_out_of_the_pipeline() {
    const TAIL: [&str; 3] = [" WgmmaCommit", " WgmmaWait(1)", " WgmmaWait(1)"];
    const LAST: [&str; 6] = [" WgmmaCommit", " WgmmaWait(1)", " Arrive(", " WgmmaWait(1)", " Arrive(", " Arrive("];
    const END: [&str; 2] = [" Barrier(Threads(", " FenceAsync"];
    let known = [&TAIL[..], &END[..1], &LAST, &END].concat();
    check_missed(&source(&two_phases("w4g32", RowElem::F16, 256, 512), "sm90").program, &known);
}

/// The same of fp8, whose products are waited for stage by stage.
#[test]
fn nothing_can_be_left_out_of_the_pipeline_of_fp8() {
    let known = [" Barrier(Threads(", " Arrive(", " Arrive(", " Barrier(Threads(", " FenceAsync"];
    check_missed(&source(&two_phases("fp8", RowElem::Fp8, 128, 1024), "sm90").program, &known);
}

/// So in attention. Nothing is copied in bulk there, so that the asynchronous proxy need not know
/// of the barriers; and the turns of the two groups serve their speed only. Beside the prompts,
/// chunks are in the workspace before they are counted; skeletons do not cover the workspace.
#[test]
fn nothing_can_be_left_out_of_attention() {
    check_missed(
        &source(&attention(KvDType::Bf16, 64, 32), "sm90").program,
        &[" FenceInit", " Barrier(Threads(", " Barrier(Threads(", " Barrier(Threads("],
    );
}

/// So in the kernels whose warps have rings of their own.
#[test]
fn nothing_can_be_left_out_of_rings() {
    let kernel = |tile_m| product("w4g32", RowElem::F16, tile_m, (2 * 128 * 132, 1024));
    check_missed(&source(&kernel(8), "sm90").program, &[]);
    // Partial sums are in the workspace before they are counted; skeletons do not cover the
    // workspace; and the next output tile begins with a barrier of its own.
    let mut cut = *find("sm80").unwrap();
    cut.wish.cut = Some(true);
    check_missed(&source_on(&kernel(32), &cut).program, &[" Barrier(Block)", " Barrier(Block)"]);
    check_missed(&source(&kernel(32), "sm80").program, &[" Barrier(Block)"]);
}

/// Nor where two phases follow each other in the same rings and sums, but for two: the warp's barrier
/// between them, since the block's in the last output tile orders more, and the one after each
/// block's only tile of the second.
#[test]
fn nothing_can_be_left_out_between_phases() {
    let kernel = two_phases("w4g32", RowElem::F16, 8, 1024);
    check_missed(&source(&kernel, "sm90").program, &[" Barrier(Warp)", " Barrier(Block)"]);
}
