//! Texts that a user gives: on the command line, in a file, or by standard input.

use crate::Error;
use crate::args::TextArgs;
pub use crate::reading::read;
use std::io::IsTerminal;
use std::path::Path;

/// The text of an option, of a file, or else of standard input where that is no terminal. The end of the last line of
/// a file or of standard input is no part of it.
///
/// # Errors
/// A file that cannot be read, bytes that are not UTF-8, no text at all. `instead` names the options that give one.
pub fn given(args: &TextArgs, instead: &str) -> Result<String, Error> {
    match (&args.prompt, &args.prompt_file) {
        (Some(text), _) => Ok(text.clone()),
        (None, Some(file)) => of_file(file),
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

/// The text of a file without the end of its last line; `-` is standard input.
///
/// # Errors
/// As [`read`].
pub fn of_file(path: &Path) -> Result<String, Error> {
    Ok(without_end(read(path)?))
}

/// The documents of a text, without white space around them: the parts between separators, or all of it.
pub fn documents<'a>(text: &'a str, separator: Option<&str>) -> Vec<&'a str> {
    let parts: Vec<&str> = match separator {
        Some(separator) if !separator.is_empty() => text.split(separator).collect(),
        _ => vec![text],
    };
    parts.into_iter().map(str::trim).filter(|document| !document.is_empty()).collect()
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
