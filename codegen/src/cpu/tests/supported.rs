//! Kernels that CPUs do not support are errors, never panics.

use super::jit::Jit;
use super::{CALLS, MADE_HERE, target};
use crate::cpu::CpuBackend;
use crate::{Backend, CodegenError};
use llmcc_ir::target::CpuIsa;

/// A product of rows `rows` with a matrix `matrix`, both of 64 columns.
fn product(rows: &str, prologue: &str, matrix: &str) -> String {
    format!(
        "kernel @k rows T {{\n  param %x: rows {rows}[T, 64]\n  param %w: matrix {matrix}[32, 64]\n  \
         param %y: rows f32[T, 32]\n  matmul x=%x{prologue} tile_m=1 {{\n    \
         segment n=32 tile_n=16 weights(%w): %y[0..] = acc0\n  }}\n}}\n"
    )
}

fn attention(q: &str, out: &str) -> String {
    format!(
        "kernel @k rows T {{\n  param %q: rows {q}[T, 64]\n  param %kv: kv<f16, 2x16>\n  \
         param %y: rows {out}[T, 64]\n  attention q=%q kv=%kv heads=4 scale=0.25 out=%y\n}}\n"
    )
}

fn norm(out: &str) -> String {
    format!(
        "kernel @k rows T {{\n  param %x: rows f32[T, 64]\n  param %y: rows {out}[T, 64]\n  row_norm x=%x out=%y\n}}\n"
    )
}

/// Rows of a cache that tokens select.
const SELECT: &str = "kernel @k rows T {
  param %q: rows f32[T, 32]
  param %w: rows f32[T, 2]
  param %kv: kv<f16, 1x16, latent>
  param %y: rows f32[T, 8]
  select q=%q weights=%w kv=%kv heads=2 top=8 out=%y
}
";

/// The backend's error for a kernel that the verifier accepts; empty: it compiles.
fn said(backend: &CpuBackend, text: &str) -> String {
    let kernel = llmcc_ir::text::parse_kernel(text).unwrap_or_else(|e| panic!("{text}{e:?}"));
    assert!(kernel.check().is_ok(), "{text}{:?}", kernel.check().err());
    match backend.lower(&kernel, target(CpuIsa::X86_64V4)) {
        Ok(_) => String::new(),
        Err(CodegenError::Unsupported { what, .. }) => what,
        Err(other) => panic!("{text}{other}"),
    }
}

/// Every field of a kernel changes the results, or is refused.
#[test]
fn every_field_of_a_kernel_matters() {
    use llmcc_test_support::edits;
    let run = |case: &llmcc_test_support::Case| {
        let run = super::baseline();
        match run.backend.lower(&case.kernel, run.target) {
            Ok(_) => Some(case.run(&run)),
            Err(CodegenError::Unsupported { .. }) => None,
            Err(other) => panic!("{other}\n{}", case.text()),
        }
    };
    for texts in [
        &[edits::ROW_NORM, edits::GATHER][..],
        &[edits::EMBED, edits::EMBED_TYPES, edits::EMBED_STEPS],
        &[edits::EMBED_HASHED],
        &[edits::ROPE_TABLE, edits::ROPE_TABLE_OF_TWO, edits::ROPE_TABLE_OF_AXES],
        &[edits::MATMUL],
        &[
            edits::ATTENTION,
            edits::CHUNKED,
            edits::BIASED,
            edits::BIDIRECTIONAL,
            edits::RELATIVE,
            edits::LATENT,
            edits::ROWS,
            edits::SELECTED,
            edits::SELECTED_BY_HEAD,
        ],
        &[edits::CAUSAL_CONV],
        &[edits::RECURRENCE, edits::ERASING, edits::BONUS, edits::SCAN],
        &[edits::WKV],
        &[edits::WINDOW_MEANS],
        &[edits::WINDOW_BOUNDS],
        &[edits::SINKHORN],
    ] {
        edits::check(texts, &run);
    }
}

#[test]
fn what_cpus_lack_is_refused() {
    let top_k =
        "kernel @k rows R {\n  param %x: rows f32[R, 64]\n  param %y: rows f32[R, 17]\n  top_k x=%x k=8 out=%y\n}\n";
    for (text, words) in [
        (product("f16", "", "f16"), "`x` must be a matrix of rows that"),
        (product("fp8", "", "fp8"), "`x` must be a matrix of rows that"),
        (product("bf16", "", "w4g32"), "bf16 rows cannot be multiplied by its weights"),
        (product("f32", " prologue{round=f16}", "f16"), "f16 rows cannot be multiplied by its weights"),
        (product("f32", "", "w4g32.frag"), "`w` must be packed in panels"),
        (attention("f16", "f32"), "`q` must be a matrix of rows that"),
        (attention("bf16", "f32"), "queries must be f32 rows"),
        (norm("f16"), "`y` must be a matrix of rows that"),
        (norm("fp8"), "`y` must be a matrix of rows that"),
        (top_k.to_owned(), "CPUs need no candidates"),
    ] {
        let got = said(&CALLS, &text);
        assert!(got.contains(words), "{text}{got:?}");
    }
    for (text, words) in [
        (attention("f32", "bf16"), "need the attention microkernel"),
        (llmcc_test_support::edits::SELECTED.to_owned(), "selected rows needs the attention microkernel"),
        (llmcc_test_support::edits::EVICTING.to_owned(), "drops tokens needs its microkernel"),
        (SELECT.to_owned(), "the choice of rows of a cache needs its microkernel"),
    ] {
        let got = said(&MADE_HERE, &text);
        assert!(got.contains(words), "{text}{got:?}");
    }
}

#[test]
fn what_cpus_have_is_compiled() {
    for text in [
        product("f32", "", "w4g32"),
        product("q8g32", "", "w4g32"),
        product("bf16", "", "bf16"),
        product("f32", " prologue{quant=32}", "w8g32"),
        attention("f32", "bf16"),
        SELECT.to_owned(),
        llmcc_test_support::edits::EVICTING.to_owned(),
        norm("bf16"),
    ] {
        assert_eq!(said(&CALLS, &text), "", "{text}");
    }
}
