//! With the feature `llvm`: makes Debian's MLIR linkable.
//!
//! `mlir-sys` asks for `libMLIR-C.so`. Debian ships the C API as static archives only; a linker
//! script of that name joins them with the shared MLIR and LLVM, so that there is one LLVM in the
//! process. Binaries find those by their run path.
//!
//! With the feature `static`, linker scripts take the place of the shared libraries, too: everything
//! comes from archives, C++'s own library included, and the binary runs without LLVM.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Archives of the system that LLVM needs, and C++'s library.
const BESIDE_LLVM: [&str; 3] = ["libz.a", "libzstd.a", "libstdc++.a"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=MLIR_SYS_220_PREFIX");
    if env::var_os("CARGO_FEATURE_LLVM").is_none() {
        return;
    }
    let prefix = env::var("MLIR_SYS_220_PREFIX").unwrap_or_else(|_| "/usr/lib/llvm-22".into());
    let lib = PathBuf::from(&prefix).join("lib");
    let Ok(archives) = archives(&lib) else {
        println!(
            "cargo::error=no {}: install LLVM and MLIR 22 (`make GPU=1`), or set MLIR_SYS_220_PREFIX",
            lib.display()
        );
        return;
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let alone = env::var_os("CARGO_FEATURE_STATIC").is_some();
    let written = if alone { archives_only(&out, &archives) } else { shared(&out, &lib, &archives) };
    if let Err(e) = written {
        println!("cargo::error=cannot write the linker script: {e}");
    }
    println!("cargo::rustc-link-search=native={}", out.display());
    if !alone {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
        println!("cargo::metadata=lib={}", lib.display());
    }
}

/// The archives of LLVM and MLIR, by name.
fn archives(lib: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = fs::read_dir(lib)?.filter_map(|e| Some(e.ok()?.path())).collect();
    all.retain(|p| p.extension().is_some_and(|e| e == "a") && (named(p, "libMLIR") || named(p, "libLLVM")));
    all.sort();
    Ok(all)
}

fn named(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(start))
}

/// The C API from archives, all else from shared libraries.
fn shared(out: &Path, lib: &Path, archives: &[PathBuf]) -> io::Result<()> {
    let mut all: Vec<PathBuf> = archives.iter().filter(|p| named(p, "libMLIRCAPI")).cloned().collect();
    if all.is_empty() {
        return Ok(());
    }
    all.extend([lib.join("libMLIR.so"), lib.join("libLLVM-22.so")]);
    script(out, "libMLIR-C.so", &all)
}

/// Everything from archives, by the names of the shared libraries that the bindings ask for.
fn archives_only(out: &Path, archives: &[PathBuf]) -> io::Result<()> {
    let mut all = archives.to_vec();
    for name in BESIDE_LLVM {
        all.push(of_compiler(name)?);
    }
    for name in ["libMLIR-C.so", "libMLIR.so", "libLLVM-22.so"] {
        script(out, name, &all)?;
    }
    Ok(())
}

/// Where the C++ compiler finds an archive.
fn of_compiler(name: &str) -> io::Result<PathBuf> {
    let done = Command::new("c++").arg(format!("-print-file-name={name}")).output()?;
    let path = PathBuf::from(String::from_utf8_lossy(&done.stdout).trim());
    match path.is_absolute() {
        true => fs::canonicalize(path),
        false => Err(io::Error::other(format!("the C++ compiler has no {name}"))),
    }
}

fn script(out: &Path, name: &str, files: &[PathBuf]) -> io::Result<()> {
    let files: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    fs::write(out.join(name), format!("GROUP ( {} )\n", files.join(" ")))
}
