//! Files that a command writes: never over a file of the checkpoint, whole or not at all, and
//! nothing of them left behind when a signal ends the process.
//!
//! Where the file system has files without a name, there is nothing to leave. Elsewhere, and for
//! artifacts with their weights in a second file, handlers of signals remove temporary files.

use crate::{Error, advice};
use llmcc_codegen::link::{Pending, remove_unfinished};
use signal_hook::low_level::{emulate_default_handler, register};
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Refuses an output that is one of the checkpoint's own files, under whatever name. Artifacts that
/// were put into its folder may be replaced.
///
/// # Errors
/// [`Error::Usage`] naming both.
pub fn spare_checkpoint(out: &Path, checkpoint: &Path) -> Result<(), Error> {
    let Ok(written) = fs::metadata(out) else { return Ok(()) };
    if !written.is_file() || advice::is_elf(out) {
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

/// Everything in a checkpoint's folder, or beside a checkpoint that is a single file.
fn files_of(checkpoint: &Path) -> Vec<PathBuf> {
    let folder = if checkpoint.is_dir() { checkpoint } else { checkpoint.parent().unwrap_or(Path::new("")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    fs::read_dir(folder).map(|entries| entries.flatten().map(|e| e.path()).collect()).unwrap_or_default()
}

/// Names of files that say nothing of the model in them.
const COMMON: [&str; 5] = ["model", "pytorch_model", "consolidated", "ggml-model", "weights"];

/// The output where none is named: the name of the checkpoint's folder or file with `.so`, in the current folder.
///
/// # Errors
/// The checkpoint has no name, or there is a file of that name that is no artifact.
pub fn default_name(checkpoint: &Path) -> Result<PathBuf, Error> {
    let full = fs::canonicalize(checkpoint).map_err(|e| Error::io("find", checkpoint, e))?;
    let Some(name) = model_name(checkpoint, &full) else {
        return Err(Error::Usage(format!("{} has no name: give the output with -o", checkpoint.display())));
    };
    let out = PathBuf::from(format!("{name}.so"));
    let there = out.exists() || out.is_symlink();
    if there && llmcc_codegen::locate::manifest(&out).is_err() {
        return Err(Error::Usage(format!(
            "{} exists and is not an artifact of llmcc: move it away, or give another name with -o",
            out.display()
        )));
    }
    Ok(out)
}

/// The name of the model at a path: as the user calls it, unless that is `.` or the like.
fn model_name(checkpoint: &Path, full: &Path) -> Option<String> {
    let text = |name: &std::ffi::OsStr| name.to_string_lossy().into_owned();
    if !full.is_dir() && !is_common(checkpoint) {
        let stem = text(checkpoint.file_stem()?);
        return Some(without_part(&stem).to_owned());
    }
    // (A file may be a link to one that is elsewhere; the folder that it is in has the model's name.)
    let folder = match full.is_dir() {
        true => full.to_owned(),
        false => fs::canonicalize(checkpoint.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))
            .ok()?,
    };
    let given = || checkpoint.file_name().filter(|_| full.is_dir()).or_else(|| folder.file_name());
    of_snapshot(&folder).or_else(|| given().map(text))
}

/// The name of a model in the cache of the Hugging Face hub: `models--OWNER--NAME/snapshots/REVISION`.
fn of_snapshot(path: &Path) -> Option<String> {
    let parts: Vec<String> = path.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    let at = parts.iter().rposition(|part| part == "snapshots").filter(|at| parts.len() == at + 2)?;
    let (_, name) = parts.get(at.checked_sub(1)?)?.strip_prefix("models--")?.rsplit_once("--")?;
    Some(name.to_owned())
}

/// A file's name without `-00001-of-00002`.
fn without_part(stem: &str) -> &str {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let part = || {
        let (rest, all) = stem.rsplit_once("-of-")?;
        let (name, this) = rest.rsplit_once('-')?;
        (digits(all) && digits(this)).then_some(name)
    };
    part().unwrap_or(stem)
}

/// Whether a file has a name that all models' files have.
fn is_common(file: &Path) -> bool {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let stem = without_part(&stem);
    COMMON.contains(&stem.split('.').next().unwrap_or(stem))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_called_as_their_checkpoints() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let snapshot = "hub/models--Qwen--Qwen3-0.6B/snapshots/abc";
        for name in ["Llama-3.2-1B", "a.b", snapshot] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let files = ["gemma.Q4_K_M.gguf", "big-00001-of-00003.gguf", "Llama-3.2-1B/model.safetensors"];
        let more = ["Llama-3.2-1B/consolidated.00.pth", "a.b/model-00001-of-00002.safetensors"];
        for file in files.iter().chain(&more) {
            fs::write(at(file), "").unwrap();
        }
        for (path, name) in [
            ("Llama-3.2-1B", "Llama-3.2-1B"),
            ("Llama-3.2-1B/", "Llama-3.2-1B"),
            ("Llama-3.2-1B/.", "Llama-3.2-1B"),
            ("a.b", "a.b"),
            (snapshot, "Qwen3-0.6B"),
            ("gemma.Q4_K_M.gguf", "gemma.Q4_K_M"),
            ("big-00001-of-00003.gguf", "big"),
            ("Llama-3.2-1B/model.safetensors", "Llama-3.2-1B"),
            ("Llama-3.2-1B/consolidated.00.pth", "Llama-3.2-1B"),
            ("a.b/model-00001-of-00002.safetensors", "a.b"),
        ] {
            let path = at(path);
            let full = fs::canonicalize(&path).unwrap();
            assert_eq!(model_name(&path, &full).as_deref(), Some(name), "{}", path.display());
        }
        assert_eq!(model_name(Path::new(".."), &at("a.b")).as_deref(), Some("a.b"));
        assert_eq!(model_name(Path::new("/"), Path::new("/")), None);
    }
}
