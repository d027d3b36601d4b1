//! Hashes as they are shown, and hashes of a checkpoint's files.

use crate::Error;
use llmcc_frontends::Checkpoint;
use serde::{Deserialize, Serialize};

/// A file of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceFile {
    /// Name within the checkpoint.
    pub file: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256, hex.
    pub sha256: String,
}

/// Hashes the files of a checkpoint.
///
/// # Errors
/// A file that cannot be read.
pub fn hash_sources(checkpoint: &Checkpoint) -> Result<Vec<SourceFile>, Error> {
    let mut files = vec![];
    for f in checkpoint.source_files()? {
        files.push(SourceFile { file: f.name.clone(), bytes: f.bytes, sha256: hex(&f.sha256()?) });
    }
    files.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(files)
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}
