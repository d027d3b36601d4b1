//! The program of this command line, which runs parts of itself in processes of their own.

use crate::Error;
use std::path::PathBuf;

/// This program.
///
/// # Errors
/// The system does not know its path.
pub fn this() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|e| Error::io("find", "the llmcc program", e))
}
