//! How the runtime is built: as a shared object, with and without support of texts and media, by a cargo with a target
//! folder of its own.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kinds of runtimes, and their cargo features.
pub const KINDS: [(&str, &str); 3] = [("media", "media,grammar,heap"), ("full", "text,grammar,heap"), ("core", "heap")];

/// Where and for which architecture runtimes are built.
pub struct Recipe<'a> {
    /// The workspace.
    pub workspace: &'a Path,
    /// Folder for what cargo builds.
    pub target: &'a Path,
    /// Folder for other files of the build.
    pub scratch: &'a Path,
    /// Architecture, where it is not this machine's: its triple, and the C compiler that links for it.
    pub other: Option<(&'a str, &'a OsStr)>,
    /// Whether to optimise at link time: three more passes over all machine code, for a twentieth of the size. Only for
    /// a compiler that is handed out.
    pub lto: bool,
}

impl Recipe<'_> {
    /// Builds a kind of runtime with these features. Returns where it lies, until the next is built.
    ///
    /// # Errors
    /// A sentence that says which step failed.
    pub fn build(&self, kind: &str, features: &str) -> Result<PathBuf, String> {
        let linker = self.linker().map_err(|e| format!("{}: {e}", self.scratch.display()))?;
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(self.workspace)
            .args(["rustc", "--locked", "--profile", "rt", "-p", "llmcc-rt", "--lib", "--crate-type", "cdylib"])
            .args(["--no-default-features", "--features", features])
            .arg("--target-dir")
            .arg(self.target);
        if let Some((triple, _)) = self.other {
            cargo.args(["--target", triple]);
            cargo.envs(env::var_os("LLMCC_CROSS_RUSTC").filter(|v| !v.is_empty()).map(|rustc| ("RUSTC", rustc)));
        }
        cargo
            .args(["--", "-C", &format!("link-arg=-Wl,-soname,{}", room_for_a_name())])
            .args(["-C", &format!("linker={}", linker.display())])
            // The same bytes whatever folder the compiler is built in.
            .env("RUSTFLAGS", self.flags());
        clean(&mut cargo);
        if !self.lto {
            cargo.env("CARGO_PROFILE_RT_LTO", "off");
        }
        let status = cargo.status().map_err(|e| format!("cargo does not run: {e}"))?;
        let built = self.target.join(self.other.map_or("", |(triple, _)| triple)).join("rt/libllmcc_rt.so");
        match status.success() && built.is_file() {
            true => Ok(built),
            false => Err(format!("building the runtime ({kind}) failed; see the messages above")),
        }
    }

    /// Flags of the compiler: no path of this machine in the code, and the standard library of another architecture
    /// from where `LLMCC_CROSS_SYSROOT` says.
    fn flags(&self) -> String {
        let home = env::var("CARGO_HOME").or_else(|_| env::var("HOME").map(|h| h + "/.cargo")).unwrap_or_default();
        let workspace = std::fs::canonicalize(self.workspace).unwrap_or_else(|_| self.workspace.into());
        let remap = format!("--remap-path-prefix={}=llmcc --remap-path-prefix={home}=cargo", workspace.display());
        match env::var("LLMCC_CROSS_SYSROOT") {
            Ok(sysroot) if self.other.is_some() && !sysroot.is_empty() => format!("{remap} --sysroot={sysroot}"),
            _ => remap,
        }
    }

    /// A linker that exports the C API alone: rustc's list of exported symbols has the functions that dependencies
    /// export to C, too (`llguidance`).
    fn linker(&self) -> io::Result<PathBuf> {
        let cc = self.other.map_or(OsStr::new("cc"), |(_, cc)| cc);
        let script = format!(
            r#"#!/bin/sh
for argument in "$@"; do
    case "$argument" in
    -Wl,--version-script=*) sed -i '/^ *llg_/d' "${{argument#-Wl,--version-script=}}" ;;
    esac
done
exec {} "$@"
"#,
            cc.display()
        );
        // (By this name rustc knows which options it takes.)
        let path = self.scratch.join("cc");
        std::fs::write(&path, script)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(path)
    }
}

/// Takes settings of an outer cargo for its own build away (except wrappers of clippy, flags, jobserver), which must
/// not reach this one.
fn clean(cargo: &mut Command) {
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
        if ["CARGO_FEATURE_", "CARGO_CFG_", "CARGO_PROFILE_"].iter().any(|prefix| name.starts_with(prefix)) {
            cargo.env_remove(&var);
        }
    }
}

/// The name (`DT_SONAME`) that artifacts have room for: as long as the name of a file may be. The linker
/// of artifacts writes another one in its place, or takes it out (`codegen/src/link/soname.rs`).
fn room_for_a_name() -> String {
    format!("{:-<255}", "llmcc-runtime-without-a-name")
}
