//! What GPUs lack is refused in words, before code is made; what they have, they make.

use llmcc_codegen::CodegenError;
use llmcc_ir::target::{TargetSpec, find};

fn target(name: &str) -> &'static TargetSpec {
    find(name).expect("a target")
}

/// What the backend says of a kernel that the verifier accepts; empty: it is made.
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

/// Products with the matrices of two of four experts.
fn experts(rows: &str, matrix: &str, k: usize, (tile_m, tile_n): (usize, usize)) -> String {
    format!(
        "kernel @k rows T {{\n  param %x: rows {rows}[T, {k}]\n  param %r: rows f32[T, 4]\n  \
         param %w: matrix {matrix}[128, {k}]\n  param %y: rows f32[T, 64]\n  \
         expert_matmul x=%x routes=%r experts=4 top=2 tile_m={tile_m} {{\n    \
         segment n=32 tile_n={tile_n} weights(%w): %y[0..] = acc0\n  }}\n}}\n"
    )
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
         segment n={n} tile_n={n}: %y[0..] = rms(%x, eps=0.00001, width={n})\n  }}\n}}\n"
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
        "kernel @k rows T {{\n  param %x: rows f32[T, 8]\n  param %w: vector[{}]\n  \
         param %s: state<f32, 1x{}x8>\n  param %y: rows f32[T, 8]\n  \
         causal_conv x=%x start=0 taps=%w width={width} state=%s out=%y\n}}\n",
        8 * width,
        width - 1
    )
}

fn recurrence(rows: usize) -> String {
    format!(
        "kernel @k rows T {{\n  param %q: rows f32[T, {rows}]\n  param %v: rows f32[T, 4]\n  \
         param %d: rows f32[T, 1]\n  param %s: state<f32, 1x{rows}x4>\n  param %y: rows f32[T, 4]\n  \
         recurrence q=%q q_start=0 k=%q k_start=0 groups=1 v=%v v_start=0 decay=%d rate=%d state=%s out=%y\n}}\n"
    )
}
