//! Every fuzz target on stable Rust: its corpus, and deterministic mutations of it.
//!
//! `LLMCC_FUZZ_CASES` sets the number of mutations per target (default 3000). For real fuzzing see
//! `fuzz/README.md`.

use llmcc_codegen::artifact::{Alternative, Texts, data_segment, layout_code};
use llmcc_codegen::link::{Linker, WeightsPlace};
use llmcc_codegen::{Code, GpuCode, NativeCode, Object};
use std::path::Path;

#[path = "../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../fuzz/src/targets.rs"]
mod targets;

/// A small artifact with versions for a GPU and a processor, from the compiler's own writer around
/// something that looks like a runtime; its weights are left out.
fn artifact_seed() -> Vec<u8> {
    let plan = llmcc_ir::text::parse_plan(include_str!("../../ir/tests/lir/plan.lir")).unwrap();
    let object = |gpu: bool| {
        let dim = llmcc_abi::GpuDim { fixed: 1, per_m: 8 };
        let (ptx, cubin) = (".visible .entry k()".into(), b"\x7fELF".to_vec());
        let code = match gpu {
            true => Code::Gpu(GpuCode {
                entry: "k".into(),
                mlir: String::new(),
                ptx,
                cubin,
                threads: 128,
                shared: 1024,
                grid: [dim; 3],
            }),
            false => Code::Native(NativeCode { bytes: vec![0xC3; 70], ..NativeCode::default() }),
        };
        Object { code, scratch: 64, scratch_per_m: 64, generic: None }
    };
    let objects = [true, false].map(|gpu| plan.kernels.iter().map(|_| object(gpu)).collect::<Vec<Object>>());
    let offsets = llmcc_passes::pack::weight_offsets(&plan);
    let len = offsets.last().unwrap() + plan.weights.last().unwrap().storage.bytes() as u64;
    let alternative = |i: usize| Alternative {
        plan: &plan,
        target: llmcc_ir::target::find(["sm90", "x86-64"][i]).unwrap(),
        objects: &objects[i],
        weight_offsets: &offsets,
        weights: llmcc_abi::Span { off: i as u64 * len, len },
    };
    let code = layout_code(&[&objects[0], &objects[1]]);
    let texts = Texts {
        manifest: b"{\"a\": 1}".to_vec(),
        tokenizer: b"{}".to_vec(),
        text_config: b"{\"bos_token\": \"<s>\"}".to_vec(),
        ..Texts::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seed");
    let mut linker = Linker::start(&path, None, &looks_like_a_runtime(), &code.bytes, WeightsPlace::Absent, 0).unwrap();
    linker.leave_out(2 * len);
    linker.seal(&data_segment(&[alternative(0), alternative(1)], &code, &texts)).unwrap();
    linker.finish().unwrap();
    std::fs::read(path).unwrap()
}

/// An ELF header, two program headers and a descriptor to be filled in.
fn looks_like_a_runtime() -> Vec<u8> {
    let descriptor = size_of::<llmcc_abi::ImageRef>();
    let (headers, len) = (64u64, (64 + 2 * 56 + descriptor) as u64);
    let mut file = vec![];
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend([3u16, 62].iter().flat_map(|x| x.to_le_bytes()));
    file.extend(1u32.to_le_bytes());
    file.extend([0u64, headers, 0].iter().flat_map(|x| x.to_le_bytes()));
    file.extend(0u32.to_le_bytes());
    file.extend([64u16, 56, 2, 64, 0, 0].iter().flat_map(|x| x.to_le_bytes()));
    for (kind, off, size) in [(6u32, headers, 112), (1, 0, len)] {
        file.extend([kind, 4].iter().flat_map(|x| x.to_le_bytes()));
        file.extend([off, off, off, size, size, 8].iter().flat_map(|x| x.to_le_bytes()));
    }
    file.extend(llmcc_abi::IMAGE_MAGIC);
    file.resize(len as usize, 0);
    file
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let mut seeds = mutate::corpus(target);
    if target == "artifact" {
        seeds.push(artifact_seed());
    }
    seeds
}

/// A manifest from an artifact, as `llmcc inspect` shows it.
fn manifest(data: &[u8]) {
    if let Ok(manifest) = llmcc_cli::manifest::Manifest::parse(data) {
        llmcc_cli::cmd::inspect::describe(&manifest, true);
    }
}

#[test]
fn no_target_panics() {
    // Assert that the libFuzzer side finds its targets too: it knows them by name.
    targets::TARGETS.iter().for_each(|(name, _)| targets::run(name, b""));
    // The manifest is read by the command line, which cannot be built with a fuzzer's
    // instrumentation.
    let all = targets::TARGETS.iter().copied().chain([("manifest", manifest as targets::Target)]);
    all.for_each(|(name, target)| mutate::run(name, target, &seeds(name), mutate::cases(3000)));
}

/// The seed is accepted as an artifact, so that its mutations reach beyond the first check.
/// `LLMCC_UPDATE_CORPUS=1` keeps it for libFuzzer.
#[test]
fn the_artifact_seed_is_an_artifact() {
    let seed = artifact_seed();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("seed");
    std::fs::write(&file, &seed).unwrap();
    if std::env::var_os("LLMCC_UPDATE_CORPUS").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/artifact/plan"), &seed).unwrap();
    }
    let sealed = llmcc_codegen::sealed::Sealed::open(&file).unwrap();
    assert_eq!(sealed.check(|_| true, 1).unwrap(), []);
    assert_eq!(llmcc_codegen::locate::manifest(&file).unwrap(), b"{\"a\": 1}");
    targets::run("artifact", &seed);
}
