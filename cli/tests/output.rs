//! Where output goes: never over the checkpoint, through links, not onto devices, and nothing of it
//! stays when a signal ends the process.

mod common;

use common::Folder;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn compile(f: &Folder, out: &str, more: &[&str]) -> Output {
    f.llmcc(&[&["compile", "ck", "--quiet", "--no-golden", "-o", out], more].concat())
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
    let b = Folder::with_checkpoint();
    symlink("ck/model.safetensors", b.at("link")).expect("link");
    fs::hard_link(b.at("ck/config.json"), b.at("second-name")).expect("link");
    // Under external weights a file of the checkpoint may be called as the side file would be.
    fs::rename(b.at("ck/model.safetensors"), b.at("ck/model.weights")).expect("renamed");
    symlink("model.weights", b.at("ck/model.safetensors")).expect("link");
    let before =
        (fs::read(b.at("ck/config.json")).expect("config"), fs::read(b.at("ck/model.weights")).expect("weights"));
    for out in ["ck/model.safetensors", "ck/config.json", "link", "second-name", "ck/../ck/config.json"] {
        refused(&compile(&b, out, &[]), &["would replace", "of the checkpoint", out]);
        refused(&compile(&b, out, &["--emit", "graph"]), &["would replace"]);
    }
    refused(&compile(&b, "ck/model", &["--weights", "external"]), &["would replace", "ck/model.weights"]);
    assert!(
        before
            == (
                fs::read(b.at("ck/config.json")).expect("config"),
                fs::read(b.at("ck/model.weights")).expect("weights")
            )
    );
    assert_eq!(b.names("ck"), ["config.json", "model.safetensors", "model.weights"]);
}

#[test]
fn artifacts_in_the_checkpoint_folder_are_replaced() {
    let b = Folder::with_checkpoint();
    succeeded(&compile(&b, "ck/m.so", &[]));
    let first = fs::metadata(b.at("ck/m.so")).expect("artifact").ino();
    succeeded(&compile(&b, "ck/m.so", &["--w4"]));
    assert_ne!(fs::metadata(b.at("ck/m.so")).expect("artifact").ino(), first);
    assert_eq!(b.names("ck"), ["config.json", "m.so", "model.safetensors"]);
}

#[test]
fn links_are_followed_and_devices_refused() {
    let b = Folder::with_checkpoint();
    fs::create_dir(b.at("there")).expect("folder");
    symlink("there/m.so", b.at("m.so")).expect("link");
    succeeded(&compile(&b, "m.so", &["--weights", "external"]));
    assert!(fs::symlink_metadata(b.at("m.so")).expect("link").is_symlink());
    assert_eq!(b.names("there"), ["m.so", "m.so.weights"]);
    // A link of the test's own leads to the device: what replaces it would not hurt the machine.
    symlink("/dev/null", b.at("null")).expect("link");
    refused(&compile(&b, "null", &[]), &["null", "a device"]);
    assert!(fs::metadata("/dev/null").expect("device").file_type().is_char_device());
    // A text is written to a device as it is.
    succeeded(&compile(&b, "null", &["--emit", "graph"]));
    assert!(fs::symlink_metadata(b.at("null")).expect("link").is_symlink());
    let shown = compile(&b, "/dev/stdout", &["--emit", "graph"]);
    succeeded(&shown);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("func"), "the graph");
    assert_eq!(b.names("."), ["ck", "m.so", "null", "there"]);
}

#[test]
fn signals_leave_nothing() {
    let b = Folder::with_checkpoint();
    for (signal, name) in [(libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM"), (libc::SIGHUP, "SIGHUP")] {
        let ended = (0..50).find_map(|_| interrupted(&b, signal));
        let ended = ended.unwrap_or_else(|| panic!("{name} never came in time: 50 compilations ended before"));
        assert_eq!(ended, Some(signal), "the parent sees {name}");
        assert_eq!(b.names("."), ["ck"], "after {name}");
    }
}

/// Sends a signal to a compilation as soon as its temporary file is there. The signal that ended it
/// (`Some(None)`: it ended otherwise), or `None` if it was faster.
fn interrupted(b: &Folder, signal: i32) -> Option<Option<i32>> {
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
    let b = Folder::with_checkpoint();
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
    let b = Folder::with_checkpoint();
    refused(&b.llmcc(&["run", "m.so", "-p", "x", "-n", "-1"]), &["-1", "--max-tokens", "1..="]);
    refused(&b.llmcc(&["run", "m.so", "-p", "x", "-n", "0"]), &["0", "--max-tokens", "1..="]);
    refused(&b.llmcc(&["run", "m.so", "-p", "x", "--system", "y"]), &["--system goes with --chat"]);
    refused(&b.llmcc(&["run", "m.so", "-p", "-1", "-n", "1"]), &["m.so"]);
    refused(&b.llmcc(&["eval", "ppl", "m.so", "t.txt", "--window", "-5"]), &["-5", "--window"]);
}
