//! Same input and options, same bytes: from another folder, again, and with other work in between.

use llmcc_passes::ActPolicy;
use llmcc_tests::{Artifact, golden, quantized};
use std::fs;

#[test]
fn artifacts_are_byte_identical() {
    let first = Artifact::compile(&quantized(&golden("qwen3"), "w4g32", ActPolicy::Int8));
    // A copy of the checkpoint elsewhere, with new timestamps.
    let copy = tempfile::tempdir().expect("temporary folder");
    for entry in fs::read_dir(golden("qwen3")).expect("fixture") {
        let path = entry.expect("entry").path();
        fs::write(copy.path().join(path.file_name().expect("name")), fs::read(&path).expect("file")).expect("copy");
    }
    let _other_work = Artifact::compile(&quantized(&golden("mistral"), "w8g64", ActPolicy::Int8));
    let second = Artifact::compile(&quantized(copy.path(), "w4g32", ActPolicy::Int8));
    let (a, b) = (fs::read(&first.path).expect("first"), fs::read(&second.path).expect("second"));
    assert!(a == b, "artifacts differ, first at byte {:?}", a.iter().zip(&b).position(|(x, y)| x != y));
    let needle = env!("CARGO_MANIFEST_DIR").as_bytes();
    assert!(!a.windows(needle.len()).any(|w| w == needle), "the artifact names a folder of this machine");
}
