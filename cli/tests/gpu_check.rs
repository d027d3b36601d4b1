//! `tools/gpu-check` from one end to the other, without a GPU: `gpu_check.py` takes the output of
//! `prepare.py`: models and their references, kernels alone, and kernels in other schedules.

use llmcc_test_support::fake_driver;
use std::path::Path;
use std::process::Command;

#[test]
fn prepared_folders_are_checked() {
    let python = std::env::var_os("LLMCC_PYTHON").filter(|_| llmcc_cli::backends::HAS_LLVM);
    let Some(python) = python else {
        eprintln!(
            "skipped: needs the feature `gpu`, and LLMCC_PYTHON to name a Python with NumPy (`make test` makes one)"
        );
        return;
    };
    let dir = tempfile::tempdir().expect("temporary folder");
    let run = |script: &str, folder: &Path, args: &[&str]| {
        let mut command = Command::new(&python);
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/gpu-check").join(script))
            .arg(folder)
            .args(args);
        // PTX only: the driver's stand-in takes no other machine code.
        command.env("LLMCC", env!("CARGO_BIN_EXE_llmcc")).env("LLMCC_PTXAS", "").env("PATH", "/usr/bin:/bin");
        command.env("LLMCC_CUDA_LIBRARY", fake_driver()).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(dir.path());
        let out = command.output().expect("Python runs");
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{text}");
        text
    };
    let folder = dir.path().join("made");
    let text = run("prepare.py", &folder, &["--target", "sm90", "--tiny"]);
    assert!(text.contains("2 kernels in other schedules"), "{text}");
    run("gpu_check.py", &folder, &["--out", "rows.jsonl", "--repeats", "1", "--only", "small,variant"]);
    let rows = std::fs::read_to_string(dir.path().join("rows.jsonl")).expect("rows");
    let right =
        |what: &str| rows.lines().filter(|line| line.contains(what) && line.contains("\"status\": \"ok\"")).count();
    assert_eq!((right("small:d64"), right("variant:v.w4/resident")), (2, 2), "{rows}");
    let plan = run("gpu_check.py", &folder, &["--list"]);
    assert!(plan.contains("kernel:d64_w4.") && plan.contains("speed:s.w4"), "{plan}");
}
