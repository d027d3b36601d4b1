//! Names of models on the hub, as people write them.

use crate::names;
use std::fmt;

/// Beginnings of addresses of models.
const PREFIXES: [&str; 7] = [
    "https://huggingface.co/",
    "http://huggingface.co/",
    "https://hf.co/",
    "https://www.huggingface.co/",
    "hf://models/",
    "hf://",
    "hf:",
];
/// Words behind a model's name in addresses of its pages and files.
const PAGES: [&str; 3] = ["tree", "blob", "resolve"];

/// A model on the hub, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// `OWNER/NAME`, or the `NAME` of an old model.
    pub id: String,
    /// Branch, tag or commit; `None`: `main`.
    pub revision: Option<String>,
    /// The part that is wanted.
    pub part: Part,
}

/// A part of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything that compiling needs.
    Model,
    /// The GGUF file with this format in its name.
    Format(String),
    /// One file.
    File(String),
}

impl Reference {
    /// Reads `OWNER/NAME[@REVISION][:FORMAT]`, `OWNER/NAME[@REVISION]/FILE`, or the address of a page of the hub.
    ///
    /// # Errors
    /// The fault, and the right form.
    pub fn parse(text: &str) -> Result<Reference, String> {
        let prefix = PREFIXES.iter().find(|p| text.starts_with(**p));
        let mut rest = prefix.map_or(text, |p| &text[p.len()..]);
        let is_page = prefix.is_some_and(|p| p.starts_with("http"));
        if is_page {
            rest = rest.split(['?', '#']).next().unwrap_or_default();
        }
        let mut parts = rest.trim_end_matches('/').split('/');
        let mut head = parts.next().unwrap_or_default().to_owned();
        let mut tail: Vec<&str> = parts.collect();
        let page = |word: Option<&&str>| is_page && word.is_some_and(|word| PAGES.contains(word));
        let is_whole = head.contains(['@', ':']) || tail.is_empty() || page(tail.first());
        if !is_whole {
            head = format!("{head}/{}", tail.remove(0));
        }
        let (mut id, mut revision, mut format) = (head.as_str(), None, None);
        if let Some((before, after)) = id.split_once(':') {
            (id, format) = (before, Some(after.to_owned()));
        }
        if let Some((before, after)) = id.split_once('@') {
            (id, revision) = (before, Some(after.to_owned()));
        }
        if revision.is_none() && page(tail.first()) {
            tail.remove(0);
            revision = if tail.is_empty() { None } else { Some(tail.remove(0).to_owned()) };
        }
        if revision.as_deref() == Some("refs") && format.is_none() && tail.len() >= 2 {
            let (kind, number) = (tail.remove(0), tail.remove(0));
            let (number, after) = number.split_once(':').map_or((number, None), |(n, f)| (n, Some(f.to_owned())));
            (revision, format) = (Some(format!("refs/{kind}/{number}")), after);
        }
        let file = tail.join("/");
        let part = match (format, file.is_empty()) {
            (None, true) => Part::Model,
            (None, false) => Part::File(file),
            (Some(format), true) => Part::Format(format),
            (Some(_), false) => return Err("give a format of GGUF or a file, not both".into()),
        };
        Reference { id: id.to_owned(), revision, part }.checked(prefix.is_some())
    }

    /// Refuses names that no repository, revision, format or file has.
    fn checked(self, named: bool) -> Result<Reference, String> {
        let form = "a model of the hub is OWNER/NAME, with @REVISION, and for GGUF :FORMAT or /FILE behind it";
        if !names::is_id(&self.id) || !(named || self.id.contains('/')) {
            return Err(format!("`{}` is no name of a model; {form}", names::shown(&self.id)));
        }
        if let Some(revision) = self.revision.as_deref().filter(|r| !names::is_revision(r)) {
            return Err(format!("`{}` is no revision: give a branch, a tag or a commit", names::shown(revision)));
        }
        match &self.part {
            Part::Format(format) if !names::is_word(format) => {
                Err(format!("`{}` is no format of GGUF, such as Q4_K_M", names::shown(format)))
            }
            Part::File(file) if !names::is_file(file) => {
                Err(format!("`{}` is no name of a file; {form}", names::shown(file)))
            }
            _ => Ok(self),
        }
    }

    /// The revision, or the one that counts without one.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        match &self.part {
            Part::Model => Ok(()),
            Part::Format(format) => write!(f, ":{format}"),
            Part::File(file) => write!(f, "/{file}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, Option<String>, Part), String> {
        Reference::parse(text).map(|r| (r.id, r.revision, r.part))
    }

    #[test]
    fn models_as_people_write_them() {
        let file = |name: &str| Part::File(name.into());
        for (text, id, revision, part) in [
            ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", None, Part::Model),
            ("Qwen/Qwen3-0.6B@v1", "Qwen/Qwen3-0.6B", Some("v1"), Part::Model),
            ("a/b@refs/pr/7", "a/b", Some("refs/pr/7"), Part::Model),
            ("a/b:Q4_K_M", "a/b", None, Part::Format("Q4_K_M".into())),
            ("a/b@main:Q4_K_M", "a/b", Some("main"), Part::Format("Q4_K_M".into())),
            ("a/b/c.gguf", "a/b", None, file("c.gguf")),
            ("a/b@v1/Q8_0/c-00001-of-00002.gguf", "a/b", Some("v1"), file("Q8_0/c-00001-of-00002.gguf")),
            ("a/b@refs/pr/7/c.gguf", "a/b", Some("refs/pr/7"), file("c.gguf")),
            ("hf://gpt2", "gpt2", None, Part::Model),
            ("hf:gpt2@main", "gpt2", Some("main"), Part::Model),
            ("hf://models/a/b", "a/b", None, Part::Model),
            ("https://huggingface.co/a/b/", "a/b", None, Part::Model),
            ("https://huggingface.co/a/b/tree/v1", "a/b", Some("v1"), Part::Model),
            ("https://huggingface.co/a/b/tree/refs/pr/7", "a/b", Some("refs/pr/7"), Part::Model),
            ("https://huggingface.co/gpt2/tree", "gpt2", None, Part::Model),
            ("https://hf.co/a/b/blob/main/x/c.gguf?download=true", "a/b", Some("main"), file("x/c.gguf")),
        ] {
            let want = (id.to_owned(), revision.map(str::to_owned), part);
            assert_eq!(read(text), Ok(want), "{text}");
        }
        for (text, says) in [
            ("gpt2", "no name of a model"),
            ("a/b@", "no revision"),
            ("a/b@../x", "no revision"),
            ("a/b:", "no format"),
            ("a/b/../c", "no name of a file"),
            ("a/b/..", "no name of a file"),
            ("../b", "no name of a model"),
            ("a/b:Q4_0/c.gguf", "not both"),
            ("/a/b", "no name of a model"),
            ("", "no name of a model"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(says), "{text}: {found}");
        }
        for text in ["a/b@v1:Q4_K_M", "a/b@refs/pr/7:Q4_K_M"] {
            assert!(Reference::parse(text).is_ok_and(|r| r.to_string() == text), "{text}");
        }
    }
}
