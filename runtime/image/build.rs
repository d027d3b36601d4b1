//! Builds the runtime as a shared object, with and without support of texts and media, by a nested cargo with a
//! target folder of its own (the outer one is locked), so that a plain `cargo build` of the
//! compiler is all a user needs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let workspace = here.join("../..");
    for dir in ["runtime/abi", "runtime/ukernels", "runtime/text", "runtime/media", "runtime/rt"] {
        println!("cargo::rerun-if-changed={}", workspace.join(dir).display());
    }
    // Versions, and the profile.
    for file in ["Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", workspace.join(file).display());
    }
    for (name, features) in [("media", "media,grammar,heap"), ("full", "text,grammar,heap"), ("core", "heap")] {
        build(&workspace, &out, name, features);
    }
}

fn build(workspace: &Path, out: &Path, name: &str, features: &str) {
    // One folder for all profiles of the compiler: `<target>/<profile>/build/<crate>/out` is four
    // levels down.
    let target = out.ancestors().nth(4).unwrap_or(out).join("runtime-image");
    let mut cargo = Command::new(env::var_os("CARGO").expect("set by cargo"));
    cargo
        .current_dir(workspace)
        .args([
            "rustc",
            "--locked",
            "--profile",
            "rt",
            "-p",
            "llmcc-rt",
            "--lib",
            "--crate-type",
            "cdylib",
            "--no-default-features",
        ])
        .args(["--features", features])
        .arg("--target-dir")
        .arg(&target)
        .args(["--", "-C", &format!("link-arg=-Wl,-soname,{}", room_for_a_name())])
        .args(["-C", &format!("linker={}", linker(out).display())])
        // The same bytes whatever folder the compiler is built in.
        .env("RUSTFLAGS", remap(workspace));
    // Settings of the outer cargo for this build (except wrappers of clippy, flags, jobserver) must
    // not reach the runtime's build.
    for var in [
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "CARGO_BUILD_TARGET",
        "LLVM_PROFILE_FILE",
    ] {
        cargo.env_remove(var);
    }
    for (var, _) in env::vars_os() {
        let name = var.to_string_lossy();
        if name.starts_with("CARGO_FEATURE_") || name.starts_with("CARGO_CFG_") || name.starts_with("CARGO_PROFILE_") {
            cargo.env_remove(&var);
        }
    }
    // Three more passes over all machine code, for a twentieth of the size: only for a compiler that is handed out.
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        cargo.env("CARGO_PROFILE_RT_LTO", "off");
    }
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "building the runtime ({name}) failed; see the messages above");
    let built = target.join("rt/libllmcc_rt.so");
    let to = out.join(format!("rt-{name}.so"));
    std::fs::copy(&built, &to).unwrap_or_else(|e| panic!("{}: {e}", built.display()));
}

/// A linker that exports the C API alone: rustc's list of exported symbols has the functions that dependencies export
/// to C, too (`llguidance`).
fn linker(out: &Path) -> PathBuf {
    const SCRIPT: &str = r#"#!/bin/sh
for argument in "$@"; do
    case "$argument" in
    -Wl,--version-script=*) sed -i '/^ *llg_/d' "${argument#-Wl,--version-script=}" ;;
    esac
done
exec cc "$@"
"#;
    // (By this name rustc knows which options it takes.)
    let path = out.join("cc");
    std::fs::write(&path, SCRIPT).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, all).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

/// The name (`DT_SONAME`) that artifacts have room for: as long as the name of a file may be. The linker
/// of artifacts writes another one in its place, or takes it out (`codegen/src/link/soname.rs`).
fn room_for_a_name() -> String {
    format!("{:-<255}", "llmcc-runtime-without-a-name")
}

fn remap(workspace: &Path) -> String {
    let home = env::var("CARGO_HOME").or_else(|_| env::var("HOME").map(|h| h + "/.cargo")).unwrap_or_default();
    let workspace = std::fs::canonicalize(workspace).unwrap_or_else(|_| workspace.into());
    format!("--remap-path-prefix={}=llmcc --remap-path-prefix={home}=cargo", workspace.display())
}
