//! Published checkpoints of RWKV against the logits that their authors' tools stored.

use llmcc_tests::{Artifact, options, root, shared};
use std::path::Path;
use std::process::Command;

/// What was fed: `"in`, a token per byte.
const TOKENS: [i32; 3] = [34, 105, 110];

/// Version 4, and how far f32 arithmetic in another order may be away: the stored logits are of f32
/// as well, and of up to 26. (5.2 and 7 are not offered yet.)
const MODELS: [(&str, f32); 1] = [("4v0-660K", 2e-5)];

#[test]
fn published_checkpoints_give_the_stored_logits() {
    for (name, allowed) in MODELS {
        let Some(folder) = shared(&format!("rwkv_tiny_{name}")) else { return };
        let out = std::env::temp_dir().join(format!("llmcc-rwkv-{name}-{}", std::process::id()));
        convert(&folder.join("model_fp32.safetensors"), &out);
        let model = Artifact::compile(&options(&out)).open(2);
        let expected = std::fs::read(folder.join(format!("expected/expected-logits-{name}.bin"))).expect("logits");
        let expected: Vec<f32> = expected.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        for pieces in [&[3][..], &[1], &[2, 1]] {
            let all = llmcc_tests::logits_in_pieces(&model, &TOKENS, pieces);
            let last = &all[all.len() - expected.len()..];
            let error = last.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            println!("{name} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}");
            assert!(error <= allowed, "{name} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}");
        }
        std::fs::remove_dir_all(out).expect("the folder");
    }
}

/// By the script beside the fixtures, which needs nothing but Python.
fn convert(from: &Path, to: &Path) {
    let script = root().join("tests/goldens/rwkv_cpp.py");
    let python = std::env::var("LLMCC_PYTHON").unwrap_or_else(|_| "python3".into());
    let done = Command::new(python).arg(script).arg(from).arg(to).status().expect("Python");
    assert!(done.success(), "{} was not converted", from.display());
}
