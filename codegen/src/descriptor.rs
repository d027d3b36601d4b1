//! The descriptor in an artifact's file, found without loading it.

use llmcc_abi::{ABI_VERSION, IMAGE_MAGIC, ImageRef};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Why a file is not a usable artifact.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// Not readable.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// Something else.
    #[error("{}: {what}", path.display())]
    NotAnArtifact {
        /// File.
        path: PathBuf,
        /// The fault and the remedy.
        what: String,
    },
}

/// The largest runtime object we look into for the descriptor.
const RUNTIME_LIMIT: usize = 64 << 20;

/// The descriptor in the artifact at `path`, which is open as `file`.
pub(crate) fn find_image(file: &File, path: &Path) -> Result<ImageRef, LocateError> {
    let not = |what: String| LocateError::NotAnArtifact { path: path.to_owned(), what };
    // As far as needed: an artifact is as large as its weights.
    const PIECE: usize = 4 << 20;
    let mut head = vec![];
    while head.len() < RUNTIME_LIMIT {
        let from = head.len();
        head.resize(from + PIECE, 0);
        let read = read_up_to(file, &mut head[from..], from as u64)
            .map_err(|source| LocateError::Io { path: path.to_owned(), source })?;
        head.truncate(from + read);
        // The descriptor may lie across the border.
        let again = from.saturating_sub(size_of::<ImageRef>());
        if let Some((_, image)) = read_image(&head[again..]) {
            return match image.version {
                ABI_VERSION => Ok(image),
                other => Err(not(format!(
                    "made by another version of llmcc (format {other}, this one reads {ABI_VERSION}); compile it again"
                ))),
            };
        }
        if read < PIECE {
            break;
        }
    }
    Err(not("not an artifact of llmcc (make one with `llmcc compile`)".into()))
}

/// Opens a file to read it; a pipe or a device, which may never end, is refused.
pub(crate) fn open_regular(path: &Path) -> Result<File, LocateError> {
    let io = |source| LocateError::Io { path: path.to_owned(), source };
    let not = |what: String| LocateError::NotAnArtifact { path: path.to_owned(), what };
    let found = match (std::fs::metadata(path), std::fs::read_link(path)) {
        (Ok(found), _) => found.file_type(),
        (Err(_), Ok(target)) => return Err(not(format!("it is a link to {}, which does not exist", target.display()))),
        (Err(e), Err(_)) => return Err(io(e)),
    };
    if !found.is_file() {
        return Err(not(format!("it is {}; a regular file is needed here", crate::link::kind(found))));
    }
    File::open(path).map_err(io)
}

/// Fills as much of `bytes` as the file has from `at` on.
fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// The patched descriptor and where it is: the first occurrence of the magic that is followed by a
/// plausible version and code.
pub(crate) fn read_image(bytes: &[u8]) -> Option<(usize, ImageRef)> {
    let size = size_of::<ImageRef>();
    for (i, w) in bytes.windows(IMAGE_MAGIC.len()).enumerate() {
        if w != IMAGE_MAGIC {
            continue;
        }
        let raw = bytes.get(i..i + size)?;
        let u32_at = |o: usize| raw[o..o + 4].iter().rev().fold(0u32, |a, b| a << 8 | u32::from(*b));
        let u64_at = |o: usize| raw[o..o + 8].iter().rev().fold(0u64, |a, b| a << 8 | u64::from(*b));
        let mut image = ImageRef {
            magic: IMAGE_MAGIC,
            version: u32_at(16),
            flags: u32_at(20),
            code_addr: u64_at(24),
            code_len: u64_at(32),
            data_addr: u64_at(40),
            data_len: u64_at(48),
            weights_addr: u64_at(56),
            weights_len: u64_at(64),
            file_len: u64_at(72),
            hashes_addr: u64_at(80),
            hashes_len: u64_at(88),
            parts: u64_at(96),
            ..ImageRef::default()
        };
        image.root.copy_from_slice(&raw[104..]);
        if (1..1 << 16).contains(&image.version) && image.data_len > 0 && image.file_len > 0 {
            return Some((i, image));
        }
    }
    None
}
