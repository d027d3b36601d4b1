//! With the feature `llvm`: makes Debian's MLIR linkable.
//!
//! `mlir-sys` asks for `libMLIR-C.so`. Debian ships the C API as static archives only; a linker
//! script of that name joins them with the shared MLIR and LLVM, so that there is one LLVM in the
//! process. Binaries find those by their run path.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=MLIR_SYS_220_PREFIX");
    if env::var_os("CARGO_FEATURE_LLVM").is_none() {
        return;
    }
    let prefix = env::var("MLIR_SYS_220_PREFIX").unwrap_or_else(|_| "/usr/lib/llvm-22".into());
    let lib = PathBuf::from(&prefix).join("lib");
    let Ok(dir) = fs::read_dir(&lib) else {
        println!(
            "cargo::error=no {}: install LLVM and MLIR 22 (`make GPU=1`), or set MLIR_SYS_220_PREFIX",
            lib.display()
        );
        return;
    };
    let is_capi = |name: &str| name.starts_with("libMLIRCAPI") && name.ends_with(".a");
    let mut capi: Vec<String> = dir
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| is_capi(n))
        .map(|n| lib.join(n).display().to_string())
        .collect();
    capi.sort();
    if !capi.is_empty() {
        let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
        let script = format!("GROUP ( {} {1}/libMLIR.so {1}/libLLVM-22.so )\n", capi.join(" "), lib.display());
        if let Err(e) = fs::write(out.join("libMLIR-C.so"), script) {
            println!("cargo::error=cannot write the linker script: {e}");
        }
        println!("cargo::rustc-link-search=native={}", out.display());
    }
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
    println!("cargo::metadata=lib={}", lib.display());
}
