//! The code as text: the expected instructions are there, and nothing needs a relocation or a call.

use super::generate::random;
use super::{CALLS, MADE_HERE, target};
use crate::Backend;
use llmcc_ir::eval::KvState;
use llmcc_ir::graph::{F32, UnaryOp};
use llmcc_ir::kernel::{Attention, Body, Embed, Expr, Matmul, Norm, RowElem, RowNorm, Segment, Store};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::quant::{Elem, Format};
use llmcc_ir::target::CpuIsa;
use llmcc_test_support::Case;

fn listing(case: &Case, isa: CpuIsa, portable: bool) -> String {
    let backend = if portable { MADE_HERE } else { CALLS };
    backend.lower(&case.kernel, target(isa)).unwrap().listing().to_owned()
}

fn matmul(format: Format) -> Case {
    let mut g = random(7, 2, 4);
    let (n, k) = (32, 64);
    let x = if format.group == 0 { g.input(g.rows, k) } else { g.input_q8(k, format.group.into()) };
    let weights = vec![g.matrix(n, k, format)];
    let store = Store::Rows { param: g.output(n, RowElem::F32), start: 0 };
    let expr = Expr::Unary(UnaryOp::Relu, Box::new(Expr::Acc(0)));
    g.case(Body::Matmul(Matmul {
        x,
        prologue: None,
        segments: vec![Segment { n, weights, tile_n: 32, expr, store }],
        tile_m: 4,
        k_parts: 1,
    }))
}

fn row_norm() -> Case {
    let mut g = random(7, 2, 4);
    let x = g.input(g.rows, 64);
    let gain = Some(g.vector(64));
    let out = g.output(64, RowElem::F32);
    g.case(Body::RowNorm(RowNorm { norm: Some(Norm::rms(1e-5, 64)), gain, ..RowNorm::plain(x, out) }))
}

fn attention() -> Case {
    let mut g = random(7, 2, 4);
    let q = g.input(g.rows, 128);
    let kv = g.kv(KvState::new(KvSpec {
        dtype: KvDType::F32,
        kv_heads: 1,
        key_dim: 64,
        value_dim: 64,
        latent: false,
        window: None,
        every: 1,
        first: None,
    }));
    let out = g.output(128, RowElem::F32);
    g.case(Body::Attention(Attention::usual([q, kv, out], 2, F32::new(0.125))))
}

fn embed() -> Case {
    let mut g = random(7, 2, 4);
    let table = g.matrix(40, 64, Format::new(Elem::W8, 32));
    let out = g.output(64, RowElem::F32);
    g.case(Body::Embed(Embed::of_tokens(table, out)))
}

const W4: Format = Format::new(Elem::W4, 32);

/// Instruction names with how often they occur: a change of the code shows, register allocation
/// does not.
fn histogram(listing: &str) -> String {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    // Constants follow the last return.
    let code = listing.rfind("  ret").map_or(listing, |end| &listing[..end]);
    for line in code.lines().filter(|line| line.starts_with("  ")) {
        let name = line.split_whitespace().next().unwrap_or_default();
        // Copies between registers and spills are up to the register allocator.
        if !matches!(name, "mov" | "movq" | "movdqa" | "movdqu" | "vmovdqu" | "vmovaps" | "vmovups") {
            *counts.entry(name).or_default() += 1;
        }
    }
    counts.iter().map(|(name, n)| format!("{name} {n}\n")).collect()
}

#[test]
fn inner_products_use_the_multiply_add_instructions() {
    let v3 = |format| listing(&matmul(format), CpuIsa::X86_64V3, true);
    assert!(v3(Format::F32).contains("vfmadd"));
    assert!(v3(W4).contains("vpmaddwd"));
    let baseline = listing(&matmul(W4), CpuIsa::X86_64, true);
    assert!(baseline.contains("pmaddwd") && !baseline.contains(" v"), "{baseline}");
    assert!(listing(&matmul(Format::F32), CpuIsa::AArch64, true).contains("fmla"));
}

#[test]
fn nothing_is_called_but_microkernels() {
    let cases = [matmul(Format::F32), matmul(W4), row_norm(), attention(), embed()];
    for case in &cases {
        for isa in [CpuIsa::X86_64, CpuIsa::X86_64V3, CpuIsa::X86_64V4] {
            let code = listing(case, isa, true);
            assert!(!code.contains("call"), "{code}");
        }
    }
    for isa in [CpuIsa::X86_64, CpuIsa::X86_64V3, CpuIsa::X86_64V4] {
        let calls = listing(&matmul(W4), isa, false);
        // The product, and the function of it.
        assert_eq!(calls.matches("call").count(), 2, "{calls}");
    }
    for case in &cases {
        let code = listing(case, CpuIsa::AArch64, true);
        assert!(!code.contains("blr") && !code.contains(" bl "), "{code}");
    }
    let calls = listing(&matmul(W4), CpuIsa::AArch64, false);
    assert_eq!(calls.matches("blr").count(), 2, "{calls}");
}

#[test]
fn snapshots() {
    let cases = [("matmul_f32", matmul(Format::F32)), ("matmul_w4", matmul(W4)), ("row_norm", row_norm())];
    let cases = cases.into_iter().chain([("attention", attention()), ("embed_w8", embed())]);
    for (name, case) in cases {
        let text = histogram(&listing(&case, CpuIsa::X86_64V3, true));
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, text);
        });
        if let Ok(folder) = std::env::var("LLMCC_LISTINGS") {
            std::fs::write(format!("{folder}/{name}.s"), listing(&case, CpuIsa::X86_64V3, true)).unwrap();
        }
    }
}
