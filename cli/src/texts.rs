//! Texts that a user gives: on the command line, in a file, or by standard input.

use crate::Error;
use llmcc_frontends::{FrontendError, input};
use std::io::{IsTerminal, Read};
use std::path::Path;

/// Longest text of standard input.
const MOST_BYTES: u64 = 1 << 30;

/// The text of an option, of a file, or else of standard input where that is no terminal. The end of the last line of
/// a file or of standard input is no part of it.
///
/// # Errors
/// A file that cannot be read, bytes that are not UTF-8, no text at all. `instead` names the options that give one.
pub fn given(text: Option<&str>, file: Option<&Path>, instead: &str) -> Result<String, Error> {
    match (text, file) {
        (Some(text), _) => Ok(text.to_owned()),
        (None, Some(file)) => Ok(without_end(read(file)?)),
        (None, None) if std::io::stdin().is_terminal() => {
            Err(Error::Usage(format!("there is no text: give {instead}")))
        }
        (None, None) => match read(Path::new("-"))? {
            text if text.is_empty() => {
                Err(Error::Usage(format!("there is no text: standard input is empty; give {instead}")))
            }
            text => Ok(without_end(text)),
        },
    }
}

/// The whole text of a file; `-` is standard input.
///
/// # Errors
/// It cannot be read, or is not UTF-8.
pub fn read(path: &Path) -> Result<String, Error> {
    if path != Path::new("-") {
        return Ok(input::read_text(path)?);
    }
    let mut bytes = vec![];
    let failed = |e| Error::io("read", "standard input", e);
    std::io::stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(FrontendError::TooLong { path: "standard input".into() }.into());
    }
    let wrong = |e: std::string::FromUtf8Error| FrontendError::NotUtf8 {
        path: "standard input".into(),
        at: e.utf8_error().valid_up_to(),
    };
    Ok(String::from_utf8(bytes).map_err(wrong)?)
}

/// A text without the end of its last line.
fn without_end(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_end_of_a_line_is_left_out() {
        for (text, left) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a"), ("\n", ""), ("a\r", "a\r")] {
            assert_eq!(without_end(text.into()), left, "{text:?}");
        }
    }
}
