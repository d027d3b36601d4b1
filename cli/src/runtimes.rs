//! The places of runtimes, which artifacts begin with: this program holds the runtime of its own architecture, and
//! `make runtimes` builds files for other architectures.

use crate::Error;
use crate::version::VERSION;
use llmcc_ir::target::{CpuIsa, Machine, TargetSpec};
use std::borrow::Cow;
use std::env;
use std::path::{Path, PathBuf};

/// The environment variable that names a folder with runtimes.
pub const VARIABLE: &str = "LLMCC_RUNTIMES";

/// Which runtime an artifact has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// Without tokenizer and templates: models that have no `tokenizer.json`.
    Core,
    /// With them.
    Full,
    /// With readers of sounds or images, too: models with an encoder for them.
    Media,
}

impl Runtime {
    /// Its name in reports, and what it has.
    pub fn described(self) -> (&'static str, &'static str) {
        match self {
            Runtime::Core => ("core", "no tokenizer"),
            Runtime::Full => ("full", "core, tokenizer and templates"),
            Runtime::Media => ("media", "full, and readers of sounds and images"),
        }
    }

    /// The runtime of this program's own architecture.
    const fn own(self) -> &'static [u8] {
        match self {
            Runtime::Core => llmcc_rt_image::CORE,
            Runtime::Full => llmcc_rt_image::FULL,
            Runtime::Media => llmcc_rt_image::MEDIA,
        }
    }

    /// The name of its file.
    fn file(self, machine: Machine) -> String {
        llmcc_rt_image::file_name(machine.name(), self.described().0)
    }
}

/// The architecture of the processors that run an artifact for `targets`: that of their versions for processors, else
/// this program's.
pub fn machine(targets: &[&TargetSpec]) -> Machine {
    targets.iter().find_map(|t| t.cpu()).map_or(Machine::HERE, CpuIsa::machine)
}

/// The runtime of a kind for `machine`.
///
/// # Errors
/// [`Error::Usage`] saying how to get it, [`Error::Io`] when its file cannot be read.
pub fn find(machine: Machine, kind: Runtime) -> Result<Cow<'static, [u8]>, Error> {
    if machine == Machine::HERE {
        return Ok(Cow::Borrowed(kind.own()));
    }
    let path = place(machine, kind, &folders(env::current_exe().ok().as_deref()))?;
    std::fs::read(&path).map(Cow::Owned).map_err(|e| Error::io("read", &path, e))
}

/// Checks that there is a runtime for the targets, before anything is computed for them.
///
/// # Errors
/// [`Error::Usage`] saying how to get it.
pub fn check(targets: &[&TargetSpec]) -> Result<(), Error> {
    let machine = machine(targets);
    if machine == Machine::HERE {
        return Ok(());
    }
    place(machine, Runtime::Core, &folders(env::current_exe().ok().as_deref())).map(|_| ())
}

/// Folders in which runtimes are looked for: the one that [`VARIABLE`] names, else `../lib/llmcc` of the folder of the
/// program `llmcc`, as `make install` makes it, and that folder.
fn folders(llmcc: Option<&Path>) -> Vec<PathBuf> {
    if let Some(named) = env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        return vec![named.into()];
    }
    let Some(beside) = llmcc.and_then(Path::parent) else { return vec![] };
    beside.parent().map(|prefix| prefix.join("lib/llmcc")).into_iter().chain([beside.to_owned()]).collect()
}

/// The file of a runtime in the first of `folders` that has it.
fn place(machine: Machine, kind: Runtime, folders: &[PathBuf]) -> Result<PathBuf, Error> {
    let name = kind.file(machine);
    if let Some(found) = folders.iter().map(|folder| folder.join(&name)).find(|path| path.is_file()) {
        return Ok(found);
    }
    let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Err(Error::Usage(format!(
        "artifacts for {} need its runtime, {name}, which is not in {}: `make runtimes` in the source of this llmcc \
            ({VERSION}) builds it, and {VARIABLE}=FOLDER says where it is; or compile on such a machine",
        machine.name(),
        looked.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmcc_ir::target::find as target;

    #[test]
    fn runtimes_are_found_by_their_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let other = Machine::ALL.into_iter().find(|m| *m != Machine::HERE).expect("two");
        let empty = [folder.path().join("none"), folder.path().to_owned()];
        let missing = place(other, Runtime::Full, &empty).expect_err("none").to_string();
        for part in [other.name(), "make runtimes", VARIABLE, "none", &Runtime::Full.file(other)] {
            assert!(missing.contains(part), "{part}: {missing}");
        }
        let path = folder.path().join(Runtime::Full.file(other));
        std::fs::write(&path, "").expect("written");
        assert_eq!(place(other, Runtime::Full, &empty).expect("found"), path);
        assert!(place(other, Runtime::Core, &empty).is_err());
    }

    #[test]
    fn an_artifact_is_for_one_architecture() {
        let of = |names: &[&str]| machine(&names.iter().map(|n| target(n).expect("a target")).collect::<Vec<_>>());
        assert_eq!(of(&["sm90"]), Machine::HERE);
        assert_eq!(of(&["sm90", "aarch64"]), Machine::AArch64);
        assert_eq!(of(&["x86-64-v3"]), Machine::X86_64);
    }
}
