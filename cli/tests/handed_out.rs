//! The program as a package holds it: its version, the licences, and LLVM in a program of its own.

use crate::common::{Folder, WITH_TOKENIZER, text};
use llmcc_cli::backends::HAS_LLVM;
use llmcc_cli::lowering::VARIABLE;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn the_version_names_commit_features_and_abi() {
    let f = Folder::new();
    assert_eq!(f.says(&[], &["-V"]), format!("llmcc {VERSION}\n"));
    let said = f.says(&[], &["--version"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert_eq!(lines[0], format!("llmcc {VERSION}"));
    let commit = lines[1].strip_prefix("commit    ").expect("a commit");
    assert!(commit == "unknown" || commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit()), "{said}");
    assert_eq!(lines[2], if HAS_LLVM { "features  cpu, gpu" } else { "features  cpu" });
    let header = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../include/llmcc.h")).expect("the header");
    let abi = header.split("#define LLMCC_ABI_VERSION 0x").nth(1).and_then(|s| s.split('u').next()).expect("hex");
    let abi = u32::from_str_radix(abi, 16).expect("hex");
    let api = format!("C API {}.{}", abi >> 16, abi & 0xFFFF);
    assert_eq!(lines[3], format!("ABI       {api}, artifacts {}", llmcc_abi::ABI_VERSION));
    // An artifact says which it speaks.
    f.compile("llama3", "m.so", &["--no-golden"]);
    let shown = f.says(&[], &["inspect", "m.so"]);
    assert!(
        shown.contains(&format!("(llmcc {VERSION})\n")) && shown.contains(&format!("abi         {api}, ")),
        "{shown}"
    );
    assert!(!shown.contains(commit) || commit == "unknown", "artifacts do not depend on the commit: {shown}");
}

#[test]
fn artifacts_carry_the_licences_of_their_runtime() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--w4", "--no-golden"]);
    let shown = f.says(&[], &["inspect", "--licenses", "m.so"]);
    for part in
        ["llmcc itself", "tokenizers 0.", "the Rust standard library", "Permission is hereby granted", "Apache License"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("cranelift"), "the compiler is in no artifact");
    // Anybody can read them, without llmcc.
    let artifact = fs::read(f.at("m.so")).expect("an artifact");
    assert!(artifact.windows(shown.len()).any(|w| w == shown.as_bytes()));
    let compiler = f.says(&[], &["licenses"]);
    assert!(compiler.contains("cranelift-codegen 0.") && compiler.contains("Capstone"), "{compiler}");
    let checkpoint = Folder::with_checkpoint();
    let refused = checkpoint.llmcc(&["inspect", "--licenses", "ck"]);
    assert!(text(&refused.stderr).contains("--licenses is for artifacts"), "{}", text(&refused.stderr));
}

/// A program in `f` that runs `script`.
fn program(f: &Folder, script: &str) -> PathBuf {
    let path = f.at("llmcc-cuda");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    path
}

#[test]
fn a_program_with_llvm_of_another_version_is_refused() {
    let f = Folder::with_checkpoint();
    for (script, says) in [("echo llmcc-cuda 0.0.9", "llmcc-cuda has version 0.0.9"), ("exit 3", "is not llmcc-cuda")] {
        let path = program(&f, script);
        let done = f.llmcc_with(&[(VARIABLE, path.as_os_str())], &["compile", "ck", "--target", "sm90", "-o", "m.so"]);
        let said = text(&done.stderr);
        assert!(done.status.code() == Some(2) && said.contains(says), "{said}");
        assert!(!f.at("m.so").exists());
    }
    let gone =
        f.llmcc_with(&[(VARIABLE, OsStr::new("/no/llmcc-cuda"))], &["compile", "ck", "--target", "sm90", "-o", "m.so"]);
    assert!(text(&gone.stderr).contains("cannot run /no/llmcc-cuda"), "{}", text(&gone.stderr));
    // Targets that need no LLVM do not ask for it.
    let path = program(&f, "exit 3");
    f.says(&[(VARIABLE, path.as_os_str())], &["compile", "ck", "--target", "x86-64", "--no-golden", "-o", "m.so"]);
}

/// LLVM in another program makes the same artifact.
#[test]
fn kernels_are_lowered_by_another_program() {
    if !HAS_LLVM {
        eprintln!("skipped: built without the feature `gpu`");
        return;
    }
    let f = Folder::with_checkpoint();
    let llmcc = env!("CARGO_BIN_EXE_llmcc");
    let served = f.at("served");
    let script = format!(
        "case $1 in --version) echo llmcc-cuda {VERSION};; *) touch {}; exec {llmcc} llvm-worker;; esac",
        served.display()
    );
    let path = program(&f, &script);
    let arguments = ["compile", "ck", "--target", "sm90", "--w4", "--no-golden", "-o"];
    f.says(&[], &[&arguments[..], &["inside.so"]].concat());
    assert!(!served.exists());
    f.says(&[(VARIABLE, path.as_os_str())], &[&arguments[..], &["beside.so"]].concat());
    assert!(served.exists());
    assert!(fs::read(f.at("inside.so")).expect("made") == fs::read(f.at("beside.so")).expect("made"));
}

#[test]
fn without_llvm_the_message_names_the_package() {
    if HAS_LLVM {
        eprintln!("skipped: built with the feature `gpu`");
        return;
    }
    let f = Folder::with_checkpoint();
    let nowhere = [("PATH", OsStr::new(""))];
    let done = f.llmcc_with(&nowhere, &["compile", "ck", "--target", "sm90", "-o", "m.so"]);
    let said = text(&done.stderr);
    assert!(said.contains("target `sm90` needs LLVM") && said.contains("pip install llmcc-aot-cuda"), "{said}");
    assert!(f.says(&nowhere, &["targets"]).contains("llmcc-aot-cuda"));
}
