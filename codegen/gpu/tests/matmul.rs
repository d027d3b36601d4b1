//! Products through the emulator against the evaluator: every format, odd sizes, prologues, cut
//! tiles.

#[path = "matmul/invariant.rs"]
mod invariant;
#[path = "support/product.rs"]
mod product;

use crate::support::Emulated;
use crate::support::assembled::assembled;
use llmcc_gpu::assembler::Ptxas;
use llmcc_gpu::llvm::Compiler;
use llmcc_ir::gpu::schedule::{self, Input, Variant};
use llmcc_ir::gpu::wish::{InputPlace, Wish};
use llmcc_ir::kernel::RowElem;
use llmcc_ir::quant::{Format, Packing};
use llmcc_ir::target::{TargetSpec, find};
use llmcc_test_support::folded;
use product::{Product, check, check_on, compare, small};

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
            let by_number = !cores && schedule::has_f32_factors(format);
            assert_eq!(schedule.slow.is_some(), by_number, "{format}");
            check(&product);
        }
    }
}

/// The 4-bit ones among them have tensor cores, as do all that are integers.
#[test]
fn formats_that_tensor_cores_multiply() {
    let slow = ["iq2", "iq3", "iq3s"];
    for name in [
        "nf4", "fp4", "q4k", "iq4nl", "iq4xs", "mxfp4", "nvfp4", "w4zg64", "q6k", "q8k", "fp8b", "ternaryr", "c4",
        "c3", "t3", "t2", "w4sg128",
    ] {
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

/// In the place of rows beyond the step all rows of a block are copied, not one for all: a line that
/// every multiprocessor reads dozens of times for each of its units is in one slice of the
/// second-level cache.
#[test]
fn rows_beyond_the_step_share_what_they_repeat() {
    let target = find("sm90").unwrap();
    for (tile_m, m, times) in [(128, 96, 2), (128, 33, 4), (128, 127, 2), (256, 130, 2), (64, 40, 2), (32, 17, 2)] {
        let case = Product { tile_m, segments: vec![(128, 128)], ..Product::new(m, 0, 128, "bf16", RowElem::Bf16) };
        let (_, stats) = case.case().run_with_stats(&Compiler::new(), target);
        assert_eq!(stats.hottest, times * 128, "{m} rows in tiles of {tile_m}");
    }
}

/// A target whose streamed products have their input in one place.
fn placed(place: InputPlace) -> TargetSpec {
    TargetSpec { wish: Wish { place: Some(place), ..Wish::NONE }, ..*find("sm90").unwrap() }
}

/// Inputs around the number of rows that fit in shared memory beside the weights: as many as do,
/// and one more, which are all read in place.
#[test]
fn input_that_fits_for_some_rows() {
    for (k, format, elem) in
        [(16384, "w4g128", RowElem::Bf16), (16384, "bf16", RowElem::Bf16), (14336, "w4g32", RowElem::F16)]
    {
        let of = |m| Product::new(m, 16, k, format, elem);
        let target = placed(InputPlace::Fitting);
        let schedule = schedule::matmul(&of(1).kernel(), &target).unwrap();
        let Input::Fitting(most) = schedule.input else { panic!("{k} {format}: {:?}", schedule.input) };
        assert!((1..8).contains(&most), "{k} {format}: {most} rows");
        for m in [1, most, most + 1] {
            check_on(&of(m), &target);
        }
    }
    // The other places.
    for (place, input) in [(InputPlace::Whole, Input::Whole), (InputPlace::Global, Input::Global)] {
        let (case, target) = (Product::new(3, 16, 1024, "w4g128", RowElem::F16), placed(place));
        assert_eq!(schedule::matmul(&case.kernel(), &target).map(|s| s.input), Some(input));
        check_on(&case, &target);
    }
}

/// With few rows, warps with the same strips share out the columns of the input; where they cannot,
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
            if tile_m == 64 {
                // By `mma.sync`.
                check_on(&case, find("sm80").unwrap());
            }
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

/// Output tiles of `wgmma` whose columns of input are shared out among blocks: one, two and more tiles
/// of rows, of which the last are not full; in every launch the same bits, whatever the last one left.
#[test]
fn tiles_of_wgmma_in_parts() {
    let target = find("sm90").unwrap();
    for (format, elem, (tile_m, m), (k, k_parts)) in [
        ("w4g128", RowElem::Bf16, (64, 37), (512, 2)),
        ("bf16", RowElem::Bf16, (64, 130), (768, 3)),
        ("w8g32", RowElem::F16, (128, 60), (1024, 4)),
        ("w4ag32", RowElem::F16, (128, 70), (1024, 2)),
        ("fp8", RowElem::Bf16, (256, 150), (512, 2)),
    ] {
        let mut product =
            Product { tile_m, k_parts, segments: vec![(136, 128)], ..Product::new(m, 0, k, format, elem) };
        let s = schedule::matmul(&product.kernel(), target).unwrap();
        assert_eq!((s.variant, s.blocks, s.phases[0].cut), (Variant::Wgmma, 2 * k_parts, true), "{format}");
        let case = product.case();
        let all = case.run_times(&Compiler::new(), target, 2);
        all.iter().for_each(|got| compare(&product, &case.kernel, &case.expected(), got));
        assert!(all[0] == all[1], "{format}: the same bits");
        product.segments = vec![(64, 64), (40, 64)];
        product.lanes = 2;
        check(&product);
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
        let mlir = llmcc_gpu::emit(&case.kernel(), target).unwrap().mlir;
        insta::assert_snapshot!(format!("matmul_{name}"), folded(&mlir));
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
                let (done, wanted) = assembled(&ptxas, &source, gpu);
                let name = format!("{} {format} tile_m {tile_m} {:?} k {}", target.name, case.segments, case.k);
                assert!(
                    done.spills == [0; 3] && done.warnings.is_empty(),
                    "{name}: {:?} {:?}",
                    done.spills,
                    done.warnings
                );
                let resident = done.resident(gpu, source.threads, source.shared);
                println!(
                    "{name}: {} registers, {} bytes shared, {resident} blocks of {wanted}",
                    done.registers, source.shared
                );
                assert!(resident >= wanted, "{name}: {} registers, {resident} blocks of {wanted} fit", done.registers);
            }
        }
    }
}

/// Products in parts spill nothing beside the sums of any tile.
#[test]
fn parts_assemble() {
    let (Some(ptxas), target) = (Ptxas::find(), find("sm90").unwrap()) else { return };
    let gpu = target.gpu().unwrap();
    for (format, tile_m) in [("bf16", 128), ("bf16", 256), ("w4g64", 256)] {
        let whole = Product::new(tile_m, 0, 14336, format, RowElem::Bf16);
        let case = Product { tile_m, k_parts: 4, segments: vec![(4096, 128)], ..whole };
        let source = llmcc_gpu::emit(&case.kernel(), target).unwrap();
        let (done, _) = assembled(&ptxas, &source, gpu);
        assert!(done.spills == [0; 3] && done.warnings.is_empty(), "{format} {tile_m}: {:?}", done.spills);
    }
}

fn to_bf16(case: Product) -> Product {
    let half = |e| if e == RowElem::F16 { RowElem::Bf16 } else { e };
    Product { x: half(case.x), out: half(case.out), prologue: case.prologue.map(|(n, g, e)| (n, g, half(e))), ..case }
}
