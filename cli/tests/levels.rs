//! Every instruction set gives the same bits, and a version for each can be asked for.

use std::process::{Command, Output};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("temporary folder"))
    }

    fn llmcc(&self, device: Option<&str>, args: &[&str]) -> Output {
        let mut llmcc = Command::new(env!("CARGO_BIN_EXE_llmcc"));
        llmcc
            .envs(device.map(|d| ("LLMCC_DEVICE", d)))
            .current_dir(self.0.path())
            .args(args)
            .output()
            .expect("llmcc runs")
    }

    fn compile(&self, fixture: &str, more: &[&str]) {
        let from = llmcc_test_support::fixture(fixture);
        let done = self.llmcc(None, &[&["compile", &from.to_string_lossy(), "-o", "m.so"], more].concat());
        assert!(done.status.success(), "{fixture} {more:?}: {}", text(&done.stderr));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const ALL: &str = "x86-64-v4,x86-64,x86-64-v3";

/// The golden vectors come from the best version; each version, with the microkernels of its own
/// level only, must give their bits.
#[test]
fn all_levels_give_the_same_bits() {
    let runs_here: Vec<&str> = ALL
        .split(',')
        .filter(|name| llmcc_ir::target::find(name).is_some_and(llmcc_ir::target::TargetSpec::runs_here))
        .collect();
    let f = Folder::new();
    for fixture in ["llama3", "qwen3", "llama_bias"] {
        for more in [
            &["--dtype", "f32"][..],
            &["--dtype", "bf16", "--act", "f32"],
            &["--dtype", "f16", "--act", "f32", "--kv", "bf16"],
            &["--w8"],
            &["--w4", "--kv", "int8"],
            &["--w4", "--act", "f32"],
            &["--w4a", "--kv", "f32"],
            &["--fp8"],
        ] {
            f.compile(fixture, &[more, &["--target", ALL]].concat());
            let done = f.llmcc(None, &["verify", "m.so"]);
            let said = text(&done.stdout);
            assert!(done.status.success(), "{fixture} {more:?}: {}", text(&done.stderr));
            for level in &runs_here {
                let golden = said
                    .lines()
                    .find(|l| l.starts_with(&format!("golden       {level}: ")))
                    .unwrap_or_else(|| panic!("{level}: {said}"));
                assert!(
                    golden.ends_with("the same logits as when it was compiled, bit for bit"),
                    "{fixture} {more:?} {golden}"
                );
                assert!(said.lines().any(|l| l.starts_with(&format!("computation  {level}: "))), "{said}");
            }
        }
    }
}

#[test]
fn a_version_may_be_asked_for() {
    let f = Folder::new();
    f.compile("llama3", &["--target", "x86-64"]);
    let run = |device| f.llmcc(Some(device), &["golden", "m.so", "1", "1"]);
    let ran = run("x86-64");
    assert!(ran.status.success() && text(&ran.stdout).contains("\"isa\":1,"), "{}", text(&ran.stderr));
    let refused = run("x86-64-v3");
    let said = text(&refused.stdout) + &text(&refused.stderr);
    assert!(
        said.contains("LLMCC_DEVICE=x86-64-v3, but this artifact has no version for that level, only for x86-64"),
        "{said}"
    );
    let unknown = run("x86-64-v9");
    let said = text(&unknown.stderr);
    assert!(
        !unknown.status.success() && said.contains("use cpu, gpu or a level of processors: x86-64, x86-64-v3"),
        "{said}"
    );
}
