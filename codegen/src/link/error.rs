//! Errors of writing artifacts.

use std::io;
use std::path::PathBuf;

/// Why an artifact could not be written.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The runtime inside the compiler is not what it should be.
    #[error("internal error: the runtime object is unusable ({0}); please report this")]
    Runtime(String),
    /// The output could not be written.
    #[error("cannot write {path}: {source}")]
    Io {
        /// File.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
}
