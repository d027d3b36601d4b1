//! Work of the passes stays small for real shapes.

mod common;

use common::Toy;
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_passes::{Options, compile};

/// The 1.2 B shape.
fn llama_1b() -> Toy {
    Toy { hidden: 2048, heads: 32, kv_heads: 8, head_dim: 64, ffn: 8192, vocab: 128_256, layers: 16, tied: true, ..Toy::llama() }
}

#[test]
fn e_graphs_stay_small() {
    let module = llama_1b().module();
    for format in ["w4g32", "f32", "bf16"] {
        let opts = Options::new(target::find("x86-64-v4").unwrap(), Format::parse(format).unwrap());
        let compiled = compile(&module, &opts).unwrap();
        for c in &compiled.explain {
            assert!(c.gap >= -1e-12, "a better program than the chosen one exists: {c}");
        }
        for s in &compiled.stats {
            assert!(s.saturated < 100 && s.nodes < 250 && s.candidates < 150 && s.iterations < 8, "{s:?}");
        }
    }
}
