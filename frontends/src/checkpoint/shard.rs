//! Files of a checkpoint.

use memmap2::Mmap;
use std::path::PathBuf;

/// One mapped file.
#[derive(Debug)]
pub(super) struct Shard {
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes.
    pub map: Mmap,
}
