//! Folders of tests in which the command line is run.

use llmcc_codegen::sealed::Sealed;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The example model, which has a tokenizer: for [`Folder::compile`].
pub const WITH_TOKENIZER: &str = "examples/tiny-llama/model";

/// A temporary folder.
pub struct Folder(tempfile::TempDir);

impl Folder {
    /// An empty one.
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("temporary folder"))
    }
    /// One with a sound copy of the two-layer fixture in `ck`.
    pub fn with_checkpoint() -> Folder {
        let folder = Folder::new();
        fs::create_dir(folder.at("ck")).expect("folder");
        for name in ["config.json", "model.safetensors"] {
            fs::copy(fixture("llama3").join(name), folder.at("ck").join(name)).expect("fixture");
        }
        folder
    }
    pub fn root(&self) -> &Path {
        self.0.path()
    }
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    /// Names in a folder of this one, in order.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(folder)).expect("folder");
        let mut names: Vec<_> = entries.map(|e| e.expect("entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
    /// The command line, which compiles [for this machine](native).
    pub fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_llmcc"));
        // Nothing is fetched, whatever a test names.
        c.current_dir(self.root()).args(native(args)).env("HF_HUB_OFFLINE", "1");
        c
    }
    pub fn llmcc(&self, args: &[&str]) -> Output {
        self.llmcc_with(&[], args)
    }
    pub fn llmcc_with(&self, environment: &[(&str, &OsStr)], args: &[&str]) -> Output {
        self.command(args).envs(environment.iter().copied()).output().expect("llmcc runs")
    }
    /// A command with a text on its standard input.
    pub fn piped(&self, args: &[&str], input: &(impl AsRef<[u8]> + ?Sized)) -> Output {
        let pipe = || Stdio::piped();
        let mut child = self.command(args).stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().expect("llmcc runs");
        // A command may end before it reads anything.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_ref());
        child.wait_with_output().expect("ends")
    }
    /// The output of a command that must succeed.
    pub fn says(&self, environment: &[(&str, &OsStr)], args: &[&str]) -> String {
        let done = self.llmcc_with(environment, args);
        assert!(done.status.success(), "{args:?}: {}", text(&done.stderr));
        text(&done.stdout)
    }
    /// Compiles a fixture, or the example model; returns the report.
    pub fn compile(&self, name: &str, out: &str, more: &[&str]) -> String {
        let done = self.llmcc(&[&["compile", &fixture(name).to_string_lossy(), "-o", out], more].concat());
        let said = text(&done.stderr);
        assert!(done.status.success(), "{said}");
        said
    }
    pub fn verify(&self, args: &[&str]) -> Result<String, String> {
        let done = self.llmcc(&[&["verify"], args].concat());
        if done.status.success() { Ok(text(&done.stdout) + &text(&done.stderr)) } else { Err(text(&done.stderr)) }
    }
    pub fn manifest(&self, artifact: &str) -> serde_json::Value {
        serde_json::from_slice(&self.llmcc(&["inspect", artifact, "--json"]).stdout).expect("manifest")
    }
    /// The root of an artifact's hashes.
    pub fn root_of(&self, artifact: &str) -> String {
        Sealed::open(&self.at(artifact)).expect("an artifact").root().iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// Arguments of the command line with `--target native` where a `compile` names no target: one version
/// takes a third of the time of the default's three.
pub fn native<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let silent = args.first() == Some(&"compile") && !args.iter().any(|a| a.starts_with("--target"));
    args.iter().chain(if silent { &["--target", "native"][..] } else { &[] }).copied().collect()
}

/// A fixture of `tests/goldens` with its weights, or [`WITH_TOKENIZER`].
pub fn fixture(name: &str) -> PathBuf {
    match name {
        WITH_TOKENIZER => Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name),
        _ => llmcc_test_support::fixture(name),
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
