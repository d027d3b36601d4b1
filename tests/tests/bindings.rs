//! The artifact from outside: C programs and the Python package, as a user builds and runs them.

use llmcc_cli::args::CutArgs;
use llmcc_cli::cmd::eval::kl::compare;
use llmcc_cli::loaded::GenOptions;
use llmcc_cli::session::CompileOptions;
use llmcc_frontends::DraftHeads;
use llmcc_frontends::slots::AdapterSlots;
use llmcc_passes::ActPolicy;
use llmcc_tests::{Artifact, golden, options, quantized, root};
use serde_json::{Value, json};
use std::process::Command;

#[path = "bindings/rust.rs"]
mod rust;

/// The example model, which says of itself how its texts are to be made.
fn artifact() -> Artifact {
    Artifact::compile(&quantized(&root().join("examples/tiny-llama/model"), "w4g32", ActPolicy::Int8))
}

/// The same without that: by default it takes the most probable token.
fn without_defaults() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    let model = root().join("examples/tiny-llama/model").canonicalize().expect("the example model");
    for entry in std::fs::read_dir(&model).expect("the example model") {
        let name = entry.expect("a file").file_name();
        if name != "generation_config.json" {
            std::os::unix::fs::symlink(model.join(&name), folder.path().join(&name)).expect("a link");
        }
    }
    folder
}

/// An embedder with files of sentence-transformers: two prompts, another similarity than the usual one, rows that
/// are not normalized, and the tokenizer of another model.
fn embedder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    let (model, texts) = (golden("bert"), golden("bert_pairs"));
    std::fs::create_dir(folder.path().join("1_Pooling")).expect("a folder");
    let of_model = ["config.json", "model.safetensors", "1_Pooling/config.json"].map(|name| (&model, name));
    let of_texts = ["tokenizer.json", "tokenizer_config.json"].map(|name| (&texts, name));
    for (from, name) in of_model.into_iter().chain(of_texts) {
        std::fs::copy(from.join(name), folder.path().join(name)).expect("copied");
    }
    let module = |idx: usize, path: &str, kind: &str| {
        let kind = format!("sentence_transformers.models.{kind}");
        json!({ "idx": idx, "name": idx.to_string(), "path": path, "type": kind })
    };
    let write =
        |name: &str, value: Value| std::fs::write(folder.path().join(name), value.to_string()).expect("written");
    write("modules.json", json!([module(0, "", "Transformer"), module(1, "1_Pooling", "Pooling")]));
    let prompts = json!({ "query": "the bank: ", "document": "money " });
    write("config_sentence_transformers.json", json!({ "prompts": prompts, "similarity_fn_name": "dot" }));
    folder
}

/// The text that Transformers writes of the sound of a golden.
fn heard(name: &str) -> String {
    let bytes = std::fs::read(golden(name).join("golden.safetensors")).expect("a golden");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let data = file.tensor("heard").expect("tokens").data().to_vec();
    let words = data.as_chunks::<4>().0.iter().map(|b| format!("w{}", i32::from_le_bytes(*b)));
    words.collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{command:?}: {}\n{text}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    text
}

#[test]
fn the_header_is_clean_c_and_cpp() {
    let dir = tempfile::tempdir().expect("folder");
    for (name, args) in [("h.c", &["-std=c99", "-pedantic"][..]), ("h.cpp", &["-std=c++11", "-x", "c++"])] {
        let file = dir.path().join(name);
        std::fs::write(&file, "#include \"llmcc.h\"\nint main(void) { return LLMCC_OK; }\n").expect("written");
        run(Command::new("cc")
            .args(args)
            .args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
            .arg(root().join("include"))
            .arg(&file));
    }
}

/// All C examples generate the text that the command line generates.
#[test]
fn c_programs_generate() {
    let a = artifact();
    let prompt = "def read_file(path):";
    let exe = a.dir.path().join("dlopen");
    let include = root().join("include");
    let cc = || {
        let mut c = Command::new("cc");
        c.args(["-O1", "-Wall", "-Werror", "-I"]).arg(&include);
        c
    };
    run(cc().arg(root().join("examples/c/dlopen.c")).arg("-o").arg(&exe).arg("-ldl"));
    let by_dlopen = run(Command::new(&exe).arg(&a.path).arg(prompt));
    let exe = a.dir.path().join("direct");
    run(cc().arg(root().join("examples/c/direct.c")).arg(&a.path).arg("-o").arg(&exe));
    let direct = run(Command::new(&exe).arg(prompt));
    let model = a.open(1);
    let ids = model.tokenize(prompt, true).expect("tokens");
    let text = |o: GenOptions| -> String {
        let pieces = model.generate(None, &ids, &o).expect("generation");
        pieces.map(|p| p.expect("piece").text).collect()
    };
    // One of them chooses tokens itself; the others leave that to the model, by the same seed.
    let greedy = text(GenOptions { max_tokens: 16, ..GenOptions::default() });
    let own = GenOptions { temperature: 0.7, top_k: 40, top_p: 0.95, defaults: true, ..GenOptions::default() };
    let text = text(GenOptions { max_tokens: 16, ..own });
    let start = |text: &str| text.chars().take(24).collect::<String>();
    assert!(!start(&text).trim().is_empty());
    assert!(by_dlopen.contains(&start(&greedy)), "dlopen.c printed {by_dlopen:?}, the command line {greedy:?}");
    assert!(direct.contains(&start(&text)), "direct.c printed {direct:?}, the command line {text:?}");
    let exe = a.dir.path().join("batch");
    run(cc().arg(root().join("examples/c/batch.c")).arg(&a.path).arg("-o").arg(&exe));
    let batch = run(Command::new(&exe).args(["import os", prompt, "class A:"]));
    assert!(batch.contains(&format!("{prompt}{text}")), "batch.c printed {batch:?}, the command line {text:?}");
    let exe = a.dir.path().join("engine");
    run(cc().arg(root().join("examples/c/engine.c")).arg(&a.path).arg("-o").arg(&exe));
    let engine = run(Command::new(&exe).args(["import os", prompt, "class A:"]));
    assert!(engine.contains(&format!("{prompt}{text}")), "engine.c printed {engine:?}, the command line {text:?}");
    assert_eq!(engine.matches(" tokens, the first after ").count(), 3, "{engine}");
}

/// The artifact exports the API and nothing else.
#[test]
fn only_the_api_is_exported() {
    let a = artifact();
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&a.path));
    let names: Vec<&str> = symbols.lines().filter_map(|l| l.split_whitespace().last()).collect();
    assert!(names.contains(&"llmcc_open"), "{symbols}");
    assert!(names.iter().all(|n| n.starts_with("llmcc_") || n.starts_with("LLMCC_")), "{symbols}");
}

/// Artifacts stay small. `llmcc-dist runtimes` holds runtimes that are handed out to the limits themselves.
#[test]
fn the_runtime_is_small() {
    let [full, core] = llmcc_rt_image::LIMITS.map(|limit| limit + limit / 20);
    assert!(llmcc_rt_image::FULL.len() <= full, "{}", llmcc_rt_image::FULL.len());
    assert!(llmcc_rt_image::CORE.len() <= core, "{}", llmcc_rt_image::CORE.len());
}

/// Texts of the example model's kind.
const DOCUMENTS: [&str; 3] = [
    include_str!("../../examples/python/perplexity.py"),
    include_str!("../../examples/python/chat.py"),
    "def f(x):\n    return x + 1\n",
];

/// The document of `llmcc eval kl`.
fn divergence(reference: &Artifact, other: &Artifact) -> Value {
    let options = CutArgs { separator: Some("<|document|>".into()), ..CutArgs::default() };
    let models = [reference.open(1), other.open(2)];
    let text = DOCUMENTS.join("<|document|>");
    compare(&models, &text, &options).unwrap_or_else(|e| panic!("{e}")).document()
}

#[test]
fn python_package() {
    let Some(python) = std::env::var_os("LLMCC_PYTHON") else {
        println!("skipped: LLMCC_PYTHON does not name a Python with the llmcc package (`make test` makes one)");
        return;
    };
    let (plain, defaults) = (without_defaults(), artifact());
    let a = Artifact::compile(&quantized(plain.path(), "w4g32", ActPolicy::Int8));
    let other = Artifact::compile(&options(&golden("llama")));
    let classes = Artifact::compile(&options(&golden("bert_classes")));
    let ranker = Artifact::compile(&options(&golden("bert_pairs")));
    let texts = embedder();
    let embedder = Artifact::compile(&options(texts.path()));
    // In f32 throughout, as the goldens of Transformers are.
    let exact = Artifact::compile(&options(plain.path()));
    let slots = CompileOptions {
        slots: Some(AdapterSlots { count: 2, rank: 4, wide: None, targets: vec![] }),
        ..options(&golden("adapters/base"))
    };
    let slots = Artifact::compile(&slots);
    let tapped = Artifact::compile(&CompileOptions { tap: true, ..options(&golden("llama")) });
    let sources = Artifact::compile(&options(&golden("umt5_whole")));
    let hearing = Artifact::compile(&options(&golden("whisper_128")));
    let [images, placed] = ["llava", "qwen2_vl"]
        .map(|name| Artifact::compile(&CompileOptions { with_image: true, ..options(&golden(name)) }));
    // A model with two draft heads, and one with a recurrent state.
    let drafted = tempfile::tempdir().expect("folder");
    for name in ["deepseek_v3", "qwen3_5"] {
        let heads = CompileOptions { draft_heads: DraftHeads::All, ..options(&golden("drafts").join(name)) };
        let made = Artifact::compile(&heads);
        std::fs::copy(&made.path, drafted.path().join(format!("{name}.so"))).expect("copied");
    }
    let compared = divergence(&exact, &a);
    // The adapter for lm-evaluation-harness must not be skipped where `make test` has installed the
    // harness (LLMCC_TEST_EVAL).
    let out = run(Command::new(python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .arg(root().join("python/tests"))
        .env("LLMCC_TEST_ARTIFACT", &a.path)
        .env("LLMCC_TEST_EXACT", &exact.path)
        .env("LLMCC_TEST_DEFAULTS", &defaults.path)
        .env("LLMCC_TEST_CLASSES", &classes.path)
        .env("LLMCC_TEST_OTHER_ARTIFACT", &other.path)
        .env("LLMCC_TEST_RANKER", &ranker.path)
        .env("LLMCC_TEST_EMBEDDER", &embedder.path)
        .env("LLMCC_TEST_SLOTS", &slots.path)
        .env("LLMCC_TEST_TAP", &tapped.path)
        .env("LLMCC_TEST_TAP_GOLDEN", golden("llama").join("taps.safetensors"))
        .env("LLMCC_TEST_SOURCES", &sources.path)
        .env("LLMCC_TEST_AUDIO", &hearing.path)
        .env("LLMCC_TEST_AUDIO_TEXT", heard("whisper_128"))
        .env("LLMCC_TEST_IMAGES", &images.path)
        .env("LLMCC_TEST_PLACED", &placed.path)
        .env("LLMCC_TEST_ADAPTERS", golden("slots"))
        .env("LLMCC_TEST_DRAFTED", drafted.path())
        .env("LLMCC_TEST_GOLDENS", golden("drafts"))
        .env("LLMCC_TEST_KL", compared.to_string())
        .env("LLMCC_TEST_KL_TEXT", DOCUMENTS.join("<|document|>"))
        .env("LLMCC_TEST_PROMPT", "def read_file(path):")
        .env("PYTHONDONTWRITEBYTECODE", "1"));
    assert!(out.contains(" passed") && !out.contains("failed"), "{out}");
}

/// Where the system refuses memory, no function of the API ends the program: it fails in words. One end is not ours
/// to prevent: glibc aborts where it has no memory to note the destructor of a thread-local variable (`docs/abi.md`).
#[test]
fn little_memory_is_an_error_and_no_death() {
    let slots = CompileOptions {
        slots: Some(AdapterSlots { count: 2, rank: 4, wide: None, targets: vec![] }),
        ..options(&root().join("examples/tiny-llama/model"))
    };
    let a = Artifact::compile(&slots);
    let exe = a.dir.path().join("memory");
    let source = root().join("tests/tests/bindings/memory.c");
    run(Command::new("cc")
        .args(["-O1", "-Wall", "-I"])
        .arg(root().join("include"))
        .arg(source)
        .arg("-o")
        .arg(&exe)
        .arg("-ldl"));
    // An adapter of another model: its files are read before it is refused.
    let done = Command::new(&exe).arg(&a.path).arg(golden("slots").join("all")).output().expect("runs");
    let (said, details) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    println!("{said}{details}");
    let of_glibc = details.matches("Fatal glibc error: failed to register TLS destructor").count();
    assert!(
        said.contains(&format!("died {of_glibc}\n")) && of_glibc < 12 && !said.contains("errors in 0"),
        "{said}{details}"
    );
}
