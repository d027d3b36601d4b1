//! Golden vectors: made by `compile`, compared by `verify`.

use crate::common::{Folder, WITH_TOKENIZER, text};
use llmcc_cli::session::{self, CompileOptions};
use llmcc_codegen::locate::locate;
use llmcc_codegen::sealed::renew;
use llmcc_ir::target::find;
use llmcc_test_support::fake_driver;
use llmcc_ukernels::{Level, detect};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Encoders, whose sequences are whole, classifiers, embedders and recurrences.
#[test]
fn models_of_all_kinds_verify() {
    let f = Folder::new();
    for name in ["bert", "roberta_classes", "mpnet", "qwen3_embedding", "mamba", "rwkv", "longcat_flash"] {
        let said = f.compile(name, "m.so", &[]);
        assert!(said.contains("golden      vectors of"), "{name}: {said}");
        let said = f.verify(&["m.so"]).expect("verifies");
        assert!(said.contains("when it was compiled, bit for bit"), "{name}: {said}");
    }
}

/// With rows that stand in for the model's: they verify and are measured.
#[test]
fn draft_heads_verify() {
    let f = Folder::new();
    for (name, more) in [("drafts/mellum", &["--draft-head"][..]), ("drafts/deepseek_v3", &["--draft-head=2", "--w8"])]
    {
        let said = f.compile(name, "m.so", more);
        assert!(said.contains("golden      vectors of") && said.contains("of the evaluator"), "{name}: {said}");
        let said = f.verify(&["m.so"]).expect("verifies");
        assert!(said.contains("when it was compiled, bit for bit") && said.contains("one by one"), "{name}: {said}");
        let json = f.says(&[], &["bench", "m.so", "--prefill", "9", "--depth", "3", "--steps", "2", "--json"]);
        assert!(json.contains("prefill"), "{name}: {json}");
    }
}

#[test]
fn artifacts_verify_where_they_were_made() {
    let f = Folder::new();
    for (i, more) in [
        &["--w4"][..],
        &["--dtype", "f32"],
        &["--w8", "--kv", "int8"],
        &["--weights", "external"],
        &["--max-context", "5"],
    ]
    .iter()
    .enumerate()
    {
        let name = format!("{i}.so");
        let said = f.compile("qwen3", &name, more);
        assert!(said.contains("golden      vectors of") && said.contains("of the evaluator"), "{said}");
        let said = f.verify(&[&name]).expect("verifies");
        assert!(said.contains("give the same logits as when it was compiled, bit for bit"), "{said}");
        let difference = f.manifest(&name)["certificate"]["golden_difference_to_evaluator"]
            .as_f64()
            .expect("a small model is evaluated");
        eprintln!("{more:?}: {difference:.1e} from the evaluator");
    }
}

#[test]
fn running_the_artifact_leaves_no_trace_in_it() {
    let f = Folder::new();
    f.compile("llama3", "a.so", &["--w4"]);
    f.compile("llama3", "b.so", &["--w4"]);
    assert!(fs::read(f.at("a.so")).expect("first") == fs::read(f.at("b.so")).expect("second"));
    let mut names: Vec<_> = fs::read_dir(f.root()).expect("folder").map(|e| e.expect("entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.so", "b.so"]);
}

#[test]
fn without_golden_vectors_everybody_says_so() {
    let f = Folder::new();
    assert!(f.compile("llama3", "m.so", &["--no-golden"]).contains("no golden vectors: compiled with --no-golden"));
    assert!(f.verify(&["m.so"]).expect("verifies").contains("none: compiled with --no-golden"));
    assert!(text(&f.llmcc(&["inspect", "m.so"]).stdout).contains("golden      none"));
}

/// Flips a bit of the weights at `at` (from the end if negative) and renews all hashes.
fn tamper(path: &Path, at: i64) {
    let part = locate(path).expect("an artifact").weights;
    let mut file = fs::read(path).expect("artifact");
    let beside = part.path != path;
    let mut side = if beside { fs::read(&part.path).expect("weights") } else { vec![] };
    let start = if at < 0 { part.offset + part.len } else { part.offset };
    let i = start.checked_add_signed(at).expect("a byte of the weights") as usize;
    let changed = if beside { &mut side } else { &mut file };
    changed[i] ^= 0x10;
    renew(&mut file, &mut side).expect("an artifact");
    if beside {
        fs::write(&part.path, side).expect("weights");
    }
    fs::write(path, file).expect("artifact");
}

#[test]
fn altered_weights_with_a_matching_hash_are_found() {
    let f = Folder::new();
    f.compile("llama3", "whole.so", &["--w4"]);
    f.compile("llama3", "ext.so", &["--w4", "--weights", "external"]);
    let len = locate(&f.at("whole.so")).expect("an artifact").weights.len as i64;
    // Whatever byte it is, also in the embedding of a token that no step uses: the hash decides
    // which tokens are asked for.
    for (artifact, at) in [("whole.so", 0), ("whole.so", len / 3), ("whole.so", -200), ("ext.so", len / 2)] {
        let files = [f.at(artifact), f.at(&format!("{artifact}.weights"))];
        let kept = files.each_ref().map(|p| fs::read(p).ok());
        tamper(&f.at(artifact), at);
        let said = f.verify(&[artifact]).expect_err("altered");
        assert!(
            said.contains("it computes other results than when it was compiled: step 1 of 5 (40 tokens): logit"),
            "{said}"
        );
        assert!(said.contains("when compiled it was"), "{said}");
        for (path, bytes) in files.iter().zip(kept) {
            bytes.map_or(Ok(()), |b| fs::write(path, b)).expect("written");
        }
    }
    assert!(f.verify(&["whole.so"]).is_ok() && f.verify(&["ext.so"]).is_ok());
}

/// Compiles with a stand-in for the program that runs the artifact: a shell script, in which
/// `$LLMCC` is the real one.
fn compile_with_runner(f: &Folder, script: &str) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let runner = f.at("runner");
    fs::write(&runner, format!("#!/bin/sh\nLLMCC={}\n{script}\n", env!("CARGO_BIN_EXE_llmcc"))).expect("script");
    fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).expect("script");
    let native = session::find_target("native").expect("a target");
    let options = CompileOptions {
        place: llmcc_codegen::link::WeightsPlace::External,
        golden: Some(runner.clone()),
        ..CompileOptions::new(&llmcc_test_support::fixture("llama3"), vec![native])
    };
    let backend = llmcc_codegen::cpu::CpuBackend::default();
    let mut lowered = session::lower(&options, &backend).expect("lowers");
    let done = session::finish(&mut lowered, &options, &backend, &f.at("m.so"), &mut |_, _| {})
        .map(|_| ())
        .map_err(|e| e.to_string());
    fs::remove_file(runner).expect("script");
    if done.is_err() {
        assert_eq!(fs::read_dir(f.root()).expect("folder").count(), 0, "something was left behind");
    }
    done
}

#[test]
fn an_artifact_that_does_not_compute_is_not_written() {
    let f = Folder::new();
    let said = compile_with_runner(&f, "kill -SEGV $$").expect_err("crashed");
    assert!(said.contains("does not run here, so nothing was written (signal: 11"), "{said}");
    let said = compile_with_runner(&f, "echo 'error: no memory' >&2; exit 1").expect_err("failed");
    assert!(said.contains("(exit status: 1: no memory)\nIf this machine lacks"), "{said}");
    // One logit of each first row wrong, then infinite.
    let wrong = |bits: &str| format!("$LLMCC \"$@\" | sed 's/\"rows\":[[]\".\\{{8\\}}/\"rows\":[\"{bits}/g'");
    let said = compile_with_runner(&f, &wrong("42c80000")).expect_err("wrong");
    assert!(said.contains("internal error: the artifact's logits differ from the evaluator's"), "{said}");
    let said = compile_with_runner(&f, &wrong("7f800000")).expect_err("infinite");
    assert!(said.contains("computes inf (step 1, row 0, entry 0 of the logits)"), "{said}");
    compile_with_runner(&f, "exec $LLMCC \"$@\"").expect("the real one");
}

/// Batches are compared in the processor's own order of sums as well, which AMX has for bf16 rows.
#[test]
fn batches_are_verified_in_the_processor_s_own_order() {
    if !find("x86-64-v4").expect("a target").runs_here() {
        eprintln!("skipped for want of a processor with AVX-512");
        return;
    }
    let f = Folder::new();
    let amx = detect() == Level::Amx;
    for (format, own_order) in [(&["--dtype", "bf16"][..], amx), (&["--w4"], false)] {
        f.compile("qwen3", "m.so", &[format, &["--target", "x86-64-v4"]].concat());
        let said = f.verify(&["m.so"]).expect("verifies");
        let computation: Vec<&str> =
            said.lines().filter(|l| l.starts_with("computation  x86-64-v4: 24 tokens")).collect();
        assert!(computation.iter().all(|l| l.contains(", bit for bit")), "{said}");
        match computation[..] {
            [portable, own] if own_order => {
                assert!(
                    portable.contains("in the portable order of sums")
                        && own.contains("in this processor's own order of sums"),
                    "{said}"
                );
            }
            [one] if !own_order => assert!(one.contains("own order of sums gives the same"), "{said}"),
            _ => panic!("AMX: {amx}; {said}"),
        }
    }
}

const MEASURE: [&str; 11] =
    ["bench", "m.so", "--prefill", "4", "--batch", "1", "--steps", "1", "--repeat", "1", "--kernels"];

/// A model that reads whole texts has no steps after a first one to measure.
#[test]
fn encoders_are_measured_by_texts() {
    let f = Folder::new();
    f.compile("bert", "m.so", &["--act", "f32"]);
    let bench = f.says(&[], &MEASURE);
    assert!(bench.contains("text        4 tokens") && bench.contains("prefill of 4 tokens"), "{bench}");
    assert!(!bench.contains("at once"), "{bench}");
    let deep = f.llmcc(&[&MEASURE[..], &["--depth", "8"]].concat());
    let said = text(&deep.stderr);
    assert!(!deep.status.success() && said.contains("leave --depth out"), "{said}");
}

/// The best of the versions for processors runs; all are verified.
#[test]
fn versions_for_other_processors_are_named() {
    let f = Folder::new();
    let said = f.compile("llama3", "m.so", &["--w4", "--act", "int8", "--target", "x86-64,x86-64-v3"]);
    assert!(said.contains("activations int8 on x86-64; int8 on x86-64-v3"), "{said}");
    if !find("x86-64-v3").expect("a target").runs_here() {
        return;
    }
    assert!(said.contains("by the version for x86-64-v3 (x86-64 not run); within"), "{said}");
    let said = f.verify(&["m.so"]).expect("verifies");
    assert!(said.contains("golden       x86-64-v3: 62 tokens"), "{said}");
    assert!(said.contains("golden       x86-64: 62 tokens") && !said.contains("not checked"), "{said}");
    let bench = f.says(&[], &MEASURE);
    assert!(bench.contains("version for x86-64-v3") && bench.contains("predicted for x86-64-v3: "), "{bench}");
}

/// A fat artifact on a machine without a GPU, and on one with.
#[test]
fn versions_for_gpus_are_checked_where_there_is_one() {
    if !llmcc_cli::backends::HAS_LLVM || !find("x86-64-v3").expect("a target").runs_here() {
        eprintln!("skipped: built without the feature `gpu`, or for want of a processor with AVX2");
        return;
    }
    let f = Folder::new();
    let said = f.compile("llama3", "m.so", &["--fp8", "--act", "fp8", "--target", "sm90,x86-64-v3"]);
    assert!(said.contains("activations fp8 on sm90; f32 on x86-64-v3, which does not multiply fp8"), "{said}");
    let manifest = f.manifest("m.so");
    let of = |key: &str| {
        manifest["versions"].as_array().expect("versions").iter().map(|v| v[key].clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("target"), ["sm90", "x86-64-v3"]);
    assert_eq!(of("activations"), ["fp8", "f32"]);
    assert_eq!(manifest["options"]["activations_wanted"], "fp8");
    assert!(
        of("lossy")[0].to_string().contains("as fp8, a scale per token")
            && !of("lossy")[1].to_string().contains("scale per token")
    );
    assert!(of("predicted").iter().all(|p| p["decode_seconds"].as_f64().is_some_and(|s| s > 0.0)));
    assert!(
        manifest["certificate"]["golden_difference_to_evaluator"].as_f64().is_some(),
        "the version that runs is evaluated"
    );

    let nowhere = [("LLMCC_CUDA_LIBRARY", OsStr::new("/nowhere/libcuda.so"))];
    let said = f.says(&nowhere, &["verify", "m.so"]);
    assert!(said.contains("golden       x86-64-v3: 62 tokens") && said.contains("compiled, bit for bit"), "{said}");
    assert!(said.contains("not checked  sm90: ") && said.contains("no NVIDIA driver"), "{said}");

    let gpu = [("LLMCC_CUDA_LIBRARY", fake_driver().as_os_str())];
    let said = f.says(&gpu, &["verify", "m.so"]);
    assert!(
        said.contains("golden       sm90 on PTX emulator")
            && said.contains("the version for x86-64-v3, which rounds elsewhere, computed them"),
        "{said}"
    );
    assert!(said.contains("computation  x86-64-v3: ") && said.contains("computation  sm90 on"), "{said}");
    assert!(!said.contains("not checked"), "{said}");
    let bench = f.says(&gpu, &MEASURE);
    assert!(bench.contains("predicted for sm90: ") && bench.contains("layer.attention0"), "{bench}");
    assert!(!bench.contains('?'), "every kernel has a prediction: {bench}");
}

/// A machine that runs no version still describes the artifact and compares its hashes.
#[test]
fn artifacts_for_other_machines_are_described() {
    if !llmcc_cli::backends::HAS_LLVM {
        eprintln!("skipped: built without the feature `gpu`");
        return;
    }
    let f = Folder::new();
    let said = f.compile("llama3", "m.so", &["--w4", "--target", "sm90"]);
    assert!(said.contains("no golden vectors: a processor computes them"), "{said}");
    let nowhere = [("LLMCC_CUDA_LIBRARY", OsStr::new("/nowhere/libcuda.so"))];
    assert!(f.says(&nowhere, &["inspect", "m.so"]).contains("version     sm90: activations bf16"));
    let said = f.says(&nowhere, &["verify", "m.so"]);
    assert!(said.contains("weights      ") && said.contains("bytes, unchanged"), "{said}");
    assert!(said.contains("not checked  sm90: ") && !said.contains("computation"), "{said}");
    let mut file = fs::read(f.at("m.so")).expect("artifact");
    let part = locate(&f.at("m.so")).expect("an artifact").code;
    file[part.offset as usize + 100] ^= 1;
    fs::write(f.at("m.so"), file).expect("artifact");
    let said = f.verify(&["m.so"]).expect_err("altered");
    assert!(said.contains("m.so: changed since it was compiled") && said.contains("  code: bytes"), "{said}");
}

#[test]
fn the_report_says_which_runtime_an_artifact_has() {
    let f = Folder::new();
    let line = |said: &str| said.lines().find(|l| l.starts_with("  runtime")).expect("a line").to_owned();
    let core = line(&f.compile("llama3", "m.so", &["--no-golden"]));
    assert!(
        core.contains(" KiB (core: no tokenizer), code ") || core.contains(" MiB (core: no tokenizer), code "),
        "{core}"
    );
    let full = line(&f.compile(WITH_TOKENIZER, "t.so", &["--no-golden"]));
    assert!(full.contains(" MiB (full: core, tokenizer and templates), code "), "{full}");
}
