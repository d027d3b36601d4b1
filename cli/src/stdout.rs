//! Standard output of subcommands.

use crate::Error;

/// Writes to standard output; a reader that went away is not an error of ours.
///
/// # Errors
/// [`Error::ClosedPipe`], [`Error::Io`].
pub fn print(text: &str) -> Result<(), Error> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Err(Error::ClosedPipe),
        Err(e) => Err(Error::io("write to", "standard output", e)),
    }
}
