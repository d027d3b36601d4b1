//! Files that a command writes: never over a file of the checkpoint, whole or not at all, and
//! nothing of them left behind when a signal ends the process.
//!
//! Where the file system has files without a name, there is nothing to leave. Elsewhere, and for
//! artifacts with their weights in a second file, handlers of signals remove temporary files.

use crate::Error;
use llmcc_codegen::link::{Pending, remove_unfinished};
use signal_hook::low_level::{emulate_default_handler, register};
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Refuses an output that is one of the checkpoint's own files, under whatever name. Artifacts that
/// were put into its folder may be replaced.
///
/// # Errors
/// [`Error::Usage`] naming both.
pub fn spare_checkpoint(out: &Path, checkpoint: &Path) -> Result<(), Error> {
    let Ok(written) = fs::metadata(out) else { return Ok(()) };
    if !written.is_file() || is_elf(out) {
        return Ok(());
    }
    let same = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| identity(&m) == identity(&written));
    match files_of(checkpoint).into_iter().find(same) {
        None => Ok(()),
        Some(file) => Err(Error::Usage(format!(
            "-o {} would replace {}, a file of the checkpoint: give another name",
            out.display(),
            file.display()
        ))),
    }
}

fn identity(m: &Metadata) -> (u64, u64) {
    (m.dev(), m.ino())
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    fs::File::open(path).and_then(|mut f| f.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

/// Everything in a checkpoint's folder, or beside a checkpoint that is a single file.
fn files_of(checkpoint: &Path) -> Vec<PathBuf> {
    let folder = if checkpoint.is_dir() { checkpoint } else { checkpoint.parent().unwrap_or(Path::new("")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    fs::read_dir(folder).map(|entries| entries.flatten().map(|e| e.path()).collect()).unwrap_or_default()
}

/// Writes a text to `path`. A device or pipe (`/dev/stdout`) gets it as it is; a file appears when
/// complete.
///
/// # Errors
/// The file cannot be written.
pub fn write_text(path: &Path, text: &str) -> Result<(), Error> {
    let special = fs::metadata(path).is_ok_and(|m| {
        let t = m.file_type();
        t.is_char_device() || t.is_fifo()
    });
    match special {
        true => fs::write(path, text).map_err(|e| Error::io("write", path, e)),
        false => Ok(Pending::write_file(path, text.as_bytes())?),
    }
}

/// Signals that end a process and can be handled: from the terminal or its end, from outside, and
/// where a limit of processor time is reached.
const ENDING: [i32; 12] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGABRT,
    libc::SIGXCPU,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
];

/// Removes unfinished files when a signal ends the process. One that the caller has told us to
/// ignore (`nohup`) stays ignored. A file that becomes larger than a limit allows is an error of
/// writing it.
pub fn clean_up_on_signals() {
    // SAFETY: ignoring a signal takes no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    for signal in ENDING.into_iter().filter(|s| !is_ignored(*s)) {
        // SAFETY: the handler does only async-signal-safe work: it reads atomics, removes files,
        // ends the process as the signal would have, so that its parent sees why.
        let registered = unsafe {
            register(signal, move || {
                remove_unfinished();
                let _ = emulate_default_handler(signal);
            })
        };
        // Without it output is made all the same; an interrupted run may then leave its temporary file.
        drop(registered);
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero sigaction is a valid one to be overwritten.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks for the present action only; `now` is valid.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}
