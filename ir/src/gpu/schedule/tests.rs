use super::{Input, MatmulSchedule, Variant, fitting, matmul, matmul_tiles};
use crate::gpu::cost;
use crate::gpu::weights::{is_fp8, on_tensor_cores};
use crate::gpu::wish::{InputPlace, Wish};
use crate::kernel::{Body, Kernel, RowElem};
use crate::quant::Format;
use crate::target::{TargetSpec, find};

fn product(format: &str, elem: &str, (n, k): (usize, usize), (tile_m, tile_n): (usize, usize)) -> Kernel {
    let text = format!(
        "kernel @k rows T {{\n  param %x: rows {elem}[T, {k}]\n  param %w: matrix {format}.frag[{n}, {k}]\n  \
         param %y: rows bf16[T, {n}]\n  matmul x=%x tile_m={tile_m} {{\n    \
         segment n={n} tile_n={tile_n} weights(%w): %y[0..] = acc0\n  }}\n}}\n"
    );
    crate::text::parse_kernel(&text).unwrap_or_else(|e| panic!("{text}{e:?}"))
}

fn wishing(wish: Wish) -> TargetSpec {
    TargetSpec { wish, ..*find("sm90").unwrap() }
}

/// A schedule that is wished and does not fit is none, not another one.
#[test]
fn wishes_are_met_or_refused() {
    let kernels = [
        product("bf16", "bf16", (14336, 4096), (256, 128)),
        product("w4g128", "bf16", (14336, 4096), (64, 128)),
        product("bf16", "bf16", (14336, 4096), (32, 128)),
        product("fp8", "fp8", (14336, 4096), (16, 128)),
        product("w4g128", "bf16", (4096, 14336), (8, 16)),
        product("f32", "f32", (256, 512), (8, 16)),
    ];
    let parts =
        |n: &[usize]| -> Vec<Option<usize>> { std::iter::once(None).chain(n.iter().map(|n| Some(*n))).collect() };
    for kernel in &kernels {
        let (mut met, mut refused) = (0, 0);
        for resident in parts(&[1, 2, 4]) {
            for warps in parts(&[4, 8, 16]) {
                for stages in parts(&[2, 3, 5, 9, 16]) {
                    for place in [None, Some(InputPlace::Whole), Some(InputPlace::Fitting), Some(InputPlace::Global)] {
                        let Some(s) = matmul(kernel, &wishing(Wish { resident, warps, stages, place, ..Wish::NONE }))
                        else {
                            refused += 1;
                            continue;
                        };
                        met += 1;
                        assert!(
                            resident.is_none_or(|n| n == s.resident) && warps.is_none_or(|n| n == s.warps),
                            "{s:?}"
                        );
                        assert!(stages.is_none_or(|n| s.phases.iter().map(|p| p.stages).max() == Some(n)), "{s:?}");
                        let found = match s.input {
                            Input::Whole => Some(InputPlace::Whole),
                            Input::Fitting(_) => Some(InputPlace::Fitting),
                            Input::Global => Some(InputPlace::Global),
                            Input::Tiles => None,
                        };
                        assert!(place.is_none_or(|w| Some(w) == found), "{s:?}");
                    }
                }
            }
        }
        assert!(met > 0 && refused > 0 && !fitting(kernel, &wishing(Wish::NONE)).is_empty());
    }
}

/// `wgmma` multiplies fp8 in tiles of 256 rows too: 128 at a time, for which it has registers.
#[test]
fn large_tiles_of_fp8_are_multiplied_by_wgmma() {
    let s = matmul(&product("fp8", "fp8", (8192, 8192), (256, 128)), find("sm90").unwrap());
    assert_eq!(s.map(|s| (s.variant, s.rows)), Some((Variant::WgmmaFp8, 128)));
}

/// The schedule for `rows` rows, and the seconds that the model predicts.
fn predicted(mut kernel: Kernel, rows: usize, target: &TargetSpec) -> (MatmulSchedule, f64) {
    let tiles = matmul_tiles(&kernel, target, rows).expect("tiles");
    let Body::Matmul(body) = &mut kernel.body else { unreachable!() };
    tiles.set(body);
    let Body::Matmul(body) = &kernel.body else { unreachable!() };
    let s = matmul(&kernel, target).expect("a schedule");
    let seconds = cost::product(&kernel, body, &s, target, rows);
    (s, seconds)
}

/// More rows of the same product take longer, or hardly less: a prompt of 128 tokens not longer than
/// one of 512. And `wgmma` multiplies 33 rows and more where it is faster.
#[test]
fn more_rows_take_longer() {
    let target = find("sm90").unwrap();
    // Gate, O and down of models of 8 and of 1 billion parameters.
    for size in [(14336, 4096), (4096, 4096), (4096, 14336), (8192, 2048), (2048, 2048), (2048, 8192)] {
        for (format, elem) in [("w4g128", "bf16"), ("bf16", "bf16"), ("fp8", "fp8")] {
            let of = |rows| predicted(product(format, elem, size, (16, 128)), rows, target).1;
            let all = [16, 32, 64, 128, 256, 512].map(of);
            for pair in all.windows(2) {
                assert!(pair[0] <= 1.1 * pair[1], "{format} {size:?}: {all:?}");
            }
            assert!(all[3] <= all[5], "{format} {size:?}: {all:?}");
        }
    }
    let variant = |format, elem| predicted(product(format, elem, (14336, 4096), (16, 128)), 64, target).0.variant;
    assert_eq!((variant("w4g128", "bf16"), variant("fp8", "fp8")), (Variant::Wgmma, Variant::WgmmaFp8));
}

/// `wgmma` multiplies 33 rows and more of the products of a model of 8 billion parameters, in all formats
/// that tensor cores multiply: few output tiles are shared out among all multiprocessors. (Up to 64 rows
/// of the smallest product and few instructions for each, `mma.sync` is predicted to be as fast.)
#[test]
fn wgmma_multiplies_33_rows_and_more() {
    let target = find("sm90").unwrap();
    let mut formats = 0;
    for def in crate::quant::FORMATS {
        let Some(format) = Format::parse(def.name).or_else(|| Format::parse(&format!("{}g64", def.name))) else {
            panic!("{}", def.name)
        };
        for (name, elem) in [("f16", RowElem::F16), ("bf16", RowElem::Bf16), ("fp8", RowElem::Fp8)] {
            let cores = if elem == RowElem::Fp8 { is_fp8(format) } else { on_tensor_cores(format, elem) };
            if !cores {
                continue;
            }
            formats += 1;
            for size in [(14336, 4096), (4096, 4096), (4096, 14336)] {
                let of = |rows| predicted(product(&format.to_string(), name, size, (16, 128)), rows, target);
                let all = [33, 64, 96, 128, 256, 512].map(of);
                let first = if size == (4096, 4096) { 2 } else { 0 };
                for (s, _) in &all[first..] {
                    assert!(s.variant.is_wgmma(), "{format} {name} {size:?}: {s:?}");
                }
                // Half of the multiprocessors and more have work.
                for (s, _) in &all[first..4] {
                    assert!(s.blocks >= 64, "{format} {name} {size:?}: {s:?}");
                }
                println!(
                    "{format} {name} {size:?} {:?}",
                    all.map(|(s, t)| (s.rows, s.blocks, (t * 1e7).round() / 10.0))
                );
            }
        }
    }
    assert!(formats > 40, "{formats}");
}

/// Parts that there are not are refused: too few stages for each, an odd number, other kernels.
#[test]
fn parts_that_do_not_fit() {
    let scheduled = |(tile_m, tile_n), k, k_parts, target| {
        let mut kernel = product("w4g64", "bf16", (256, k), (tile_m, tile_n));
        let Body::Matmul(body) = &mut kernel.body else { unreachable!() };
        body.k_parts = k_parts;
        matmul(&kernel, find(target).unwrap())
    };
    let s = scheduled((64, 128), 512, 2, "sm90").unwrap();
    assert_eq!((s.variant, s.blocks, s.phases[0].cut), (Variant::Wgmma, 4, true));
    for (tile, k, k_parts, target) in [
        ((64, 128), 512, 4, "sm90"),
        ((64, 128), 640, 2, "sm90"),
        ((64, 128), 512, 0, "sm90"),
        ((64, 64), 512, 2, "sm90"),
        ((32, 128), 512, 2, "sm90"),
        ((8, 16), 512, 2, "sm90"),
        ((64, 128), 512, 2, "sm80"),
    ] {
        assert_eq!(scheduled(tile, k, k_parts, target), None, "{tile:?} {k} {k_parts} {target}");
    }
}

/// Less bandwidth makes products that are bound by it slower, and no other.
#[test]
fn rates_of_a_machine_count() {
    let time = |name, rows| predicted(product("bf16", "bf16", (14336, 4096), (16, 128)), rows, find(name).unwrap()).1;
    let ratio = |rows| time("sm90:h100", rows) / time("sm90", rows);
    assert!((1.25..1.45).contains(&ratio(1)), "{}", ratio(1));
    assert!((1.0..1.1).contains(&ratio(8192)), "{}", ratio(8192));
}
