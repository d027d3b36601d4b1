//! Products of an invariant target: a row has the same bits in steps of any size.

use super::product::{Product, check_on, small};
use crate::support::{Case, Compiled};
use llmcc_gpu::llvm::Compiler;
use llmcc_ir::eval::{OperandData, Rows};
use llmcc_ir::gpu::schedule::{self, MatmulSchedule, Tiles, Variant};
use llmcc_ir::gpu::wish::Wish;
use llmcc_ir::kernel::{Body, Kernel, RowElem};
use llmcc_ir::target::{TargetSpec, find};
use std::collections::BTreeSet;

/// Rows of the steps; all of the rows are in the last.
const STEPS: [usize; 4] = [1, 8, 100, 200];

/// A product's kernel with tiles, and its schedule.
fn kernel(product: &Product, target: &TargetSpec, tiles: &Tiles) -> (Kernel, MatmulSchedule) {
    let mut kernel = product.kernel();
    let Body::Matmul(body) = &mut kernel.body else { unreachable!() };
    tiles.set(body);
    let schedule = schedule::matmul(&kernel, target).expect("a schedule");
    (kernel, schedule)
}

/// The first `m` rows of a case, by another kernel.
fn first_rows(whole: &Case, kernel: &Kernel, m: usize) -> Case {
    let mut case = whole.clone();
    case.kernel = kernel.clone();
    for list in [&mut case.batch.tokens, &mut case.batch.positions] {
        list.truncate(m);
    }
    case.batch.seqs.truncate(m);
    case.batch.out_rows.truncate(m);
    for operand in &mut case.operands {
        if let OperandData::Rows(rows) = operand {
            rows.data.truncate(m * rows.cols);
        }
    }
    case
}

fn bits(operands: &[OperandData<'_>], row: usize) -> Vec<u32> {
    let of = |rows: &Rows| rows.row(row).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    operands
        .iter()
        .filter_map(|o| if let OperandData::Rows(rows) = o { Some(of(rows)) } else { None })
        .flatten()
        .collect()
}

/// Whether rows have the same bits in all [`STEPS`], and in the last also by tiles of `wgmma` of other
/// heights; the schedules of all.
fn same_in_all_steps(product: &Product, target: &TargetSpec) -> (bool, Vec<MatmulSchedule>) {
    let (compiler, most) = (Compiler::new(), STEPS[STEPS.len() - 1]);
    let product = Product { m: most, ..product.clone() };
    let whole = product.case();
    let chosen = |m: usize| (m, schedule::matmul_tiles(&product.kernel(), target, m).expect("tiles"));
    let mut runs: Vec<(usize, Tiles)> = STEPS.iter().map(|m| chosen(*m)).collect();
    if kernel(&product, target, &runs[0].1).1.variant == Variant::Wgmma {
        runs.extend([128, 256].map(|rows| (most, Tiles { rows, ..runs[0].1.clone() })));
    }
    let kernels: Vec<_> = runs.iter().map(|(_, tiles)| kernel(&product, target, tiles)).collect();
    let results: Vec<_> = runs
        .iter()
        .zip(&kernels)
        .map(|((m, _), (kernel, _))| {
            Compiled::new(kernel, &compiler, target).run(&first_rows(&whole, kernel, *m), 1).0.remove(0)
        })
        .collect();
    let all = &results[STEPS.len() - 1];
    let same = runs.iter().zip(&results).all(|((m, _), step)| (0..*m).all(|row| bits(step, row) == bits(all, row)));
    (same, kernels.into_iter().map(|(_, schedule)| schedule).collect())
}

/// By `wgmma`, in tiles of several heights and as many parts for all; by `mma.sync` where there is no such
/// thing; streamed, where columns are no whole units or are of f32.
#[test]
fn a_row_has_the_same_bits_in_steps_of_any_size() {
    let wide = |k, format, x| Product { segments: vec![(136, 16)], ..Product::new(1, 0, k, format, x) };
    let pair = |k, format, x| Product { segments: vec![(72, 16)], lanes: 2, ..Product::new(1, 0, k, format, x) };
    let (sm90, sm80) = (*find("sm90").unwrap(), *find("sm80").unwrap());
    for (product, target, variant) in [
        (wide(1024, "bf16", RowElem::Bf16), sm90, Variant::Wgmma),
        (pair(1024, "w4g64", RowElem::F16), sm90, Variant::Wgmma),
        (wide(320, "w8g64", RowElem::Bf16), sm90, Variant::Wgmma),
        (wide(512, "bf16", RowElem::Bf16), sm80, Variant::Mma),
        (wide(200, "bf16", RowElem::Bf16), sm90, Variant::Gemv),
        (wide(512, "f32", RowElem::F32), small(5), Variant::Fma),
    ] {
        let (same, schedules) = same_in_all_steps(&product, &target.invariant());
        assert!(same, "{variant:?}");
        assert!(schedules.iter().all(|s| s.variant == variant), "{schedules:?}");
        let heights: BTreeSet<usize> = schedules.iter().map(|s| s.rows).collect();
        let piped = variant == Variant::Wgmma;
        assert_eq!(heights.len() == 3, piped, "{schedules:?}");
        assert!(piped || schedules.iter().all(|s| *s == schedules[0]), "{schedules:?}");
    }
    let (same, schedules) = same_in_all_steps(&wide(1024, "bf16", RowElem::Bf16), &sm90);
    assert!(!same && schedules[0].variant == Variant::Gemv, "else there is nothing to be wished");
}

/// Parts of tiles of rows for which there are no counters are added in the same order, by one block.
#[test]
fn parts_beyond_the_counters() {
    let product = Product {
        tile_m: 64,
        k_parts: 2,
        segments: vec![(136, 128)],
        ..Product::new(200, 0, 1024, "bf16", RowElem::Bf16)
    };
    let sm90 = *find("sm90").unwrap();
    let of = |counted| {
        let target = TargetSpec { wish: Wish { counted, ..Wish::NONE }, ..sm90 };
        check_on(&product, &target);
        let case = product.case();
        let done = Compiled::new(&case.kernel, &Compiler::new(), &target).run(&case, 2).0;
        let rows = |operands: &[OperandData<'_>]| (0..200).map(|row| bits(operands, row)).collect::<Vec<_>>();
        assert!(rows(&done[0]) == rows(&done[1]), "twice");
        rows(&done[0])
    };
    let all = of(None);
    assert!(of(Some(1)) == all && of(Some(0)) == all, "one block or two");
}
