//! Policies for caches on the emulated GPU, against NumPy (`tests/goldens/policies.py`).

use super::{compile, gpu_options, ready};
use llmcc_cli::session::CompileOptions;
use llmcc_frontends::Checkpoint;
use llmcc_ir::kv::KvDType;
use llmcc_passes::module::policy;
use llmcc_tests::{Golden, golden, logits_in_pieces};

#[test]
fn policies_equal_numpy() {
    if !ready() {
        return;
    }
    let g = Golden::load("llama");
    let allowed = 2.0 * g.reference_error(true);
    let goldens = Checkpoint::open(&golden("llama").join("policies.safetensors")).expect("goldens");
    let folder = tempfile::tempdir().expect("a folder");
    let mask = folder.path().join("heads.tsv");
    std::fs::write(&mask, "0.9\t0.2\n0.1\t0.7\n").expect("a file");
    for (policy, name) in [
        ("sinks:first=3,window=9".to_string(), "sinks.3.9"),
        (format!("heads:mask={},share=0.5,first=3,window=9", mask.display()), "heads"),
        ("shared:pairs=1:0".to_string(), "shared"),
    ] {
        let given = policy::parse(&policy).expect("a policy");
        let options = CompileOptions { policies: vec![given], ..gpu_options("llama", "f32", KvDType::F32) };
        let model = compile(&options).open(1);
        let want = goldens.tensor(name).expect(name).to_f32();
        for pieces in [&[19, 1, 13, 7][..], &[40]] {
            let got = logits_in_pieces(&model, &g.tokens, pieces);
            let error = got.iter().zip(&want).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
            assert_eq!(got.len(), want.len());
            assert!(error <= allowed, "{policy} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}");
        }
    }
}
