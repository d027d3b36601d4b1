//! `llmcc compile --emit`: stages as one text, and as a file for each kernel in a folder.

use llmcc_cli::backends::HAS_LLVM;
use llmcc_gpu::assembler::Ptxas;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn compile(args: &[&str], output: &str, dir: &Path) -> Output {
    let model = llmcc_test_support::fixture("llama3");
    Command::new(env!("CARGO_BIN_EXE_llmcc"))
        .current_dir(dir)
        .arg("compile")
        .arg(model)
        .args(args)
        .args(["-o", output])
        .output()
        .expect("llmcc runs")
}

/// The text that was written, once it has succeeded.
fn written(args: &[&str], output: &str, dir: &Path) -> String {
    let out = compile(args, output, dir);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    fs::read_to_string(dir.join(output)).expect("written")
}

/// Names of the files in a folder, and their texts.
fn files(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry"));
    let mut all: Vec<_> = entries
        .map(|e| (e.file_name().into_string().expect("UTF-8"), fs::read_to_string(e.path()).expect("text")))
        .collect();
    all.sort();
    all
}

fn ptxas() -> Option<Ptxas> {
    let found = Ptxas::find().filter(|_| HAS_LLVM);
    if found.is_none() {
        eprintln!("skipped: needs the feature `gpu`, and ptxas");
    }
    found
}

/// All kernels of a model are one module, which `ptxas` takes, with an entry for each.
#[test]
fn ptx_is_one_module() {
    let Some(ptxas) = ptxas() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    for (target, processor, format) in [
        ("sm80", "sm_80", &["--w4"][..]),
        ("sm90", "sm_90a", &["--fp8", "--act", "fp8"]),
        ("sm100", "sm_100a", &["--dtype", "bf16"]),
    ] {
        let args = [&["--target", target, "--emit", "ptx"], format].concat();
        let text = written(&args, "m.ptx", dir.path());
        if let Err(e) = ptxas.assemble(&text, processor) {
            panic!("{target} {format:?}: {e}");
        }
        let entries: BTreeSet<&str> = text.lines().filter_map(|l| l.strip_prefix(".visible .entry ")).collect();
        let kernels = written(&[&["--target", target, "--emit", "kernels"], format].concat(), "m.lir", dir.path());
        let kernels = kernels.lines().filter(|l| l.starts_with("kernel")).count();
        assert!(kernels > 8 && entries.len() == kernels, "{target}: {kernels} kernels, {entries:?}");
    }
}

/// With a folder for output, each kernel's text stands by itself, as tools take it.
#[test]
fn a_folder_gets_a_file_for_each_kernel() {
    let Some(ptxas) = ptxas() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    fs::create_dir(dir.path().join("there")).expect("a folder");
    let args = ["--target", "sm80", "--w4", "--emit"];
    let mut names = vec![];
    for (stage, ending, output) in [
        ("ptx", "ptx", "new/ptx/"),
        ("mlir", "mlir", "there"),
        ("llvm", "ll", "llvm/"),
        ("sass", "sass", "sass/"),
        ("kernels", "lir", "k/"),
    ] {
        let out = compile(&[&args[..], &[stage]].concat(), output, dir.path());
        assert!(out.status.success(), "{stage}: {}", String::from_utf8_lossy(&out.stderr));
        let files = files(&dir.path().join(output));
        assert!(
            files.iter().all(|(n, text)| n.ends_with(&format!(".{ending}")) && !text.is_empty()),
            "{stage}: {files:?}"
        );
        if stage == "ptx" {
            files.iter().for_each(|(name, text)| assert!(ptxas.assemble(text, "sm_80").is_ok(), "{name}"));
        }
        let stems: Vec<String> =
            files.iter().map(|(n, _)| n.trim_end_matches(&format!(".{ending}")).to_string()).collect();
        assert!(stems.iter().any(|n| n == "layer.matmul0"), "{stems:?}");
        names.push(stems);
    }
    assert!(names.iter().all(|n| *n == names[0]), "{names:?}");
}

/// Also of kernels for CPUs; a stage that is one text goes to no folder.
#[test]
fn folders_and_stages_of_cpus() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let args = ["--target", "x86-64-v3", "--emit"];
    let out = compile(&[&args[..], &["asm"]].concat(), "asm/", dir.path());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(files(&dir.path().join("asm")).iter().any(|(n, text)| n == "layer.matmul0.s" && text.contains("ret")));
    for stage in ["graph", "egraph", "plan"] {
        let out = compile(&[&args[..], &[stage]].concat(), "plan/", dir.path());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains("plan/ is a folder") && said.contains("name a file"), "{said}");
        assert!(!dir.path().join("plan").exists(), "{stage}");
    }
    for (stage, part) in [("graph", "func @layer"), ("egraph", "gain-into-matrix"), ("plan", "@layer.matmul0")] {
        let graph = written(&[&args[..], &[stage, "--dot"]].concat(), "g.dot", dir.path());
        assert!(graph.starts_with("digraph \"") && graph.contains(part), "{stage}: {graph}");
    }
    let out = compile(&[&args[..], &["asm", "--dot"]].concat(), "g.dot", dir.path());
    assert!(String::from_utf8_lossy(&out.stderr).contains("--dot is for --emit graph, egraph and plan"));
    let out = compile(&[&args[..], &["ptx"]].concat(), "ptx/", dir.path());
    assert!(!out.status.success() && !dir.path().join("ptx").exists());
}

/// Explanations of every version; and the e-graphs, which are made for this stage only.
#[test]
fn every_version_is_explained() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let args = ["--target", "x86-64-v3,x86-64", "--w4"];
    let out = compile(&[&args[..], &["--explain", "--emit", "egraph"]].concat(), "e.txt", dir.path());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    let (v3, baseline) =
        (said.find("for x86-64-v3:\n").expect("the first"), said.find("for x86-64:\n").expect("the second"));
    assert!(
        v3 < baseline && [&said[v3..baseline], &said[baseline..]].iter().all(|part| part.contains("(regime 2): ")),
        "{said}"
    );
    // Regimes are explained before they are used, each with its range of steps.
    for line in [
        "  regime 0: steps of 1 to 4 tokens; costs are for 1 token with 1 row of output\n",
        "  regime 1: steps of 5 to 32 tokens; costs are for 16 tokens with 16 rows of output\n",
        "  regime 2: steps of 33 tokens and more; costs are for 256 tokens with 1 row of output\n",
    ] {
        assert!(said[v3..baseline].contains(line) && said.find(line) < said.find("(regime 0): "), "{said}");
    }
    let egraph = fs::read_to_string(dir.path().join("e.txt")).expect("a file");
    assert!(egraph.contains("func layer ("), "{egraph}");
    let quiet = compile(&[&args[..], &["--emit", "plan"]].concat(), "p.txt", dir.path());
    assert!(quiet.stderr.is_empty(), "{}", String::from_utf8_lossy(&quiet.stderr));
}
