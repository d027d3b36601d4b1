//! The script that checks kernels on a GPU, without one: `tools/gpu-check` launches kernels through the fake CUDA driver and computes with NumPy what PyTorch computes
//! where there is a GPU. So what it does is known to work before it meets one, and its own idea of what kernels mean is compared with what they do.

use llmcc_cli::backends::{Backends, HAS_LLVM};
use llmcc_cli::cmd::lower;
use llmcc_cli::session::{self, CompileOptions};
use llmcc_ir::kernel::Kernel;
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_tests::{fake_driver, golden, options, root};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The Python to run, if this build can make PTX and there is one with NumPy.
fn python() -> Option<OsString> {
    let python = std::env::var_os("LLMCC_PYTHON").filter(|_| HAS_LLVM);
    if python.is_none() {
        eprintln!("skipped: needs the feature `gpu`, and LLMCC_PYTHON to name a Python with NumPy (`make test` makes one)");
    }
    python
}

/// Runs a script of the tool: whether it found everything right, and what it printed.
fn script(python: &OsString, name: &str, args: &[&str], folder: &Path) -> (bool, String) {
    let out = Command::new(python)
        .arg(root().join("tools/gpu-check").join(name))
        .arg(folder)
        .args(args)
        .env("LLMCC_CUDA_LIBRARY", fake_driver())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.success(), text)
}

fn kernels_of(name: &str, format: &str, kv: KvDType) -> Vec<Kernel> {
    let options = CompileOptions {
        target: target::find("sm90").expect("a target"),
        weights: Some(Format::parse(format).expect("a format")),
        kv: Some(kv),
        act: None,
        ..options(&golden(name))
    };
    let mut kernels = session::lower(&options, &Backends::ptx()).unwrap_or_else(|e| panic!("{name} {format}: {e}")).compiled.plan.kernels;
    kernels.iter_mut().for_each(|k| k.name = format!("{format}.{}", k.name));
    kernels
}

fn write(kernels: &[Kernel], folder: &Path) {
    lower::write(kernels, target::find("sm90").expect("a target"), &Backends::ptx(), folder).unwrap_or_else(|e| panic!("{e}"));
}

/// All kernels of models in several formats; and one is found out that is not what it is said to be.
#[test]
fn kernels_of_models() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let formats = [
        ("llama3", "w4g32", KvDType::F16),
        ("qwen3", "bf16", KvDType::Bf16),
        ("mistral", "w8g64", KvDType::Int8),
        ("qwen2", "w4ag32", KvDType::F16),
        ("llama3", "fp8", KvDType::F16),
    ];
    let kernels: Vec<Kernel> = formats.into_iter().flat_map(|(name, format, kv)| kernels_of(name, format, kv)).collect();
    write(&kernels, dir.path());
    let (right, text) = script(&python, "kernels.py", &["--small"], dir.path());
    assert!(right, "{text}");
    let file = dir.path().join("kernels.json");
    let mut described: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("written")).expect("JSON");
    let all = described["kernels"].as_array_mut().expect("kernels");
    all.retain(|k| k["body"]["family"] == "attention");
    all.truncate(1);
    all[0]["body"]["scale"] = serde_json::json!(0.5);
    std::fs::write(&file, described.to_string()).expect("written");
    let (right, text) = script(&python, "kernels.py", &["--small"], dir.path());
    assert!(!right && text.contains("WRONG"), "{text}");
}

/// The kernels whose speed is measured, smaller.
#[test]
fn timed_kernels() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let (written, text) = script(&python, "shapes.py", &["--small"], dir.path());
    assert!(written, "{text}");
    write(&lower::read(&dir.path().join("kernels.lir")).unwrap_or_else(|e| panic!("{e}")), dir.path());
    let (right, text) = script(&python, "kernels.py", &["--speed"], dir.path());
    assert!(right, "{text}");
}
