//! Where output goes: never over the checkpoint, through links, not onto devices, and nothing of it stays when a signal ends the process.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder with a copy of the two-layer fixture in `ck`.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().expect("temporary folder");
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens/llama3");
        fs::create_dir(dir.path().join("ck")).expect("folder");
        for name in ["config.json", "model.safetensors"] {
            fs::copy(from.join(name), dir.path().join("ck").join(name)).expect("fixture");
        }
        Bench { dir }
    }
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_llmcc"));
        c.current_dir(self.dir.path()).args(args);
        c
    }
    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("llmcc runs")
    }
    fn compile(&self, out: &str, more: &[&str]) -> Output {
        self.run(&[&["compile", "ck", "--quiet", "--no-golden", "-o", out], more].concat())
    }
    /// Names in a folder.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(folder)).expect("folder");
        let mut names: Vec<_> = entries.map(|e| e.expect("entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

#[track_caller]
fn refused(output: &Output, says: &[&str]) {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{}: {err}", output.status);
    for s in says {
        assert!(err.contains(s), "does not say {s:?}: {err}");
    }
}

#[track_caller]
fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn files_of_the_checkpoint_are_not_replaced() {
    let b = Bench::new();
    symlink("ck/model.safetensors", b.at("link")).expect("link");
    fs::hard_link(b.at("ck/config.json"), b.at("second-name")).expect("link");
    // Under external weights a file of the checkpoint may be called as the side file would be.
    fs::rename(b.at("ck/model.safetensors"), b.at("ck/model.weights")).expect("renamed");
    symlink("model.weights", b.at("ck/model.safetensors")).expect("link");
    let before = (fs::read(b.at("ck/config.json")).expect("config"), fs::read(b.at("ck/model.weights")).expect("weights"));
    for out in ["ck/model.safetensors", "ck/config.json", "link", "second-name", "ck/../ck/config.json"] {
        refused(&b.compile(out, &[]), &["would replace", "of the checkpoint", out]);
        refused(&b.compile(out, &["--emit", "graph"]), &["would replace"]);
    }
    refused(&b.compile("ck/model", &["--weights", "external"]), &["would replace", "ck/model.weights"]);
    assert!(before == (fs::read(b.at("ck/config.json")).expect("config"), fs::read(b.at("ck/model.weights")).expect("weights")));
    assert_eq!(b.names("ck"), ["config.json", "model.safetensors", "model.weights"]);
}

#[test]
fn artifacts_in_the_checkpoint_folder_are_replaced() {
    let b = Bench::new();
    succeeded(&b.compile("ck/m.so", &[]));
    let first = fs::metadata(b.at("ck/m.so")).expect("artifact").ino();
    succeeded(&b.compile("ck/m.so", &["--w4"]));
    assert_ne!(fs::metadata(b.at("ck/m.so")).expect("artifact").ino(), first);
    assert_eq!(b.names("ck"), ["config.json", "m.so", "model.safetensors"]);
}

#[test]
fn links_are_followed_and_devices_refused() {
    let b = Bench::new();
    fs::create_dir(b.at("there")).expect("folder");
    symlink("there/m.so", b.at("m.so")).expect("link");
    succeeded(&b.compile("m.so", &["--weights", "external"]));
    assert!(fs::symlink_metadata(b.at("m.so")).expect("link").is_symlink());
    assert_eq!(b.names("there"), ["m.so", "m.so.weights"]);
    // A link of the test's own leads to the device: what replaces it would not hurt the machine.
    symlink("/dev/null", b.at("null")).expect("link");
    refused(&b.compile("null", &[]), &["null", "a device"]);
    assert!(fs::metadata("/dev/null").expect("device").file_type().is_char_device());
    // A text is written to a device as it is.
    succeeded(&b.compile("null", &["--emit", "graph"]));
    assert!(fs::symlink_metadata(b.at("null")).expect("link").is_symlink());
    let shown = b.compile("/dev/stdout", &["--emit", "graph"]);
    succeeded(&shown);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("func"), "the graph");
    assert_eq!(b.names("."), ["ck", "m.so", "null", "there"]);
}

#[test]
fn signals_leave_nothing() {
    let b = Bench::new();
    for (signal, name) in [(libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM"), (libc::SIGHUP, "SIGHUP")] {
        let ended = (0..50).find_map(|_| interrupted(&b, signal));
        let ended = ended.unwrap_or_else(|| panic!("{name} never came in time: 50 compilations ended before"));
        assert_eq!(ended, Some(signal), "the parent sees {name}");
        assert_eq!(b.names("."), ["ck"], "after {name}");
    }
}

/// Sends a signal to a compilation as soon as its temporary file is there. The signal that ended it (`Some(None)`: it ended otherwise), or `None` if it was faster.
fn interrupted(b: &Bench, signal: i32) -> Option<Option<i32>> {
    let mut command = b.command(&["compile", "ck", "--quiet", "--weights", "external", "-o", "m.so"]);
    // Whoever runs the tests in the background may ignore interrupts, which children inherit.
    dispose(&mut command, signal, libc::SIG_DFL);
    let mut child = command.stderr(Stdio::null()).spawn().expect("llmcc runs");
    let start = Instant::now();
    while !b.names(".").iter().any(|n| n.ends_with(".tmp")) && running(&mut child) {
        assert!(start.elapsed() < Duration::from_secs(120), "no temporary file");
        std::thread::sleep(Duration::from_micros(200));
    }
    // SAFETY: a child that has not been waited for keeps its number.
    unsafe { libc::kill(child.id() as i32, signal) };
    let status = child.wait().expect("ended");
    for made in ["m.so", "m.so.weights"] {
        let _ = fs::remove_file(b.at(made));
    }
    if status.success() { None } else { Some(status.signal()) }
}

/// Has the program start with this disposition of a signal.
fn dispose(command: &mut Command, signal: i32, how: libc::sighandler_t) {
    // SAFETY: only sets a disposition, between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::signal(signal, how);
            Ok(())
        })
    };
}

fn running(child: &mut Child) -> bool {
    child.try_wait().expect("a child").is_none()
}

#[test]
fn ignored_signals_stay_ignored() {
    let b = Bench::new();
    let mut command = b.command(&["compile", "ck", "--quiet", "-o", "m.so"]);
    dispose(&mut command, libc::SIGHUP, libc::SIG_IGN);
    let mut child = command.spawn().expect("llmcc runs");
    while running(&mut child) {
        // SAFETY: as above.
        unsafe { libc::kill(child.id() as i32, libc::SIGHUP) };
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(child.wait().expect("ended").success());
    assert_eq!(b.names("."), ["ck", "m.so"]);
}

#[test]
fn wrong_numbers_and_options_are_named() {
    let b = Bench::new();
    refused(&b.run(&["run", "m.so", "-p", "x", "-n", "-1"]), &["-1", "--max-tokens", "1..="]);
    refused(&b.run(&["run", "m.so", "-p", "x", "-n", "0"]), &["0", "--max-tokens", "1..="]);
    refused(&b.run(&["run", "m.so", "-p", "x", "--system", "y"]), &["--system goes with --chat"]);
    refused(&b.run(&["run", "m.so", "-p", "-1", "-n", "1"]), &["m.so"]);
    refused(&b.run(&["eval", "ppl", "m.so", "t.txt", "--window", "-5"]), &["-5", "--window"]);
}
