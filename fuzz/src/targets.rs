//! Fuzz targets: every reader of untrusted bytes. Used by libFuzzer (`cargo fuzz run NAME`) and, on stable Rust, by
//! `tests/tests/fuzz_corpus.rs`, which runs the corpus and mutations of it.

/// A target: arbitrary bytes in, no panic out.
pub type Target = fn(&[u8]);

/// Every target by the name of its corpus folder.
pub const TARGETS: &[(&str, Target)] = &[
    ("safetensors", llmcc_frontends::fuzz::safetensors),
    ("config", llmcc_frontends::fuzz::config),
    ("sentencepiece", llmcc_frontends::fuzz::sentencepiece),
    ("text_settings", llmcc_frontends::fuzz::text_settings),
    ("tokenizer", llmcc_text::fuzz::tokenizer),
    ("template", llmcc_text::fuzz::template),
    ("text_config", llmcc_text::fuzz::text_config),
    ("lir", llmcc_ir::text::fuzz::lir),
    ("artifact", artifact),
];

/// Runs a target by name.
///
/// # Panics
/// When there is no such target, or it has a bug.
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(n, _)| *n == name).expect("a name of the table");
    target(data);
}

/// The file of an artifact, as the compiler's own tools look into it.
fn artifact(data: &[u8]) {
    let path = std::env::temp_dir().join(format!("llmcc-fuzz-artifact-{}", std::process::id()));
    std::fs::write(&path, data).expect("a writable temporary folder");
    if let Ok(parts) = llmcc_codegen::locate::locate(&path) {
        let len = data.len() as u64;
        for part in [parts.code, parts.data, parts.weights] {
            let end = part.offset.checked_add(part.len).expect("ends are representable");
            assert!(part.path != path || end <= len, "a part lies outside the file");
        }
    }
    let _ = llmcc_codegen::locate::manifest(&path);
    let _ = std::fs::remove_file(&path);
}
