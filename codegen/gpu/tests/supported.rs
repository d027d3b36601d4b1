//! Unsupported kernels are refused with a message before code is made; supported ones compile.

use llmcc_codegen::CodegenError;
use llmcc_ir::target::{TargetSpec, find};

fn target(name: &str) -> &'static TargetSpec {
    find(name).expect("a target")
}

/// The backend's error for a kernel that the verifier accepts; empty: it compiles.
fn said(text: &str, target: &TargetSpec) -> String {
    let kernel = llmcc_ir::text::parse_kernel(text).unwrap_or_else(|e| panic!("{text}{e:?}"));
    assert!(kernel.check().is_ok(), "{text}{:?}", kernel.check().err());
    match llmcc_gpu::emit(&kernel, target) {
        Ok(_) => String::new(),
        Err(CodegenError::Unsupported { what, .. }) => what,
        Err(other) => panic!("{text}{other}"),
    }
}

/// A product of rows `rows` of `k` columns with a matrix of storage `matrix`.
fn product(rows: &str, prologue: &str, matrix: &str, k: usize, (tile_m, tile_n): (usize, usize)) -> String {
    format!(
        "kernel @k rows T {{\n  param %x: rows {rows}[T, {k}]\n  param %w: matrix {matrix}[128, {k}]\n  \
         param %y: rows f32[T, 128]\n  matmul x=%x{prologue} tile_m={tile_m} {{\n    \
         segment n=128 tile_n={tile_n} weights(%w): %y[0..] = acc0\n  }}\n}}\n"
    )
}

/// Segments of different formats and tiles follow each other in the same shared memory: together
/// they may need more than each by itself.
fn phases(tiles: [usize; 2]) -> String {
    format!(
        "kernel @k rows T {{\n  param %x: rows f16[T, 256]\n  param %w: matrix f16.frag[8192, 256]\n  \
         param %v: matrix w4g128.frag[8192, 256]\n  param %y: rows f32[T, 16384]\n  matmul x=%x tile_m=8 {{\n    \
         segment n=8192 tile_n={} weights(%w): %y[0..] = acc0\n    \
         segment n=8192 tile_n={} weights(%v): %y[8192..] = acc0\n  }}\n}}\n",
        tiles[0], tiles[1]
    )
}

/// Products with the matrices of two of four experts.
fn experts(rows: &str, matrix: &str, k: usize, (tile_m, tile_n): (usize, usize)) -> String {
    format!(
        "kernel @k rows T {{\n  param %x: rows {rows}[T, {k}]\n  param %r: rows f32[T, 4]\n  \
         param %w: matrix {matrix}[128, {k}]\n  param %y: rows f32[T, 64]\n  \
         expert_matmul x=%x routes=%r experts=4 top=2 tile_m={tile_m} {{\n    \
         segment n=32 tile_n={tile_n} weights(%w): %y[0..] = acc0\n  }}\n}}\n"
    )
}

/// Products of experts with so many matrices.
fn many_matrices(n: usize) -> String {
    let all = vec!["%w"; n].join(", ");
    experts("f16", "w4g32.frag", 64, (8, 16)).replace("weights(%w)", &format!("weights({all})"))
}

fn attention(q: &str, kv: &str, out: &str) -> String {
    let d: usize = kv.split('x').next_back().and_then(|d| d.parse().ok()).expect("a head size");
    format!(
        "kernel @k rows T {{\n  param %q: rows {q}[T, {}]\n  param %kv: kv<{kv}>\n  param %y: rows {out}[T, {}]\n  \
         attention q=%q kv=%kv heads=4 scale=0.25 out=%y\n}}\n",
        4 * d,
        4 * d
    )
}

fn norm(norm: &str, out: &str) -> String {
    format!(
        "kernel @k rows T {{\n  param %x: rows f32[T, 64]\n  param %y: rows {out}[T, 64]\n  \
         row_norm x=%x{norm} out=%y\n}}\n"
    )
}

fn normalized(n: usize, out: &str) -> String {
    format!(
        "kernel @k rows T {{\n  param %x: rows f32[T, {n}]\n  param %y: rows {out}[T, {n}]\n  pointwise {{\n    \
         segment n={n} tile_n={n}: %y[0..] = norm{{eps=1e-5, width={n}}}(%x[0..])\n  }}\n}}\n"
    )
}

fn embed(matrix: &str) -> String {
    format!(
        "kernel @k rows T {{\n  param %w: matrix {matrix}[32, 64]\n  param %y: rows f32[T, 64]\n  \
         embed table=%w out=%y\n}}\n"
    )
}

fn top_k(vocab: usize, k: usize) -> String {
    format!(
        "kernel @k rows R {{\n  param %x: rows f32[R, {vocab}]\n  param %y: rows f32[R, {}]\n  \
         top_k x=%x k={k} out=%y\n}}\n",
        2 * k + 1
    )
}

fn conv(width: usize) -> String {
    format!(
        "kernel @k rows T {{\n  param %x: rows f32[T, 8]\n  param %w: vector f32[{}]\n  \
         param %s: state<f32, 1x{}x8>\n  param %y: rows f32[T, 8]\n  \
         causal_conv x=%x start=0 taps=%w width={width} state=%s out=%y\n}}\n",
        8 * width,
        width - 1
    )
}

fn select(heads: usize, top: usize) -> String {
    format!(
        "kernel @k rows T {{\n  param %q: rows f32[T, {}]\n  param %w: rows f32[T, {heads}]\n  \
         param %kv: kv<f16, 1x128, latent>\n  param %y: rows f32[T, {top}]\n  \
         select q=%q weights=%w kv=%kv heads={heads} top={top} out=%y\n}}\n",
        128 * heads
    )
}

fn recurrence(rows: usize) -> String {
    format!(
        "kernel @k rows T {{\n  param %q: rows f32[T, {rows}]\n  param %v: rows f32[T, 4]\n  \
         param %d: rows f32[T, 1]\n  param %s: state<f32, 1x{rows}x4>\n  param %y: rows f32[T, 4]\n  \
         recurrence q=%q q_start=0 k=%q k_start=0 groups=1 v=%v v_start=0 decay=%d \
         update=plain with=%d state=%s out=%y\n}}\n"
    )
}

#[test]
fn what_gpus_lack_is_refused() {
    for (text, words) in [
        (product("q8g32", "", "w8g32.frag", 64, (8, 16)), "`x` must be a matrix of rows that `sm90` multiplies: f32,"),
        (product("f16", "", "w4g32", 64, (8, 16)), "`w` must be packed in fragments"),
        (product("f32", " prologue{quant=32}", "w8g32.frag", 64, (8, 16)), "f32, f16 or bf16 rows, not q8g32"),
        (product("f16", "", "w4g32.frag", 64, (8, 200)), "tiles of 200 columns must be multiples of 16"),
        (product("fp8", "", "fp8.frag", 64, (8, 16)), "up to 256, not of 8"),
        (product("f32", " prologue{round=f16}", "f16.frag", 200_000, (8, 16)), "a few rows of 200000 columns"),
        (phases([32, 8192]), "a few rows of 256 columns, and the sums of a tile, must fit in shared memory"),
        (embed("f16"), "`w` must be packed in fragments"),
        (experts("q8g32", "w8g32.frag", 64, (1, 16)), "`x` must be a matrix of rows that"),
        (experts("f16", "w4g32", 64, (1, 16)), "`w` must be packed in fragments"),
        (experts("f16", "w4g32.frag", 64, (4, 16)), "tiles of 1 or 8 rows and 16 columns, not of 4 and 16"),
        (experts("f16", "w4g32.frag", 64, (8, 32)), "tiles of 1 or 8 rows and 16 columns, not of 8 and 32"),
        (experts("fp8", "fp8.frag", 64, (8, 16)), "f32 or 16-bit rows, not fp8"),
        (experts("f16", "fp8.frag", 64, (8, 16)), "compile with another format"),
        (many_matrices(120), "sums of 120 matrices need"),
        (attention("f32", "f16, 2x16", "q8g32"), "`y` must be a matrix of rows that"),
        (attention("f32", "f32, 2x20000", "f32"), "values of 20000 elements need"),
        (norm("", "q8g32"), "`y` must be a matrix of rows that"),
        (norm(" norm{eps=1e-5, width=32}", "fp8"), "rows normalized as a whole"),
        (normalized(100_000, "f32"), "need 400016 bytes of shared memory, but a block of `sm90` has 232448"),
        (top_k(10_000, 300), "300 candidates of 10000 logits"),
        (conv(17), "convolutions over 17 tokens have no GPU kernel; supported are 2 to 16; compile for a CPU"),
        (select(64, 20_000), "64 heads of an indexer that selects 20000 rows need"),
        (llmcc_test_support::edits::EVICTING.to_owned(), "by their weights has no GPU kernel yet; compile for a CPU"),
        (llmcc_test_support::edits::SELECTED_BY_HEAD.to_owned(), "select rows of their own has no GPU kernel yet"),
        (llmcc_test_support::edits::WINDOW_BOUNDS.to_owned(), "bounds of keys has no GPU kernel yet"),
        (recurrence(1025), "over states of 1025 rows have no GPU kernel; supported are up to 1024; compile for a CPU"),
    ] {
        let got = said(&text, target("sm90"));
        assert!(got.contains(words), "{text}{got:?}");
    }
    let older = said(&norm("", "fp8"), target("sm80"));
    assert!(older.contains("`y` must be a matrix of rows that `sm80` multiplies: f32, f16, bf16"), "{older:?}");
    let no_gpu = said(&norm("", "f32"), target("x86-64-v3"));
    assert!(no_gpu.contains("does not serve target `x86-64-v3`"), "{no_gpu:?}");
}

#[test]
fn what_gpus_have_is_made() {
    for text in [
        product("f32", "", "w4g32.frag", 64, (8, 16)),
        product("f16", "", "w4g32.frag", 64, (8, 16)),
        product("fp8", "", "fp8.frag", 128, (128, 128)),
        product("f32", " prologue{round=f16}", "f16.frag", 64, (8, 16)),
        embed("nf4.frag"),
        // The sums of one phase and the rings of the other leave each other room.
        phases([32, 2048]),
        experts("f16", "w4g32.frag", 64, (8, 16)),
        experts("f16", "f16.frag", 40, (8, 16)),
        many_matrices(2),
        attention("f32", "int4, 2x16", "bf16"),
        attention("f16", "f32, 2x2000", "f32"),
        norm(" norm{eps=1e-5, width=64}", "fp8"),
        normalized(1000, "bf16"),
        top_k(128_256, 64),
        conv(16),
        recurrence(1024),
        select(64, 2048),
        llmcc_test_support::edits::SELECTED.to_owned(),
    ] {
        assert_eq!(said(&text, target("sm90")), "", "{text}");
    }
}

/// A kernel that breaks the rules of its level is refused as a whole, with all that is wrong.
#[test]
fn what_the_verifier_refuses_is_an_internal_error() {
    let text = norm("", "f32").replace("f32[T, 64]\n  row_norm", "f32[T, 65]\n  row_norm");
    let kernel = llmcc_ir::text::parse_kernel(&text).expect("a kernel");
    let error = llmcc_gpu::emit(&kernel, target("sm90")).expect_err("it is refused");
    assert!(matches!(&error, CodegenError::Internal { what, .. } if what.contains("64 columns, not 65")), "{error}");
}

/// A family of no shipped table.
#[test]
fn a_newcomer_is_refused_in_words() {
    let text = "kernel @k rows T {\n  param %x: rows f32[T, 4]\n  param %n: tally<u32, most 7>\n  \
                param %y: rows f32[T, 4]\n  climb x=%x step=1.0 tally=%n out=%y\n}\n";
    assert_eq!(said(text, target("sm80")), "rows that climb have no GPU kernel; compile for a CPU");
}
