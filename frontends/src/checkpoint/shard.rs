//! Files of a checkpoint.

use memmap2::Mmap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// One mapped file.
#[derive(Debug)]
pub(super) struct Shard {
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes.
    pub map: Mmap,
    /// Reads few bytes at a place without those around, which the mapping would bring in with them.
    pub file: Option<File>,
    /// Stands for bytes that nobody has: zeros.
    pub blank: bool,
}

impl Shard {
    /// Reads bytes at an offset; zeros where there are none.
    pub fn read(&self, from: usize, out: &mut [u8]) {
        let read = self.file.as_ref().is_some_and(|file| file.read_exact_at(out, from as u64).is_ok());
        if read {
            return;
        }
        out.fill(0);
        let mapped = from.checked_add(out.len()).and_then(|to| self.map.get(from..to));
        if let Some(bytes) = mapped {
            out.copy_from_slice(bytes);
        }
    }
}
