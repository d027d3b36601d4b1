//! Published models of RWKV, in the files of rwkv.cpp, against the logits that their authors' tools
//! stored.

use llmcc_cli::manifest::Manifest;
use llmcc_cli::session::CompileOptions;
use llmcc_ir::quant::Format;
use llmcc_tests::{Artifact, logits_in_pieces, options, root, shared};
use std::path::Path;
use std::process::Command;

/// The input: `"in`, a token per byte.
const TOKENS: [i32; 3] = [34, 105, 110];

/// Models, and how far f32 arithmetic in another order may be away: the stored logits are of f32 as
/// well, and of up to 26.
const MODELS: [(&str, f32); 3] = [("4v0-660K", 2e-5), ("5v2-730K", 2e-5), ("7v0-834K", 2e-5)];

/// The stored logits of a model.
fn expected(folder: &Path, name: &str) -> Vec<f32> {
    let file = std::fs::read(folder.join(format!("expected/expected-logits-{name}.bin"))).expect("logits");
    file.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// The largest difference of two rows.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// The logits after the last token, which was fed in these pieces.
fn last(options: &CompileOptions, pieces: &[usize]) -> Vec<f32> {
    let all = logits_in_pieces(&Artifact::compile(options).open(2), &TOKENS, pieces);
    all[all.len() - 256..].to_vec()
}

#[test]
fn published_files_give_the_stored_logits() {
    for (name, allowed) in MODELS {
        let Some(folder) = shared(&format!("rwkv_tiny_{name}")) else { return };
        let expected = expected(&folder, name);
        let model = Artifact::compile(&options(&folder.join(format!("tiny-rwkv-{name}-FP32.bin")))).open(2);
        for pieces in [&[3][..], &[1], &[2, 1]] {
            let all = logits_in_pieces(&model, &TOKENS, pieces);
            let error = difference(&all[all.len() - expected.len()..], &expected);
            println!("{name} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}");
            assert!(error <= allowed, "{name} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}");
        }
    }
}

/// Codes of a file decode to their numbers, and stay codes.
#[test]
fn quantized_files_compute_what_they_stand_for() {
    for (name, _) in MODELS {
        let Some(folder) = shared(&format!("rwkv_tiny_{name}")) else { return };
        let expected = expected(&folder, name);
        let largest = expected.iter().fold(0f32, |m, v| m.max(v.abs()));
        for (kind, format) in [("FP16", "f16"), ("Q5_0", "w5"), ("Q5_1", "w5a")] {
            let coded = options(&folder.join(format!("tiny-rwkv-{name}-{kind}.bin")));
            let artifact = Artifact::compile(&coded);
            let formats = Manifest::of(&artifact.path).expect("a manifest").weights.by_format;
            assert!(formats.get(format).is_some_and(|bytes| *bytes > 0), "{name} {kind}: {formats:?}");
            let decoded = last(&CompileOptions { weights: Some(Format::F32), ..coded.clone() }, &[3]);
            let all = logits_in_pieces(&artifact.open(2), &TOKENS, &[3]);
            let (own, far) = (difference(&all[all.len() - 256..], &decoded), difference(&decoded, &expected));
            println!("{name} {kind}: {own:.2e} from its numbers, which are {far:.2e} from those before");
            assert!(own <= 1e-5 * largest, "{name} {kind}: {own:.2e} of {largest}");
            assert!((far > own || kind == "FP16") && far < 0.2 * largest, "{name} {kind}: {far:.2e} of {largest}");
        }
    }
}

/// The same model by the script beside the fixtures, which makes safetensors of it with nothing but
/// Python.
#[test]
fn the_script_makes_the_same_model() {
    let (name, allowed) = MODELS[0];
    let Some(folder) = shared(&format!("rwkv_tiny_{name}")) else { return };
    let out = tempfile::tempdir().expect("a temporary folder");
    convert(&folder.join("model_fp32.safetensors"), out.path());
    let error = difference(&last(&options(out.path()), &[2, 1]), &expected(&folder, name));
    assert!(error <= allowed, "{name}: error {error:.2e}, allowed {allowed:.2e}");
}

fn convert(from: &Path, to: &Path) {
    let script = root().join("tests/goldens/rwkv_cpp.py");
    let python = std::env::var("LLMCC_PYTHON").unwrap_or_else(|_| "python3".into());
    let done = Command::new(python).arg(script).arg(from).arg(to).status().expect("Python");
    assert!(done.success(), "{} was not converted", from.display());
}
