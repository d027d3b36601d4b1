//! Checkpoints in other files than safetensors, and adapters, through the command line: the
//! generated text, and the messages about files that are not read.

use crate::common::{Folder, text};
use std::fs;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    llmcc_test_support::fixture(name)
}

/// Ids that a checkpoint generates.
fn generated(folder: &Folder, checkpoint: &Path, more: &[&str]) -> String {
    let path = checkpoint.to_str().expect("UTF-8");
    let args = [&["compile", path, "-o", "m.so", "--no-golden", "--quiet"], more].concat();
    folder.says(&[], &args);
    folder.says(&[], &["run", "m.so", "--ids", "1,7,3", "-n", "12"])
}

/// One model in five kinds of files writes the same.
#[test]
fn files_of_one_model() {
    let folder = Folder::new();
    let wanted = generated(&folder, &golden("pytorch/model"), &[]);
    assert!(!wanted.is_empty());
    for name in ["bin", "llama"] {
        assert_eq!(generated(&folder, &golden("pytorch").join(name), &[]), wanted, "{name}");
    }
    // These are f32.
    let wide = generated(&folder, &golden("pytorch/model"), &["--dtype", "f32", "--kv", "f32"]);
    for name in ["model0.bin", "model1.bin"] {
        assert_eq!(generated(&folder, &golden("pytorch").join(name), &[]), wide, "{name}");
    }
}

/// A checkpoint with an adapter is the checkpoint that PEFT merged.
#[test]
fn adapters_are_merged() {
    let folder = Folder::new();
    let (base, lora) = (golden("adapters/base"), golden("adapters/lora"));
    let path = lora.to_str().expect("UTF-8");
    let plain = generated(&folder, &base, &[]);
    let with = generated(&folder, &base, &["--lora", path]);
    assert_ne!(with, plain);
    // The other way round, as nothing, and before the weights are quantized.
    assert_eq!(generated(&folder, &lora, &["--base", base.to_str().expect("UTF-8")]), with);
    assert_eq!(generated(&folder, &base, &["--lora", &format!("{path}=0")]), plain);
    let args = ["compile", base.to_str().expect("UTF-8"), "--lora", path, "--w8", "-o", "m.so"];
    let out = folder.llmcc(&args);
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains("adapter lora: 6 matrices merged"), "{said}");
}

#[test]
fn files_that_are_refused() {
    let folder = Folder::new();
    let refused = |args: &[&str], says: &[&str]| {
        let out = folder.llmcc(&[&["compile", "-o", "m.so", "--quiet"], args].concat());
        let said = text(&out.stderr);
        assert!(!out.status.success() && said.matches("error:").count() == 1, "{said}");
        says.iter().for_each(|s| assert!(said.contains(s), "does not say {s:?}: {said}"));
        assert!(!folder.at("m.so").exists());
    };
    fs::create_dir(folder.at("ck")).expect("folder");
    let config = golden("pytorch/model/config.json");
    fs::copy(config, folder.at("ck/config.json")).expect("copied");
    fs::copy(golden("pytorch/evil.pt"), folder.at("ck/pytorch_model.bin")).expect("copied");
    let nothing_run =
        "asks for `posix.system`, which no tensor needs; nothing was run; if you trust it, convert it to safetensors";
    refused(&["ck"], &["ck/pytorch_model.bin: byte ", nothing_run]);
    let adapter = golden("adapters/lora");
    let alone = ["holds an adapter of `base`, not a model; give the base too: `llmcc compile "];
    refused(&[adapter.to_str().expect("UTF-8")], &alone);
    let base = golden("adapters/base");
    let base = base.to_str().expect("UTF-8");
    refused(&[base, "--lora", "ck"], &["ck/adapter_config.json: the file is missing; --lora takes the folder"]);
    refused(
        &[base, "--lora", "ck=strong"],
        &["`strong` is not a number, and there is no folder `ck=strong`; give FOLDER or FOLDER:SCALE"],
    );
    let other = golden("pytorch/model");
    let lora = adapter.to_str().expect("UTF-8");
    refused(
        &[other.to_str().expect("UTF-8"), "--lora", lora],
        &["do not make the base's [32, 48]; give the base that"],
    );
}

/// `inspect` describes such files as well.
#[test]
fn files_are_described() {
    let folder = Folder::new();
    let about = |name: &str| folder.says(&[], &["inspect", golden(name).to_str().expect("UTF-8")]);
    for name in ["pytorch/bin", "pytorch/llama", "pytorch/llama/consolidated.00.pth", "pytorch/model0.bin"] {
        let said = about(name);
        assert!(said.contains("model       llama") && !said.contains("problem"), "{name}: {said}");
    }
}

/// Adapters without a base are described, too.
#[test]
fn adapters_are_described() {
    let folder = Folder::new();
    let about = |more: &[&str]| {
        folder.says(&[], &[&["inspect", golden("adapters/dora").to_str().expect("UTF-8")], more].concat())
    };
    let said = about(&[]);
    for line in [
        "adapter     DoRA of `base`",
        "rank        4",
        "modules     down_proj (2), q_proj (2), v_proj (2)",
        "note        it can only be merged",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(about(&["--json"]).contains("\"method\": \"DoRA\""));
}

/// An artifact says which factors of LongRoPE its positions have, and `compile` does where nobody chose.
#[test]
fn factors_of_longrope_are_said() {
    let folder = Folder::new();
    let path = golden("phi3-longrope");
    let path = path.to_str().expect("UTF-8");
    let compiled = |more: &[&str]| {
        let out = folder.llmcc(&[&["compile", path, "-o", "m.so", "--no-golden"], more].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        (text(&out.stderr), folder.says(&[], &["inspect", "m.so"]))
    };
    let (warned, about) = compiled(&[]);
    assert!(warned.contains("long factors of LongRoPE") && warned.contains("--max-context 64"), "{warned}");
    assert!(about.contains("positions   long factors of LongRoPE for all"), "{about}");
    for (context, line) in [
        ("64", "positions   short factors of LongRoPE for all, as the context is at most the original 64"),
        ("65", "positions   long factors of LongRoPE for all, as the context is longer than the original 64"),
    ] {
        let (warned, about) = compiled(&["--max-context", context]);
        assert!(about.contains(line) && !warned.contains("LongRoPE"), "{context}: {about}{warned}");
    }
    let about = folder.says(&[], &["inspect", path]);
    assert!(about.contains("positions   short factors of LongRoPE with --max-context 64 and less"), "{about}");
}
