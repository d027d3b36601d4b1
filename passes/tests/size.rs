//! Work of the passes stays small for real shapes.

use crate::common::{self, Toy};
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_ir::ty::DType;
use llmcc_passes::pack::{TensorBytes, WeightSource};
use llmcc_passes::{Explain, Options, compile, compile_measured};

/// The 1.2 B shape.
fn llama_1b() -> Toy {
    Toy {
        hidden: 2048,
        heads: 32,
        kv_heads: 8,
        head_dim: 64,
        ffn: 8192,
        vocab: 128_256,
        layers: 16,
        tied: true,
        ..Toy::llama()
    }
}

#[test]
fn e_graphs_stay_small() {
    let module = llama_1b().module();
    for format in ["w4g32", "f32", "bf16"] {
        let opts = Options::new(target::find("x86-64-v4").unwrap(), Format::parse(format).unwrap());
        let compiled =
            compile(&module, &Options { explain: Explain { alternatives: true, egraph: false }, ..opts }).unwrap();
        for c in &compiled.explain {
            assert!(c.gap >= -1e-12, "a better program than the chosen one exists: {c}");
        }
        for s in &compiled.stats {
            assert!(s.saturated < 100 && s.nodes < 250 && s.candidates < 150 && s.iterations < 8, "{s:?}");
        }
    }
}

/// Every tensor is the beginning of one buffer.
struct Alias(Vec<u8>, Vec<(String, Vec<usize>)>);

impl WeightSource for Alias {
    fn tensor(&self, name: &str) -> Option<TensorBytes<'_>> {
        let (_, shape) = self.1.iter().find(|w| w.0 == name)?;
        let data = &self.0[..4 * shape.iter().product::<usize>()];
        Some(TensorBytes { dtype: DType::F32, shape: shape.clone(), data })
    }
    fn release(&self, _: &str) {}
}

#[test]
fn a_large_model_is_mixed_within_its_budget() {
    let toy = Toy { vocab: 16384, ..llama_1b() };
    let module = toy.module();
    let shapes = module
        .weights
        .iter()
        .map(|w| (w.name.clone(), w.ty.shape.iter().filter_map(|d| d.known()).collect()))
        .collect();
    let bytes = common::random(3, toy.vocab * toy.hidden).iter().flat_map(|v| v.to_le_bytes()).collect();
    let source = Alias(bytes, shapes);
    let formats = ["w4g128", "w4g64", "w4g32", "w4ag32", "w8g128", "f32"].map(|f| Format::parse(f).unwrap());
    for budget in [0.06, 0.02] {
        let opts = Options::within(target::find("x86-64-v4").unwrap(), formats.to_vec(), budget);
        let compiled = compile_measured(&module, &opts, &source).unwrap();
        assert!(compiled.error.unwrap() <= budget);
        assert!(compiled.stored.iter().any(|s| s.form != compiled.stored[0].form), "{:?}", compiled.stored);
    }
}
