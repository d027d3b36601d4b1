//! Fuzz targets: every reader of untrusted bytes. Used by libFuzzer (`cargo fuzz run NAME`) and, on
//! stable Rust, by `tests/tests/fuzz_corpus.rs`, which runs the corpus and mutations of it.

use llmcc_abi::tree::part;
use llmcc_codegen::sealed::{self, Sealed};
use llmcc_rt::Image;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A target: arbitrary bytes in, no panic out.
pub type Target = fn(&[u8]);

/// Every target by the name of its corpus folder.
pub const TARGETS: &[(&str, Target)] = &[
    ("safetensors", llmcc_frontends::fuzz::safetensors),
    ("gguf", llmcc_frontends::fuzz::gguf),
    ("rwkv_cpp", llmcc_frontends::fuzz::rwkv_cpp),
    ("llama2c", llmcc_frontends::fuzz::llama2c),
    ("pytorch", llmcc_frontends::fuzz::pytorch),
    ("adapter", llmcc_frontends::fuzz::adapter),
    ("config", llmcc_frontends::fuzz::config),
    ("sentencepiece", llmcc_frontends::fuzz::sentencepiece),
    ("rwkv_vocabulary", llmcc_frontends::fuzz::rwkv_vocabulary),
    ("text_settings", llmcc_frontends::fuzz::text_settings),
    ("adapter_tensors", llmcc_text::fuzz::adapter_tensors),
    ("tokenizer", llmcc_text::fuzz::tokenizer),
    ("template", llmcc_text::fuzz::template),
    ("text_config", llmcc_text::fuzz::text_config),
    ("lir", llmcc_ir::text::fuzz::lir),
    ("wav", |data| drop(llmcc_media::audio::read_wav(data))),
    ("artifact", artifact),
    ("turns", llmcc_turns::fuzz::turns),
    ("gbnf", llmcc_serve::fuzz::gbnf),
    ("hub_reference", llmcc_hub::fuzz::reference),
    ("hub_listing", llmcc_hub::fuzz::listing),
];

/// Runs a target by name.
///
/// # Panics
/// When there is no such target, or it has a bug.
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(n, _)| *n == name).expect("a name of the table");
    target(data);
}

/// The file of an artifact, as the compiler's own tools and the runtime look into it; and again
/// with its hashes renewed, which otherwise hide all that stands behind them.
fn artifact(data: &[u8]) {
    // Tests run this on several threads.
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let name = format!("llmcc-fuzz-artifact-{}-{}", std::process::id(), CALLS.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    look_into(&path, data);
    let mut renewed = data.to_vec();
    if sealed::renew(&mut renewed, &mut []).is_some() {
        look_into(&path, &renewed);
        let sound = Sealed::open(&path).and_then(|s| s.check(|_| true, 1).map(|bad| (s, bad)));
        let (sealed, bad) = sound.expect("renewed hashes are consistent");
        assert!(bad.is_empty(), "renewed hashes are those of the bytes: {bad:?}");
        tables(&sealed, &renewed);
    }
    let _ = std::fs::remove_file(&path);
}

fn look_into(path: &std::path::Path, data: &[u8]) {
    std::fs::write(path, data).expect("a writable temporary folder");
    if let Ok(parts) = llmcc_codegen::locate::locate(path) {
        let len = data.len() as u64;
        for part in [parts.code, parts.data, parts.weights] {
            let end = part.offset.checked_add(part.len).expect("ends are representable");
            assert!(part.path != path || end <= len, "a part lies outside the file");
        }
    }
    let _ = llmcc_codegen::locate::manifest(path);
}

/// Reads the model of an artifact whose hashes are sound, as the runtime does when it opens one:
/// the tables may hold anything.
fn tables(sealed: &Sealed, file: &[u8]) {
    let bytes = |kind: u32, len: u64| {
        let from = sealed.parts.iter().find(|p| p.kind == kind)?.off;
        file.get(usize::try_from(from).ok()?..usize::try_from(from.checked_add(len)?).ok()?)
    };
    let image = &sealed.image;
    let (Some(code), Some(data)) = (bytes(part::CODE, image.code_len), bytes(part::TABLES, image.data_len)) else {
        return;
    };
    let weights = [0u8; 64];
    // SAFETY: nothing is run, and weights are read by nobody who does not run.
    let Ok(images) =
        (unsafe { Image::all_from_parts(code.as_ptr(), code.len() as u64, data, weights.as_ptr(), image.weights_len) })
    else {
        return;
    };
    for image in images {
        let read = image.manifest().len() + image.tokenizer().len() + image.text_config().len();
        assert!(read <= 3 * data.len());
        (0..image.kernels.len()).for_each(|k| assert!(image.kernel_name(k).len() <= data.len()));
        if image.gpu_level().is_some() {
            (0..image.kernels.len())
                .for_each(|k| assert!(image.cubin(k).len() + image.ptx(k).count_bytes() <= 2 * code.len()));
        }
    }
}
