//! Policies for caches on the emulated GPU, one of each kind.

use super::{compile, gpu_options, ready};
use llmcc_cli::session::CompileOptions;
use llmcc_ir::kv::KvDType;
use llmcc_tests::policies::{error, given, policies};
use llmcc_tests::{Golden, logits_in_pieces};

#[test]
fn policies_equal_numpy() {
    if !ready() {
        return;
    }
    let (g, folder) = (Golden::load("llama"), tempfile::tempdir().expect("a folder"));
    let allowed = 2.0 * g.reference_error(true);
    for (policy, name) in policies(folder.path()).into_iter().take(3) {
        let options = CompileOptions { policies: vec![given(&policy)], ..gpu_options("llama", "f32", KvDType::F32) };
        let model = compile(&options).open(1);
        for pieces in [&[19, 1, 13, 7][..], &[40]] {
            let error = error(name, &logits_in_pieces(&model, &g.tokens, pieces));
            assert!(error <= allowed, "{policy} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}");
        }
    }
}
