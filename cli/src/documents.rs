//! Documents of a user's: a text file, a file with a JSON value for each, or the files of a folder.

use crate::{Error, reading};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A document.
pub enum Document {
    /// A text.
    Text(String),
    /// Messages, as JSON, for the model's chat template.
    Chat(String),
}

/// The documents of a path, each file's text a whole.
///
/// # Errors
/// A file that cannot be read or is not UTF-8; a line that has no document.
pub fn all(path: &Path) -> Result<Vec<Document>, Error> {
    let of = |file: &PathBuf| of_file(file, |text| vec![Document::Text(text.into())]);
    let found: Vec<Vec<Document>> = files(path)?.iter().map(of).collect::<Result<_, _>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// The file of a path, or the files of a folder by their names.
///
/// # Errors
/// The folder cannot be read.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |e| Error::io("read", path, e);
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let mut files = entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    files.retain(|f| f.is_file());
    files.sort();
    Ok(files)
}

/// The documents of a file: one for each line of a `.jsonl` file, else those that `plain` makes of its text.
///
/// # Errors
/// As [`all`].
pub fn of_file(path: &Path, plain: impl Fn(&str) -> Vec<Document>) -> Result<Vec<Document>, Error> {
    let text = reading::read(path)?;
    if !path.extension().is_some_and(|e| e.eq_ignore_ascii_case("jsonl")) {
        return Ok(plain(&text));
    }
    let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let document = |(at, line): (usize, &str)| {
        of_line(line).map_err(|what| Error::Usage(format!("{}: line {}: {what}", path.display(), at + 1)))
    };
    numbered.map(document).collect()
}

fn of_line(line: &str) -> Result<Document, String> {
    match serde_json::from_str(line).map_err(|e| format!("it is not JSON: {e}"))? {
        Value::String(text) => Ok(Document::Text(text)),
        Value::Object(mut members) => match (members.remove("text"), members.remove("messages")) {
            (Some(Value::String(text)), None) => Ok(Document::Text(text)),
            (None, Some(messages @ Value::Array(_))) => Ok(Document::Chat(messages.to_string())),
            _ => Err("it needs a member \"text\", a string, or \"messages\", a list".into()),
        },
        _ => Err("it is neither a string nor an object".into()),
    }
}
