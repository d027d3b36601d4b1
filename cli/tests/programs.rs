//! Programs that are built with models against an installed llmcc: with pkg-config, by CMake, in Rust.

use crate::common::{Folder, WITH_TOKENIZER, text};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROMPT: &str = "def read_file(path):";

/// Whether a program is missing. `make test` installs all of them, and then none may be.
fn missing(programs: &[&str]) -> bool {
    let absent = |p: &&&str| Command::new(p).arg("--version").output().is_err();
    let Some(program) = programs.iter().find(absent) else { return false };
    assert!(std::env::var_os("LLMCC_TEST_PROGRAMS").is_none(), "{program} is missing");
    println!("skipped: {program} is missing (`make test` installs it)");
    true
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}\n{}\n{}", out.status, text(&out.stdout), text(&out.stderr));
    text(&out.stdout)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A command that is no part of the `make` or `cargo` that runs the tests.
fn plain(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS", "CARGO_TARGET_DIR", "RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
}

/// The prefix of an installation, in a folder that it was moved to.
fn installed(folder: &Folder) -> PathBuf {
    run(plain("make")
        .current_dir(root())
        .args(["-s", "install", "PREFIX=/usr/local"])
        .arg(format!("DESTDIR={}", folder.at("stage").display()))
        .arg(format!("LLMCC={}", env!("CARGO_BIN_EXE_llmcc"))));
    let moved = folder.at("elsewhere");
    std::fs::rename(folder.at("stage/usr/local"), &moved).expect("moved");
    moved
}

/// The text that the command line makes of the most probable tokens.
fn by_command_line(folder: &Folder, artifact: &str) -> String {
    folder.says(&[], &["run", artifact, "-p", PROMPT, "-n", "40", "--temperature", "0"])
}

#[test]
fn pkg_config_finds_the_header() {
    if missing(&["cc", "pkg-config"]) {
        return;
    }
    let folder = Folder::new();
    let prefix = installed(&folder);
    folder.compile(WITH_TOKENIZER, "tiny.so", &["--w4", "--no-golden", "--quiet"]);
    let ask = |what: &[&str]| {
        run(Command::new("pkg-config").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(what).arg("llmcc"))
    };
    let version = ask(&["--modversion"]);
    assert!(env!("CARGO_PKG_VERSION").starts_with(version.trim()), "{version}");
    let flags = ask(&["--cflags", "--libs"]);
    let (exe, source) = (folder.at("linked"), root().join("examples/cmake/linked.c"));
    run(Command::new("cc").arg(source).args(flags.split_whitespace()).arg(folder.at("tiny.so")).arg("-o").arg(&exe));
    let said = run(Command::new(&exe).arg(PROMPT));
    let expected = by_command_line(&folder, "tiny.so");
    assert!(said.len() > 20 && expected.contains(said.trim()), "{said:?} {expected:?}");
}

#[test]
fn cmake_finds_the_package_and_compiles_models() {
    if missing(&["cc", "c++", "cmake"]) {
        return;
    }
    let folder = Folder::new();
    let prefix = installed(&folder);
    let configure = |source: &Path, build: &str, more: &[&str]| {
        let mut command = plain("cmake");
        let prefix = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
        command.arg("-S").arg(source).arg("-B").arg(folder.at(build)).arg(prefix).args(more);
        command
    };
    run(&mut configure(&root().join("examples/cmake"), "build", &[]));
    run(plain("cmake").arg("--build").arg(folder.at("build")));
    let expected = by_command_line(&folder, "build/tiny.so");
    let linked = run(Command::new(folder.at("build/linked")).arg(PROMPT));
    let opened = run(Command::new(folder.at("build/opened")).arg(folder.at("build/tiny.so")).arg(PROMPT));
    assert!(linked.len() > 20 && expected.contains(linked.trim()), "{linked:?} {expected:?}");
    assert_eq!(linked, opened);
    // Nothing is compiled again where nothing changed.
    let made = |f: &Folder| std::fs::metadata(f.at("build/tiny.so")).and_then(|m| m.modified()).expect("an artifact");
    let before = made(&folder);
    run(plain("cmake").arg("--build").arg(folder.at("build")));
    assert_eq!(made(&folder), before);

    // Wrong versions and arguments are refused in words.
    for (asked, says) in [
        ("find_package(llmcc 9.9 REQUIRED)", "9.9"),
        ("find_package(llmcc REQUIRED)\nllmcc_add_model(m FILE none.so)", "make it with `llmcc compile`"),
        ("find_package(llmcc REQUIRED)\nllmcc_add_model(m CHECKPOINT none)", "there is no checkpoint"),
        ("find_package(llmcc REQUIRED)\nllmcc_add_model(m)", "give either FILE"),
        (
            "find_package(llmcc REQUIRED)\nllmcc_add_model(m CHECKPOINT . OUTPUT m.so OPTIONS --soname auto)",
            "look for libm.so.1",
        ),
        ("find_package(llmcc REQUIRED)\nllmcc_add_model(m none.so)", "not understood"),
    ] {
        std::fs::create_dir_all(folder.at("wrong")).expect("folder");
        let project = format!("cmake_minimum_required(VERSION 3.18)\nproject(wrong LANGUAGES C)\n{asked}\n");
        std::fs::write(folder.at("wrong/CMakeLists.txt"), project).expect("written");
        let done = configure(&folder.at("wrong"), "wrong/build", &[]).output().expect("cmake runs");
        let said = text(&done.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!done.status.success() && said.contains(says), "{asked}: {said}");
    }
}

/// The crate builds where it is installed, without the workspace, and its example makes the text that the
/// command line makes.
#[test]
fn the_installed_crate_builds() {
    let folder = Folder::new();
    let prefix = installed(&folder);
    folder.compile(WITH_TOKENIZER, "tiny.so", &["--w4", "--no-golden", "--quiet"]);
    run(plain(env!("CARGO"))
        .args(["build", "-q", "--offline", "--example", "generate", "--manifest-path"])
        .arg(prefix.join("share/llmcc/rust/Cargo.toml"))
        .arg("--target-dir")
        .arg(folder.at("target")));
    let generate = |args: &[&str]| run(Command::new(folder.at("target/debug/examples/generate")).args(args));
    let artifact = folder.at("tiny.so");
    let artifact = artifact.to_str().expect("UTF-8");
    let said = generate(&[artifact, PROMPT]);
    let expected = folder.says(&[], &["run", "tiny.so", "-p", PROMPT, "-n", "60"]);
    assert!(said.len() > 20 && expected.contains(said.trim()), "{said:?} {expected:?}");
    assert!(generate(&[artifact, "--chat", "hello"]).len() > 1);
}

/// An installation needs the compiler and an absolute prefix.
#[test]
fn what_cannot_be_installed_says_why() {
    let folder = Folder::new();
    let install = |llmcc: &str, prefix: &str| {
        let done =
            Command::new(root().join("tools/install.sh")).args([llmcc, prefix]).current_dir(folder.root()).output();
        let done = done.expect("runs");
        assert!(!done.status.success() && folder.names("").is_empty(), "{}", text(&done.stdout));
        text(&done.stderr)
    };
    assert!(install("none", "/usr").contains("run `make build` first"));
    assert!(install(env!("CARGO_BIN_EXE_llmcc"), "usr").contains("give an absolute path"));
}
