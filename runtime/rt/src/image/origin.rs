//! The file this library was loaded from, and whether the file at that path is still the same one.
//!
//! The loader knows the path a library was loaded by; the kernel, in `/proc/self/maps`, the file
//! that is mapped, by its path of today and with a note when it has been deleted. A file that was
//! replaced (another one renamed over it, as the compiler does) is the deleted one under a path
//! that exists.

use std::ffi::{CStr, OsStr};
use std::fs::{self, Metadata};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};

/// A file that was written so short a time ago may still have been written while it was loaded.
const RECENT: Duration = Duration::from_secs(60);
/// How the kernel marks files that have no name any more.
const DELETED: &[u8] = b" (deleted)";

/// The file that the library with address `at` was loaded from; `None` when it has been deleted, or
/// the system does not tell.
///
/// # Errors
/// Another file lies under its path now, or it has been changed since the library was first asked.
pub fn find(at: *const u8) -> Result<Option<PathBuf>> {
    let named = loaded_path(at).filter(|p| p.is_absolute() && p.exists());
    let mapped = mapped_name(at as usize);
    let path = resolve(named, mapped.as_deref())?;
    if let Some(found) = path.as_deref().and_then(|p| fs::metadata(p).ok().map(|m| (p, m))) {
        check_unchanged(found.0, &found.1)?;
    }
    Ok(path)
}

/// Which file it is, by the loader's path (that exists) and the kernel's name.
fn resolve(named: Option<PathBuf>, mapped: Option<&OsStr>) -> Result<Option<PathBuf>> {
    if let Some(open) = named.as_ref().filter(|p| p.starts_with("/proc/self/fd")) {
        // A file that has no name (yet), by a descriptor: no other can take its place.
        return Ok(Some(open.clone()));
    }
    let Some(mapped) = mapped else { return Ok(named) };
    let path = Path::new(mapped);
    let deleted = mapped.as_bytes().strip_suffix(DELETED).filter(|_| !path.exists());
    if let Some(old) = deleted {
        let old = PathBuf::from(OsStr::from_bytes(old));
        return match named.or(Some(old).filter(|p| p.exists())) {
            Some(path) => Err(replaced(&path)),
            None => Ok(None),
        };
    }
    let Some(named) = named else { return Ok(Some(path.to_owned()).filter(|p| p.exists())) };
    // The path it was loaded by is where its side file lies, even if it is a link. But the file may
    // have been moved, and another put there.
    match (fs::metadata(&named), fs::metadata(path)) {
        (Ok(a), Ok(b)) if (a.dev(), a.ino()) != (b.dev(), b.ino()) => Err(replaced(&named)),
        _ => Ok(Some(named)),
    }
}

fn replaced(path: &Path) -> Error {
    Error::artifact(format!(
        "{} was replaced by another file after this one had been loaded. To use the new one, close all models of the old one and dlclose it, \
         or load the new one by another spelling of its path",
        path.display()
    ))
}

/// Refuses a file with another size or time than the first time this is called.
fn check_unchanged(path: &Path, found: &Metadata) -> Result<()> {
    static FIRST: Mutex<Option<(u64, i64, i64)>> = Mutex::new(None);
    let now = (found.len(), found.mtime(), found.mtime_nsec());
    let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    if *first.get_or_insert(now) == now {
        return Ok(());
    }
    Err(Error::artifact(format!(
        "{} was changed after it had been loaded, so what is in memory is damaged. Close all its models, dlclose it, and load it again; to replace an artifact in use, \
         write another file and rename it, as `llmcc compile` does",
        path.display()
    )))
}

/// The same error, or that the file at `path` is another one by now, or may have been written while
/// it was loaded.
pub fn explain(error: Error, at: *const u8, path: Option<&Path>) -> Error {
    if let Err(changed) = find(at) {
        return changed;
    }
    let age = path.and_then(|p| fs::metadata(p).ok()?.modified().ok()?.elapsed().ok());
    match age.filter(|age| *age < RECENT) {
        Some(age) => {
            let message = format!(
                "{} (the file was written {} seconds ago: if that was while it was loaded, load it again)",
                error.message,
                age.as_secs()
            );
            Error::new(error.status, message)
        }
        None => error,
    }
}

/// The path by which the library with address `at` was loaded.
fn loaded_path(at: *const u8) -> Option<PathBuf> {
    // SAFETY: dladdr fills `info` when it succeeds; the name is a C string owned by the loader.
    unsafe {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        if libc::dladdr(at.cast(), info.as_mut_ptr()) == 0 {
            return None;
        }
        let name = info.assume_init().dli_fname;
        (!name.is_null()).then(|| PathBuf::from(OsStr::from_bytes(CStr::from_ptr(name).to_bytes())))
    }
}

/// The kernel's name for the file mapped at `address`.
fn mapped_name(address: usize) -> Option<std::ffi::OsString> {
    let maps = fs::read("/proc/self/maps").ok()?;
    maps.split(|b| *b == b'\n').find_map(|line| {
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let end = line.iter().position(|b| *b == b' ')?;
        let (from, to) = text(&line[..end])?.split_once('-')?;
        let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
        let name = &line[line.iter().position(|b| *b == b'/')?..];
        (from..to).contains(&address).then(|| OsStr::from_bytes(name).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_found() {
        let here = find((find as *const ()).cast()).unwrap().unwrap();
        let me = std::env::current_exe().unwrap();
        assert_eq!(fs::metadata(here).unwrap().ino(), fs::metadata(me).unwrap().ino());
    }

    #[test]
    fn replaced_and_deleted_files_are_told_apart() {
        let dir = std::env::temp_dir().join(format!("llmcc-origin-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (a, b, gone) = (dir.join("a.so"), dir.join("b.so"), dir.join("gone.so"));
        fs::write(&a, "a").unwrap();
        fs::write(&b, "b").unwrap();
        let deleted = |path: &Path| OsStr::from_bytes(&[path.as_os_str().as_bytes(), DELETED].concat()).to_owned();
        let found = |named: Option<&Path>, mapped: &OsStr| resolve(named.map(Path::to_owned), Some(mapped));
        assert_eq!(found(Some(&a), a.as_os_str()), Ok(Some(a.clone())));
        assert_eq!(found(None, a.as_os_str()), Ok(Some(a.clone())));
        assert_eq!(found(None, &deleted(&gone)), Ok(None));
        // Renamed over; moved away, and another put there.
        for (named, mapped) in [(Some(&*a), deleted(&a)), (None, deleted(&a)), (Some(&*a), b.as_os_str().to_owned())] {
            assert!(found(named, &mapped).unwrap_err().message.contains("a.so was replaced"));
        }
        // A file whose name ends so.
        let odd = PathBuf::from(deleted(&b));
        fs::write(&odd, "b").unwrap();
        assert_eq!(found(None, odd.as_os_str()), Ok(Some(odd)));
        fs::remove_dir_all(&dir).unwrap();
    }
}
