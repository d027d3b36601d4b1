//! The inputs of products on a GPU.

use super::{compile, gpu_options, ready};
use llmcc_cli::session::CompileOptions;
use llmcc_ir::kv::KvDType;
use llmcc_tests::taps::{Reference, by_weight, check, moments, open};

/// A GPU shows what a processor does: it stops after each layer, and its rows are fetched.
#[test]
fn moments_of_a_gpu_are_those_of_transformers() {
    if !ready() {
        return;
    }
    let artifact = compile(&CompileOptions { tap: true, ..gpu_options("mixtral", "f32", KvDType::F32) });
    check("mixtral", &artifact, usize::MAX);
    // Steps that are cut choose the same experts.
    let rows = Reference::load("mixtral").rows();
    let counts = |step| {
        let model = open(&artifact, 1, step);
        let all = by_weight(&model, &moments(&model, &rows, usize::MAX));
        all.into_iter().map(|(name, parts)| (name, parts[0].clone())).collect::<Vec<_>>()
    };
    assert_eq!(counts(0), counts(16));
}
