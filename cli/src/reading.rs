//! Files with texts, and standard input in place of one.

use crate::Error;
use llmcc_frontends::{FrontendError, input};
use std::io::Read;
use std::path::Path;

/// The name of standard input in errors.
const STDIN: &str = "standard input";

/// The whole text of a file; `-` is standard input.
///
/// # Errors
/// It cannot be read, or is not UTF-8.
pub fn read(path: &Path) -> Result<String, Error> {
    if path != Path::new("-") {
        return Ok(input::read_text(path)?);
    }
    let mut bytes = vec![];
    let failed = |e| Error::io("read", STDIN, e);
    std::io::stdin().lock().take(input::MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > input::MOST_BYTES {
        return Err(FrontendError::TooLong { path: STDIN.into() }.into());
    }
    Ok(input::utf8(bytes, Path::new(STDIN))?)
}
