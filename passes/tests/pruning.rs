//! Matrices that are pruned, and the format that has two of each four columns.

use crate::common::{Toy, Weights, packed};
use llmcc_ir::graph::Module;
use llmcc_ir::plan::{Plan, Storage};
use llmcc_ir::quant::{Format, unpack_row};
use llmcc_ir::target;
use llmcc_passes::method::{Pruning, Sparsity, pruner};
use llmcc_passes::pack::{TensorBytes, WeightSource, pack};
use llmcc_passes::{Options, compile};

/// Weights that are pruned when they are packed.
struct Pruned<'a>(&'a Weights, Pruning);

impl WeightSource for Pruned<'_> {
    fn tensor(&self, name: &str) -> Option<TensorBytes<'_>> {
        self.0.tensor(name)
    }
    fn pruning(&self) -> Option<Pruning> {
        Some(self.1)
    }
    fn release(&self, _: &str) {}
}

fn plan(module: &Module, format: &str) -> (Plan, Weights) {
    let opts = Options::new(target::find("x86-64-v4").unwrap(), Format::parse(format).unwrap());
    let weights = Weights::random(module);
    (compile(module, &opts).unwrap().plan, weights)
}

fn toys() -> [Toy; 4] {
    let tied = Toy { tied: true, ..Toy::llama() };
    [Toy::llama(), tied, Toy { experts: 6, hidden: 128, ffn: 128, ..Toy::llama() }, Toy::uneven()]
}

/// Names of the matrices that a weight of a plan is computed from.
fn names(module: &Module, plan: &Plan, i: usize) -> Vec<String> {
    let mut out = vec![];
    plan.weights[i].expr.leaves(&mut |w| {
        if module.weights[w].ty.shape.len() > 1 {
            out.push(module.weights[w].name.clone());
        }
    });
    out
}

/// Matrices of layers are pruned: neither embedding nor head, whether they are one or not, nor routers.
#[test]
fn matrices_of_layers_are_pruned_and_no_others() {
    for toy in toys() {
        let module = toy.module();
        let (plan, weights) = plan(&module, "w8g32");
        let pruning = Pruning { pruner: pruner("magnitude").unwrap(), sparsity: Sparsity::HALF };
        let report = pack(&plan, &module, &Pruned(&weights, pruning), &mut std::io::sink(), &mut |_| ()).unwrap();
        let mut count = 0;
        for (i, t) in report.tensors.iter().enumerate() {
            let names = names(&module, &plan, i);
            let Storage::Matrix { format, .. } = plan.weights[i].storage else { continue };
            let of_layer = names.iter().all(|n| n.starts_with("layers.") && !n.ends_with("router"));
            assert_eq!(t.zeros.is_some(), of_layer && format.is_quantized(), "{toy:?} {names:?}");
            assert!(t.zeros.is_none_or(|zeros| (0.49..0.55).contains(&zeros)), "{toy:?} {names:?}: {:?}", t.zeros);
            count += usize::from(t.zeros.is_some());
        }
        assert!(count >= 4 * toy.layers, "{toy:?}: {count}");
        // Nothing is said of weights that nobody prunes.
        let report = pack(&plan, &module, &weights, &mut std::io::sink(), &mut |_| ()).unwrap();
        assert!(report.tensors.iter().all(|t| t.zeros.is_none()));
    }
}

/// The sparse format is for matrices of layers: heads and tables have dense ones.
#[test]
fn layers_are_stored_sparse() {
    for toy in toys() {
        let module = toy.module();
        let (plan, weights) = plan(&module, "w4sg64");
        let bytes = packed(&plan, &module, &weights);
        for (i, w) in plan.weights.iter().enumerate() {
            let Storage::Matrix { n, k, format } = w.storage else { continue };
            let names = names(&module, &plan, i);
            let of_layer = names.iter().all(|n| n.starts_with("layers.") && !n.ends_with("router"));
            assert_eq!(format.to_string() == "w4sg64", of_layer, "{toy:?} {names:?}: {format}");
            let table = if toy.tied { "w4g64" } else { "w8g64" };
            let dense = if names == ["embed"] { table } else { "w4g64" };
            assert!(of_layer || format.to_string() == dense || names[0].ends_with("router"), "{names:?}: {format}");
            let mut row = vec![0f32; k];
            for r in 0..n {
                unpack_row(format, &bytes[i], k, r, &mut row);
                let zeros = |four: &[f32]| four.iter().filter(|v| **v != 0.0).count() <= 2;
                assert!(!of_layer || row.chunks(4).all(zeros), "{toy:?} {names:?} row {r}");
            }
        }
    }
}

/// A format without zeros is refused.
#[test]
fn formats_without_zeros_are_refused() {
    let module = Toy::llama().module();
    let (plan, weights) = plan(&module, "w4ag32");
    let pruning = Pruning { pruner: pruner("magnitude").unwrap(), sparsity: Sparsity::HALF };
    let e = pack(&plan, &module, &Pruned(&weights, pruning), &mut std::io::sink(), &mut |_| ()).unwrap_err();
    let message = e.to_string();
    assert!(message.contains("w4ag32") && message.contains("w8, w4, fp8"), "{message}");
}
