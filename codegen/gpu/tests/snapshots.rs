//! MLIR and PTX of small kernels. Read the diff before you accept one (`cargo insta review`).

use llmcc_gpu::Source;
use llmcc_ir::target::find;
use llmcc_test_support::folded;

const ROW_NORM: &str = "kernel @m.norm0 rows R {
  param %x: rows f32[T, 256]
  param %g: vector f32[256]
  param %y: rows bf16[R, 256]
  row_norm x=%x gather norm{eps=1e-5, width=256} gain=%g out=%y
}";

const EMBED: &str = "kernel @m.embed0 rows T {
  param %w: matrix w4g32.frag[128, 64]
  param %y: rows f32[T, 64]
  embed table=%w out=%y
}";

const POINTWISE: &str = "kernel @m.pointwise0 rows T {
  param %a: rows f32[T, 64]
  param %b: rows f32[T, 64]
  param %y: rows f16[T, 64]
  pointwise {
    segment n=64 tile_n=64: %y[0..] = silu(%a[0..]) * %b[0..]
  }
}";

const DECODE: &str = "kernel @m.attention0 rows T {
  param %q: rows f16[T, 128]
  param %kv: kv<f16, 2x32>
  param %y: rows f16[T, 128]
  attention q=%q kv=%kv heads=4 scale=0.25 out=%y
}";

#[cfg(feature = "llvm")]
const CACHE: &str = "kernel @m.cache0 rows T {
  param %x: rows f32[T, 128]
  param %t: rows f32[T, 64]
  param %kv: kv<f16, 2x64>
  pointwise {
    segment n=128 tile_n=128: key %kv = rope{head_dim=64, table=%t}(%x[0..])
  }
}";

const TOP_K: &str = "kernel @m.top_k0 rows R {
  param %x: rows f32[R, 9001]
  param %y: rows f32[R, 129]
  top_k x=%x k=64 out=%y
}";

fn source(text: &str) -> Source {
    let kernel = llmcc_ir::text::parse_kernel(text).unwrap_or_else(|e| panic!("{e:?}"));
    llmcc_gpu::emit(&kernel, find("sm90").expect("a target")).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn mlir() {
    for (name, text) in [("row_norm", ROW_NORM), ("embed", EMBED), ("pointwise", POINTWISE), ("top_k", TOP_K)] {
        insta::assert_snapshot!(format!("mlir_{name}"), folded(&source(text).mlir));
    }
}

/// The kernels of attention: for one token over a 16-bit cache and over an int8 one, for prompts by
/// `mma.sync` and by `wgmma`, and without tensor cores.
#[test]
fn attention() {
    let int8 = DECODE.replace("f16, 2x32", "int8, 2x32");
    let prompt = DECODE.replace("scale=0.25", "scale=0.25 tile_m=32").replace("2x32", "2x32, window 64");
    let warpgroup = DECODE.replace("scale=0.25", "scale=0.25 tile_m=64");
    let plain = DECODE.replace("kv<f16", "kv<f32");
    for (name, text) in
        [("decode", DECODE), ("int8", &int8), ("prompt", &prompt), ("warpgroup", &warpgroup), ("plain", &plain)]
    {
        insta::assert_snapshot!(format!("mlir_attention_{name}"), folded(&source(text).mlir));
    }
}

#[cfg(feature = "llvm")]
#[test]
fn ptx() {
    for (name, text) in [("row_norm", ROW_NORM), ("embed", EMBED), ("pointwise", POINTWISE), ("cache", CACHE)] {
        let ptx = llmcc_gpu::llvm::lower(&source(text).mlir, "sm_90a", "+ptx80", llmcc_gpu::worker::Stage::Ptx);
        insta::assert_snapshot!(format!("ptx_{name}"), ptx.unwrap_or_else(|e| panic!("{e}")));
    }
}

/// The oracle rounds after each operation, and so do products with the CPU's code: nothing may be
/// contracted.
#[cfg(feature = "llvm")]
#[test]
fn products_and_sums_are_not_contracted() {
    let ptx = llmcc_gpu::llvm::lower(&source(CACHE).mlir, "sm_90a", "+ptx80", llmcc_gpu::worker::Stage::Ptx);
    let ptx = ptx.unwrap_or_else(|e| panic!("{e}"));
    assert!(ptx.contains("mul.rn.f32") && ptx.contains("add.rn.f32") && !ptx.contains("fma"), "{ptx}");
}
