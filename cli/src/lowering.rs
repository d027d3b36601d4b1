//! Where LLVM is, which lowers kernels for GPUs: in this program (cargo feature `gpu`), or in the
//! program `llmcc-cuda`, which the package `llmcc-aot-cuda` brings and which serves `llmcc` as a
//! worker.

use crate::Error;
use crate::version::VERSION;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether this program has LLVM in it.
pub const INSIDE: bool = cfg!(feature = "gpu");

/// The environment variable that names an `llmcc-cuda`, which then takes the place of the LLVM inside.
pub const VARIABLE: &str = "LLMCC_CUDA_PROGRAM";
const PROGRAM: &str = "llmcc-cuda";

/// The program with LLVM that is to be used; `None`: that inside, if there is one.
pub fn find() -> Option<PathBuf> {
    let named = env::var_os(VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from);
    named.or_else(|| {
        if INSIDE { None } else { installed(env::current_exe().ok().as_deref(), env::var_os("PATH").as_deref()) }
    })
}

/// The `llmcc-cuda` beside the program `llmcc`, else the first in `path`.
fn installed(llmcc: Option<&Path>, path: Option<&OsStr>) -> Option<PathBuf> {
    let beside = llmcc.and_then(Path::parent).map(Path::to_owned);
    let others = path.into_iter().flat_map(env::split_paths);
    beside.into_iter().chain(others).map(|folder| folder.join(PROGRAM)).find(|p| p.is_file())
}

/// Checks that there is an LLVM, in a program of this version, for `purpose`, which needs it.
///
/// # Errors
/// [`Error::Usage`] saying how to get it.
pub fn check(purpose: &str) -> Result<(), Error> {
    match find() {
        Some(program) => same_version(&program, said(&program)?.trim()),
        None if INSIDE => Ok(()),
        None => Err(Error::Usage(format!(
            "{purpose} needs LLVM, which this llmcc was built without: `pip install llmcc-aot-cuda` (version \
                {VERSION}) brings it; from source, `make GPU=1` builds llmcc with it"
        ))),
    }
}

/// The answer of a program to `--version`.
fn said(program: &Path) -> Result<String, Error> {
    let done = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let done = done.map_err(|e| Error::io("run", program, e))?;
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Programs of different versions may understand each other's kernels differently.
fn same_version(program: &Path, said: &str) -> Result<(), Error> {
    match said.strip_prefix("llmcc-cuda ") {
        Some(VERSION) => Ok(()),
        Some(other) => Err(Error::Usage(format!(
            "{} has version {other}, this llmcc {VERSION}: install llmcc-aot and llmcc-aot-cuda of one version",
            program.display()
        ))),
        None => Err(Error::Usage(format!("{} is not llmcc-cuda: it does not say its version", program.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_program_beside_comes_before_those_of_the_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let [beside, first, second] = ["beside", "first", "second"].map(|name| folder.path().join(name));
        for place in [&beside, &first, &second] {
            fs::create_dir(place).expect("made");
        }
        let path = env::join_paths([&first, &second]).expect("names");
        let found = || installed(Some(&beside.join("llmcc")), Some(&path));
        assert_eq!(found(), None);
        for place in [&second, &first, &beside] {
            fs::write(place.join(PROGRAM), "").expect("written");
            assert_eq!(found(), Some(place.join(PROGRAM)));
        }
        assert_eq!(installed(Some(&beside.join("llmcc")), None), Some(beside.join(PROGRAM)), "without a path");
    }

    #[test]
    fn programs_of_other_versions_are_refused() {
        let program = Path::new("/x/llmcc-cuda");
        assert!(same_version(program, &format!("llmcc-cuda {VERSION}")).is_ok());
        let said = |text: &str| same_version(program, text).expect_err("another").to_string();
        let other = said("llmcc-cuda 0.0.9");
        assert!(other.contains("/x/llmcc-cuda has version 0.0.9") && other.contains(VERSION), "{other}");
        assert!(said("").contains("is not llmcc-cuda"));
    }
}
