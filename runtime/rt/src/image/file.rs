//! The length of the artifact's file, and its side file.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::{fs, io, ptr};

use crate::error::{Error, Result};

/// Refuses a file that lost its appended segments. A file that can no longer be found (deleted
/// after loading) is not checked.
pub fn check_length(path: Option<&Path>, expected: u64) -> Result<()> {
    let Some((path, found)) = path.and_then(|p| fs::metadata(p).ok().map(|m| (p, m.len()))) else {
        return Ok(());
    };
    if found == expected {
        return Ok(());
    }
    Err(Error::artifact(format!(
        "{} has {found} bytes instead of {expected}: it was stripped, truncated or edited. Artifacts must not be stripped; copy or compile it again",
        path.display()
    )))
}

/// A file mapped read-only.
pub struct Mapping {
    /// First byte.
    pub ptr: *const u8,
    len: usize,
}

// SAFETY: read-only memory.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `side_file`.
        unsafe { libc::munmap(self.ptr.cast_mut().cast(), self.len) };
    }
}

impl Mapping {
    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped until this is dropped, and never written.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

/// `<artifact>.weights`.
pub fn side_path(artifact: Option<&Path>) -> Result<PathBuf> {
    let Some(artifact) = artifact else {
        return Err(Error::artifact("the artifact's path is unknown, so its .weights file cannot be found beside it"));
    };
    let mut path = artifact.as_os_str().to_owned();
    path.push(".weights");
    Ok(path.into())
}

/// Maps the side file.
pub fn side_file(path: &Path, expected: u64) -> Result<Mapping> {
    let failed = |cause: io::Error| {
        let hint = "this artifact needs its weights file beside it";
        Error::artifact(format!("cannot open {}: {cause}; {hint}", path.display()))
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("not a regular file")));
    }
    let file = fs::File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    let len = usize::try_from(found).unwrap_or(0);
    if found != expected || len == 0 {
        let message = format!(
            "{} has {found} bytes instead of {expected}: it belongs to another artifact or is damaged",
            path.display()
        );
        return Err(Error::artifact(message));
    }
    // SAFETY: a fresh read-only mapping; the descriptor may be closed afterwards.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return Err(Error::system(format_args!("cannot map {}", path.display()), io::Error::last_os_error()));
    }
    Ok(Mapping { ptr: at.cast(), len })
}
