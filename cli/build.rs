//! The commit that `llmcc --version` prints; with LLVM in it (cargo feature `gpu` of `llmcc`), also
//! where the binary finds the shared LLVM and MLIR when it runs.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(lib) = env::var("DEP_LLMCC_GPU_LIB") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
    }
    println!("cargo::rustc-env=LLMCC_BUILT_FROM={}", commit().unwrap_or_else(|| "unknown".into()));
}

/// The commit of the sources: from the environment variable `LLMCC_COMMIT`, from `commit.txt`, which
/// `git archive` fills in, or from Git. Development builds do not ask Git: each commit would build the
/// command line again.
fn commit() -> Option<String> {
    println!("cargo::rerun-if-env-changed=LLMCC_COMMIT");
    println!("cargo::rerun-if-changed=commit.txt");
    let given = env::var("LLMCC_COMMIT").ok().filter(|c| !c.is_empty());
    let archived = || fs::read_to_string("commit.txt").ok().filter(|c| !c.starts_with('$')).map(|c| c.trim().into());
    let release = env::var("PROFILE").is_ok_and(|p| p == "release");
    given.or_else(archived).or_else(|| if release { of_git() } else { None })
}

/// The commit that is checked out, if Git keeps this very folder.
fn of_git() -> Option<String> {
    if git(&["rev-parse", "--show-prefix"])? != "cli/" {
        return None;
    }
    let folder = git(&["rev-parse", "--absolute-git-dir"])?;
    for file in ["HEAD", "logs/HEAD"] {
        let path = Path::new(&folder).join(file);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&["rev-parse", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let done = Command::new("git").args(args).output().ok().filter(|d| d.status.success())?;
    Some(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}
