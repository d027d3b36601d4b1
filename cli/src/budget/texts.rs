//! The texts on which damage is measured: a part that the choice is made by, and a part that is kept aside.

use crate::builtin::{self, SEPARATOR};
use crate::digest::hex;
use crate::{Error, texts};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// One document in so many is kept aside: the last of each such group.
const KEPT: usize = 5;
/// One document in so many of those that the choice is made by is enough for trials of single matrices.
const TRIALS: usize = 3;

/// A text of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Its name.
    pub name: String,
    /// Documents by which the choice is made.
    pub choice: Vec<String>,
    /// Documents that nothing but the certificate is made by.
    pub kept: Vec<String>,
}

impl Text {
    /// The texts of these files, a domain each; without files the compiler's own.
    ///
    /// # Errors
    /// A file that cannot be read, or that is too short to be divided.
    pub fn read(files: &[PathBuf]) -> Result<Vec<Text>, Error> {
        if files.is_empty() {
            return Ok(vec![Text::builtin()]);
        }
        files.iter().map(|file| Text::of_file(file)).collect()
    }

    /// The compiler's own text.
    pub fn builtin() -> Text {
        Text::of(builtin::NAME, builtin::TEXT)
    }

    /// The text of a file, or the compiler's own where there is no file of its name.
    ///
    /// # Errors
    /// As [`Text::read`].
    pub fn of_file(file: &Path) -> Result<Text, Error> {
        if file == Path::new(builtin::NAME) && !file.exists() {
            return Ok(Text::builtin());
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let text = Text::of(&name, &texts::read(file)?);
        match text.choice.is_empty() || text.kept.is_empty() {
            false => Ok(text),
            true => Err(Error::Usage(format!(
                "{}: it is too short: a fifth of it is kept aside for the certificate, so give a text of some pages",
                file.display()
            ))),
        }
    }

    /// Divides a text: every fifth document is kept aside; of fewer than five documents, the last fifth of the text.
    pub fn of(name: &str, text: &str) -> Text {
        let documents = |text| texts::documents(text, Some(SEPARATOR)).into_iter().map(str::to_owned);
        let all: Vec<String> = documents(text).collect();
        if all.len() < KEPT {
            let (choice, kept) = last_part(text.trim());
            return Text { name: name.into(), choice: documents(choice).collect(), kept: documents(kept).collect() };
        }
        let (mut choice, mut kept) = (vec![], vec![]);
        for (i, document) in all.into_iter().enumerate() {
            if i % KEPT == KEPT - 1 { kept.push(document) } else { choice.push(document) }
        }
        Text { name: name.into(), choice, kept }
    }

    /// Some of the documents by which the choice is made, for trials.
    pub fn trial(&self) -> Vec<String> {
        self.choice.iter().step_by(TRIALS).cloned().collect()
    }
}

/// A text without its last fifth, and that: cut at the end of a line where there is one behind four fifths.
fn last_part(text: &str) -> (&str, &str) {
    let mut at = text.len() - text.len() / KEPT;
    at = text.get(at..).and_then(|rest| rest.find('\n')).map_or(at, |line| at + line);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    text.split_at(at)
}

/// Documents as one text.
pub fn joined(documents: &[String]) -> String {
    documents.join(&format!("\n{SEPARATOR}\n"))
}

/// SHA-256 of documents as one text, hex.
pub fn hash(documents: &[String]) -> String {
    hex(&Sha256::digest(joined(documents)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_text_has_all_kinds_in_both_parts() {
        let text = Text::builtin();
        assert_eq!((text.choice.len(), text.kept.len()), (28, 7));
        for part in [&text.choice, &text.kept] {
            let all = joined(part);
            for sign in ["fn ", "def ", "#include", " the ", " und ", " les "] {
                assert!(all.contains(sign), "{sign}");
            }
        }
        assert_ne!(hash(&text.choice), hash(&text.kept));
        assert!(text.trial().len() > 5);
    }

    #[test]
    fn short_texts_are_cut_at_a_line() {
        let text = Text::of("a", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n");
        assert_eq!((text.choice.concat().lines().last(), text.kept.concat().as_str()), (Some("eight"), "nine\nten"));
        // Without lines, not within a character.
        let text = Text::of("a", &"é".repeat(11));
        assert_eq!(text.choice.concat().len() + text.kept.concat().len(), 22);
        assert_eq!(Text::of("a", "").kept.len(), 0);
        let several = Text::of("a", &["a", "b", "c", "d", "e", "f"].join(SEPARATOR));
        assert_eq!((several.kept, several.choice.len()), (vec!["e".to_owned()], 5));
    }
}
