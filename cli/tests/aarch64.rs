//! Artifacts for AArch64 give the bits of those for x86-64: a program in C runs both, on this processor and in an
//! emulator of the other architecture's (`tools/cross.sh` brings it, `llmcc-runtimes` builds the runtime).

use crate::common::{Folder, WITH_TOKENIZER, text};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Processors that are emulated: the newest of the emulator, and one without `dotprod`.
const PROCESSORS: [&str; 2] = ["max", "cortex-a53"];

struct Machines {
    folder: Folder,
    runtimes: PathBuf,
}

impl Machines {
    /// `None` where this machine cannot run the tests. `make test` prepares it, and then it can.
    fn find() -> Option<Machines> {
        let Some(runtimes) = std::env::var_os("LLMCC_TEST_RUNTIMES").map(PathBuf::from) else {
            println!("skipped: no runtimes for AArch64 (`make runtimes`, then LLMCC_TEST_RUNTIMES=FOLDER)");
            return None;
        };
        if !cfg!(target_arch = "x86_64") {
            println!("skipped: compares AArch64 with x86-64");
            return None;
        }
        let m = Machines { folder: Folder::new(), runtimes };
        m.build("cc", "here");
        m.build("aarch64-linux-gnu-gcc", "there");
        Some(m)
    }

    /// Builds the program in C.
    fn build(&self, cc: &str, name: &str) {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(cc);
        command.args(["-O1", "-Wall", "-Werror", "-I"]).arg(here.join("../include"));
        command.arg("-o").arg(self.folder.at(name)).arg(here.join("tests/aarch64/logits.c")).arg("-ldl");
        run(&mut command);
    }

    fn compile(&self, model: &str, target: &str, more: &[&str]) -> PathBuf {
        let out = format!("{target}.so");
        let args = [&["compile", model, "-o", &out, "--target", target, "--no-golden", "-q"][..], more].concat();
        self.folder.says(&[("LLMCC_RUNTIMES", self.runtimes.as_os_str())], &args);
        self.folder.at(&out)
    }

    /// Compiles a model for both architectures, and compares the bits of all logits and a text.
    fn compare(&self, model: &str, more: &[&str], (tokens, prompt): (u32, &str)) {
        let (here, there) = (self.compile(model, "x86-64-v3", more), self.compile(model, "aarch64", more));
        let said = |program: &mut Command, artifact: &Path, isa: &str| -> String {
            program.arg(artifact).args([&tokens.to_string(), prompt]).env("LLMCC_DEVICE", isa);
            run(program)
        };
        let expected = said(&mut Command::new(self.folder.at("here")), &here, "x86-64-v3");
        let (head, expected) = expected.split_once('\n').expect("two lines");
        assert_eq!(head, "isa 3");
        assert!(expected.lines().count() > 40, "{expected}");
        for cpu in PROCESSORS {
            let mut qemu = Command::new("qemu-aarch64");
            qemu.args(["-L", "/usr/aarch64-linux-gnu", "-cpu", cpu]).arg(self.folder.at("there"));
            let got = said(&mut qemu, &there, "aarch64");
            let (head, got) = got.split_once('\n').expect("two lines");
            assert_eq!(head, "isa 64");
            let other = got.lines().zip(expected.lines()).position(|(a, b)| a != b);
            assert!(got == expected, "{model} {more:?} on {cpu}: line {other:?} is another");
        }
    }
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}\n{}", out.status, text(&out.stderr));
    text(&out.stdout)
}

/// Families of kernels and formats, each in a small model.
#[test]
fn logits_are_the_same_bits() {
    let Some(m) = Machines::find() else { return };
    for (fixture, more) in [
        ("llama3", &["--dtype", "f32"][..]),
        ("llama3", &["--dtype", "bf16", "--kv", "bf16"]),
        ("qwen3", &["--dtype", "f16", "--act", "f32", "--kv", "f32"]),
        ("qwen3", &["--w8", "--kv", "int8"]),
        ("llama3", &["--w4", "--kv", "int4"]),
        ("llama3", &["--w4a", "--act", "f32"]),
        ("llama_bias", &["--format", "t3"]),
        ("llama_bias", &["--fp8"]),
        ("mixtral", &["--format", "c4"]),
        ("deepseek_v2_lite", &["--w4"]),
        ("mamba2", &["--w8"]),
        ("rwkv7_paper", &[]),
        ("recurrent_gemma", &[]),
    ] {
        let model = llmcc_test_support::fixture(fixture);
        m.compare(&model.to_string_lossy(), more, (0, ""));
    }
}

#[test]
fn texts_are_the_same() {
    let Some(m) = Machines::find() else { return };
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(WITH_TOKENIZER);
    m.compare(&example.to_string_lossy(), &["--w4"], (200, "def read_file(path):"));
    let stories = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/stories260K/hf");
    match stories.is_dir() {
        true => m.compare(&stories.to_string_lossy(), &["--w8"], (200, "Once upon a time")),
        false => println!("skipped: {} is missing", stories.display()),
    }
}

/// Mistakes end before anything is computed.
#[test]
fn other_architectures_are_explained() {
    let folder = Folder::with_checkpoint();
    let fails = |environment: &[(&str, &OsStr)], targets: &str| {
        let done = folder.llmcc_with(environment, &["compile", "ck", "-o", "m.so", "--target", targets]);
        assert_eq!(done.status.code(), Some(2), "{}", text(&done.stderr));
        assert!(!folder.at("m.so").exists());
        text(&done.stderr)
    };
    let both = fails(&[], "x86-64-v3,aarch64");
    assert!(both.contains("`x86-64-v3` and `aarch64` are of different architectures"), "{both}");
    let other = if cfg!(target_arch = "aarch64") { "x86-64" } else { "aarch64" };
    let missing = fails(&[("LLMCC_RUNTIMES", folder.root().as_os_str())], other);
    let of = if other == "aarch64" { "aarch64" } else { "x86_64" };
    assert!(missing.contains(&format!("llmcc-rt-{of}-core-")) && missing.contains("make runtimes"), "{missing}");
}
