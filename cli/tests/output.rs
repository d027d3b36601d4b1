//! Where output goes: never over the checkpoint, through links, not onto devices, and nothing of it
//! stays when a signal ends the process.

use crate::common::Folder;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
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

/// Without -o the artifact is called as the checkpoint is, in the current folder.
#[test]
fn artifacts_have_a_name_of_their_own() {
    let b = Folder::with_checkpoint();
    let compile = |more: &[&str]| b.llmcc(&[&["compile", "ck", "--no-golden"], more].concat());
    let first = compile(&[]);
    succeeded(&first);
    let report = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(report.starts_with("ck.so: ") && b.names("") == ["ck", "ck.so"], "{report}");
    // An artifact is replaced, anything else is not.
    let before = fs::metadata(b.at("ck.so")).expect("artifact").ino();
    succeeded(&compile(&["--quiet"]));
    assert_ne!(fs::metadata(b.at("ck.so")).expect("artifact").ino(), before);
    for other in ["my notes", ""] {
        fs::write(b.at("ck.so"), other).expect("written");
        refused(&compile(&[]), &["ck.so exists and is not an artifact of llmcc", "-o"]);
        assert_eq!(fs::read_to_string(b.at("ck.so")).expect("kept"), other);
    }
    fs::remove_file(b.at("ck.so")).expect("removed");
    symlink("nowhere", b.at("ck.so")).expect("link");
    refused(&compile(&[]), &["ck.so exists"]);
    fs::remove_file(b.at("ck.so")).expect("removed");
    fs::create_dir(b.at("ck.so")).expect("made");
    refused(&compile(&[]), &["ck.so exists"]);
    // A name that is asked for is the user's matter.
    fs::write(b.at("given.so"), "my notes").expect("written");
    succeeded(&compile(&["-o", "given.so", "--quiet"]));
    refused(&b.llmcc(&["compile", "/"]), &["/"]);
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
    // A link of the test's own leads to the device: replacing it would not hurt the machine.
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
    let signals = [
        (libc::SIGINT, "SIGINT"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGUSR1, "SIGUSR1"),
    ];
    for (signal, name) in signals {
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

/// Has the program start with this disposition of a signal, and leave no memory dump.
fn dispose(command: &mut Command, signal: i32, how: libc::sighandler_t) {
    limited(command, libc::RLIMIT_CORE, 0);
    // SAFETY: only sets a disposition, between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::signal(signal, how);
            Ok(())
        })
    };
}

/// Has the program start with this limit.
fn limited(command: &mut Command, resource: libc::__rlimit_resource_t, most: libc::rlim_t) {
    // SAFETY: only sets a limit, between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(resource, &libc::rlimit { rlim_cur: most, rlim_max: most }) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
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
    refused(&b.llmcc(&["run", "m.so", "-p", "x", "--system", "y"]), &["--system needs --chat"]);
    refused(&b.llmcc(&["run", "m.so", "-p", "-1", "-n", "1"]), &["m.so"]);
    refused(&b.llmcc(&["eval", "ppl", "m.so", "t.txt", "--window", "-5"]), &["-5", "--window"]);
    for (option, range, wrong) in [
        ("--repetition-penalty", "must be a positive number", &["0", "-1", "nan", "inf", "1e-99"][..]),
        ("--temperature", "must be 0 or a positive number", &["-1", "nan", "inf", "1e39"]),
        ("--top-p", "from 0 to 1", &["-0.1", "1.5", "nan"]),
        ("--min-p", "from 0 to 1", &["-0.1", "1.5", "nan"]),
    ] {
        for value in wrong {
            refused(&b.llmcc(&["run", "m.so", "-p", "x", option, value]), &[option, value, range]);
        }
    }
}

/// No handler can clean up after SIGKILL: a file has no name before it is complete, where the file
/// system has such files.
#[test]
fn killing_leaves_nothing() {
    let b = Folder::with_checkpoint();
    let unnamed = fs::File::options().write(true).custom_flags(libc::O_TMPFILE).open(b.root());
    if unnamed.is_err() {
        println!("skipped: {} has no files without a name", b.root().display());
        return;
    }
    for wait in [5, 15, 30, 60, 100, 150] {
        let mut child =
            b.command(&["compile", "ck", "--quiet", "-o", "m.so"]).stderr(Stdio::null()).spawn().expect("runs");
        std::thread::sleep(Duration::from_millis(wait));
        let _ = child.kill();
        let _ = child.wait();
        let _ = fs::remove_file(b.at("m.so"));
        assert_eq!(b.names("."), ["ck"], "killed after {wait} ms");
    }
}

#[test]
fn files_that_may_not_be_so_large_are_an_error() {
    let b = Folder::with_checkpoint();
    for more in [&[][..], &["--weights", "external"]] {
        let mut command = b.command(&[&["compile", "ck", "--quiet", "-o", "m.so"], more].concat());
        limited(&mut command, libc::RLIMIT_FSIZE, 1 << 20);
        refused(&command.output().expect("llmcc runs"), &["cannot write", "m.so", "too large"]);
        assert_eq!(b.names("."), ["ck"]);
    }
}

/// Standard error that cannot be written is no reason to end, standard output that cannot be an error.
#[test]
fn full_devices_are_no_crash() {
    let b = Folder::with_checkpoint();
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").expect("a device"));
    let code = |command: &mut Command| command.status().expect("llmcc runs").code();
    assert_eq!(code(b.command(&["compile", "missing", "-o", "m.so"]).stderr(full())), Some(2));
    assert_eq!(code(b.command(&["compile"]).stderr(full())), Some(2));
    assert_eq!(code(b.command(&["compile", "ck", "--no-golden", "-o", "m.so"]).stderr(full())), Some(0));
    assert!(b.at("m.so").exists());
    for shown in [&["targets"][..], &["--help"], &["--version"], &["run", "m.so", "--ids", "1", "-n", "1"]] {
        let output = b.command(shown).stdout(full()).output().expect("llmcc runs");
        assert_eq!(output.status.code(), Some(1), "{shown:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("standard output"), "{shown:?}");
        assert_eq!(code(b.command(shown).stdout(full()).stderr(full())), Some(1), "{shown:?}");
    }
}

/// A user who may have no further thread or process can compile, verify and run.
#[test]
fn without_threads_there_is_one() {
    let b = Folder::with_checkpoint();
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: limits of processes are tried as another user, which takes root");
        return;
    }
    for path in [b.root().to_owned(), b.at("ck")] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("permissions");
    }
    for args in [
        &["compile", "ck", "--quiet", "-o", "m.so"][..],
        &["verify", "m.so"],
        &["run", "m.so", "--ids", "1,2", "-n", "2"],
    ] {
        // (A number that no user of the machine has.)
        let mut command = b.command(args);
        limited(&mut command, libc::RLIMIT_NPROC, 1);
        command.gid(54_321).uid(54_321);
        let output = match command.output() {
            Err(e) => {
                println!("skipped: the program cannot be run as another user: {e}");
                return;
            }
            Ok(output) => output,
        };
        succeeded(&output);
    }
}
