//! Models at their real sizes, of a `config.json` alone: `--weights absent` compiles them. Ten of the sizes that
//! `make models` takes all of (`tools/models/real.py`): the kinds of quantization, experts chosen by tables,
//! parts of larger models, recurrences, an encoder.

use llmcc_cli::session::{self, CompileOptions, find_target};
use llmcc_codegen::cpu::CpuBackend;
use llmcc_codegen::link::WeightsPlace;
use llmcc_frontends::{Checkpoint, Options, lift};
use llmcc_gpu::backend::GpuBackend;
use llmcc_gpu::worker::Llvm;
use llmcc_ir::graph::Module;
use llmcc_ir::kernel::{Attention, Body};
use llmcc_ir::ty::Dim;
use llmcc_tests::{golden, options, shared};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A configuration; numbers in the tensors of the text model, as published; formats of its matrices.
type Size = (&'static str, Option<usize>, &'static [&'static str]);

const SIZES: &[Size] = &[
    ("bge-m3", Some(567_754_752 - POOLER), &["f32"]),
    ("deepseek-v3-fp8", Some(671_026_419_200), &["bf16", "fp8b"]),
    ("deepseek-v4-flash", None, &["bf16", "fp8b", "mxfp4"]),
    ("gemma-3-27b", Some(27_009_346_304), &["bf16"]),
    ("gpt-oss-20b-mxfp4", Some(20_914_757_184), &["bf16", "mxfp4"]),
    ("kimi-k2.5-int4", Some(1_026_408_232_448), &["bf16", "w4g32"]),
    ("llama-3.1-8b-modelopt-fp8", Some(8_030_261_248), &["bf16", "fp8"]),
    ("mamba-codestral-7b", Some(7_285_403_648), &["bf16"]),
    ("qwen3-30b-a3b-fp8", Some(30_532_122_624), &["bf16", "fp8b"]),
    ("qwen3.6-35b-a3b-mixed", None, &["bf16", "fp8", "nvfp4"]),
];

/// Numbers of the pooler of XLM-RoBERTa, which embeddings do not need.
const POOLER: usize = 1024 * 1024 + 1024;

/// A compilation in the profile of tests on a loaded machine.
const MOST: Duration = Duration::from_secs(120);

/// A folder with this configuration alone.
fn alone(config: &Path) -> TempDir {
    let folder = tempfile::tempdir().expect("temporary folder");
    std::fs::copy(config, folder.path().join("config.json")).expect("a copy");
    folder
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_sizes").join(format!("{name}.json"))
}

fn lifted(folder: &Path) -> Module {
    let checkpoint = Checkpoint::open_without_data(folder, &[]).unwrap_or_else(|e| panic!("{e}"));
    lift(&checkpoint, &Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Numbers in the tensors of a checkpoint that a module reads.
fn elements(module: &Module) -> usize {
    let own = module.weights.iter().filter(|w| w.data.is_none());
    let size = |d: &Dim| if let Dim::Static(n) = d { *n } else { 1 };
    own.map(|w| w.ty.shape.iter().map(size).product::<usize>()).sum()
}

/// Formats of matrices.
fn formats(module: &Module) -> Vec<String> {
    let matrices = module.weights.iter().filter(|w| w.data.is_none() && w.ty.shape.len() > 1);
    let mut names: Vec<String> =
        matrices.map(|w| w.ty.dtype.coded().map_or(w.ty.dtype.to_string(), |f| f.to_string())).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn tensors_follow_from_a_configuration() {
    for (name, count, kinds) in SIZES {
        let module = lifted(alone(&file(name)).path());
        if let Some(count) = count {
            assert_eq!(elements(&module), *count, "{name}");
        }
        assert_eq!(formats(&module), *kinds, "{name}");
    }
}

#[test]
fn ten_real_sizes_compile() {
    for (name, ..) in SIZES {
        compiles(name, alone(&file(name)).path());
    }
}

fn compiles(name: &str, folder: &Path) {
    let (out, start) = (folder.join("m.so"), Instant::now());
    let o = CompileOptions {
        targets: vec![find_target("x86-64-v4").expect("a target")],
        place: WeightsPlace::Absent,
        act: None,
        kv: None,
        max_context: None,
        ..options(folder)
    };
    let backend = CpuBackend::default();
    let mut lowered = session::lower(&o, &backend).unwrap_or_else(|e| panic!("{name}: {e}"));
    session::finish(&mut lowered, &o, &backend, &out, &mut |_, _| {}).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(start.elapsed() < MOST, "{name}: {:?}", start.elapsed());
}

/// Models whose indexers select tokens, for GPUs: every kernel is written, for contexts as long as on CPUs, and so are
/// published configurations beside the workspace.
#[test]
fn models_that_select_are_written_for_gpus() {
    let published = |all: PathBuf| ["DeepSeek-V3.2", "GLM-5.2-FP8"].map(|name| all.join(name).join("config.json"));
    let files = [file("deepseek-v4-flash")].into_iter().chain(shared("real_configs").into_iter().flat_map(published));
    let backend = GpuBackend::new(Llvm::Absent, None);
    for path in files {
        let (folder, name) = (alone(&path), path.display());
        let o = CompileOptions {
            targets: vec![find_target("sm90").expect("a target")],
            place: WeightsPlace::Absent,
            act: None,
            kv: None,
            max_context: None,
            ..options(folder.path())
        };
        let lowered = session::lower(&o, &backend).unwrap_or_else(|e| panic!("{name}: {e}"));
        let config: Value = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
        assert_eq!(Some(lowered.module.info.max_context as u64), config["max_position_embeddings"].as_u64(), "{name}");
        let kernels = &lowered.preferred().compiled.plan.kernels;
        let has = |of: fn(&Body) -> bool| kernels.iter().any(|k| of(&k.body));
        assert!(has(|body| matches!(body, Body::Select(_))), "{name}");
        assert!(has(|body| matches!(body, Body::Attention(Attention { selected: Some(_), .. }))), "{name}");
    }
}

/// Kernels are chosen exactly however many sums of earlier layers a block reads: Kimi K3's blocks read nine.
#[test]
fn blocks_that_read_many_sums_compile() {
    let folder = alone(&golden("kimi_k3_mlx").join("config.json"));
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
    let text = &mut config["text_config"];
    (text["num_hidden_layers"], text["attn_res_block_size"]) = (9.into(), 1.into());
    text["linear_attn_config"]["full_attn_layers"] = json!([3, 9]);
    text["linear_attn_config"]["kda_layers"] = json!([1, 2, 4, 5, 6, 7, 8]);
    std::fs::write(&path, config.to_string()).expect("written");
    compiles("kimi-k3 of nine groups", folder.path());
}

/// Numbers of published models whose configurations lie beside the workspace.
#[test]
fn published_counts() {
    const COUNTS: &[(&str, usize)] = &[
        ("Qwen3-0.6B", 596_049_920),
        ("Qwen3-8B", 8_190_735_360),
        ("Qwen3-235B-A22B-FP8", 235_093_634_560),
        ("Mixtral-8x7B-v0.1", 46_702_792_704),
        ("Meta-Llama-3.1-405B", 405_853_388_800),
        ("Llama-3.1-70B-Instruct-FP8", 70_553_706_496),
        ("DeepSeek-V2", 235_741_434_880),
        ("DeepSeek-V2-Lite", 15_706_484_224),
        ("gpt-oss-120b", 116_829_156_672),
        ("AI21-Jamba-1.5-Mini", 51_570_323_328),
        ("gemma-2-27b", 27_227_128_320),
        ("OLMoE-1B-7B-0924", 6_919_161_856),
        ("c4ai-command-r-08-2024", 32_296_476_672),
        ("phi-4", 14_659_507_200),
        ("SmolLM3-3B", 3_075_098_624),
    ];
    let Some(all) = shared("real_configs") else { return };
    for (name, count) in COUNTS {
        let folder = alone(&all.join(name).join("config.json"));
        assert_eq!(elements(&lifted(folder.path())), *count, "{name}");
    }
}
