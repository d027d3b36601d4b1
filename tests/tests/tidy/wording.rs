//! Wording of comments and pages: constructions that an English-speaking reader has to read twice.
//!
//! A comment begins with a noun or a verb: "Bytes of a page.", not "What a page takes." The limits
//! are shares of all text, so that a single exception does no harm; a failure lists the sentences.

use super::{files, root};
use std::fs;
use std::path::PathBuf;

/// Sentences that begin with one of [`OPENERS`], per thousand sentences of comments.
const OPENED: usize = 5;
/// Words with which a sentence of a comment should not begin.
const OPENERS: [&str; 2] = ["What", "Of"];
/// Occurrences of [`DETOURS`], per ten thousand words of comments, and of pages.
const TAKEN: usize = 3;
/// Phrases that refer back instead of naming the thing.
const DETOURS: [&str; 4] = ["those of", "of which", "of whose", "none of them"];

/// A paragraph of a comment or a page: its place, and its text on one line.
struct Paragraph {
    place: String,
    text: String,
}

/// The text of a line that is a comment alone, without its mark.
fn comment<'t>(path: &str, line: &'t str) -> Option<&'t str> {
    let line = line.trim_start();
    let text = if path.ends_with(".rs") {
        line.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']))
    } else {
        line.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    text.map(str::trim)
}

/// Lines of comments of a file, `None` for lines of code; docstrings of Python are comments.
fn comments<'t>(path: &str, text: &'t str) -> Vec<Option<&'t str>> {
    let mut inside = false;
    let mut line = |line: &'t str| {
        let quotes = if path.ends_with(".py") { line.matches("\"\"\"").count() } else { 0 };
        let was = inside;
        inside ^= quotes % 2 == 1;
        if was || quotes > 0 {
            return Some(line.trim().trim_matches('"'));
        }
        comment(path, line)
    };
    text.lines().map(&mut line).collect()
}

/// Paragraphs of lines; blank lines, headings, tables, items of lists and code between fences end one.
fn paragraphs<'t>(path: &str, lines: impl Iterator<Item = Option<&'t str>>) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = vec![];
    let (mut open, mut fenced) = (false, false);
    for (i, line) in lines.enumerate() {
        let text = line.map_or("", str::trim);
        if text.starts_with("```") {
            fenced = !fenced;
        }
        if fenced || text.is_empty() || text.starts_with("```") {
            open = false;
            continue;
        }
        let item = text.starts_with("- ") || text.starts_with("* ") || text.starts_with("| ");
        match found.last_mut().filter(|_| open && !item) {
            Some(last) => last.text = format!("{} {text}", last.text),
            None => {
                let text = text.trim_start_matches("- ").trim_start_matches("* ").to_owned();
                found.push(Paragraph { place: format!("{path}:{}", i + 1), text });
            }
        }
        open = true;
    }
    found
}

/// Paragraphs of all comments, or of all pages.
fn all(pages: bool) -> Vec<Paragraph> {
    let endings: &[&str] = if pages { &[".md"] } else { &[".rs", ".py", ".sh", ".toml", "Makefile"] };
    let read = |file: PathBuf| {
        let path = file.strip_prefix(root()).expect("below the root").display().to_string();
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines = if pages { text.lines().map(Some).collect() } else { comments(&path, &text) };
        paragraphs(&path, lines.into_iter())
    };
    let mut paths = vec![];
    files(&root(), endings, &mut paths);
    paths.sort();
    paths.into_iter().flat_map(read).collect()
}

/// Sentences of a paragraph: they end with a full stop before a capital letter or a quotation.
fn sentences(text: &str) -> Vec<&str> {
    let mut out = vec![];
    let mut from = 0;
    for (at, _) in text.match_indices(['.', '!', '?']) {
        let rest = &text[at + 1..];
        if rest.starts_with(' ') && rest.trim_start().starts_with(|c: char| c.is_uppercase() || "`[(*".contains(c)) {
            out.push(text[from..=at].trim());
            from = at + 1;
        }
    }
    out.push(text[from..].trim());
    out
}

fn opens(sentence: &str) -> bool {
    OPENERS.iter().any(|word| sentence.strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', ','])))
}

fn detours(text: &str) -> usize {
    let text = format!(" {} ", text.to_lowercase());
    DETOURS.iter().map(|phrase| text.matches(&format!(" {phrase} ")).count()).sum()
}

#[test]
fn comments_begin_with_a_noun_or_a_verb() {
    let comments = all(false);
    let pairs: Vec<(&str, &str)> =
        comments.iter().flat_map(|p| sentences(&p.text).into_iter().map(|s| (p.place.as_str(), s))).collect();
    let found: Vec<String> = pairs.iter().filter(|(_, s)| opens(s)).map(|(at, s)| format!("{at}: {s}")).collect();
    assert!(
        found.len() * 1000 <= OPENED * pairs.len(),
        "{} of {} sentences of comments begin with {OPENERS:?}, more than {OPENED} in 1000. Name the thing first: \
         \"Bytes of a page.\" instead of \"What a page takes.\"\n{}",
        found.len(),
        pairs.len(),
        found.join("\n")
    );
}

#[test]
fn comments_and_pages_name_what_they_mean() {
    for pages in [false, true] {
        let text = all(pages);
        let words: usize = text.iter().map(|p| p.text.split_whitespace().count()).sum();
        let found: Vec<&Paragraph> = text.iter().filter(|p| detours(&p.text) > 0).collect();
        let count: usize = found.iter().map(|p| detours(&p.text)).sum();
        let list: Vec<String> = found.iter().map(|p| format!("{}: {}", p.place, p.text)).collect();
        assert!(
            count * 10_000 <= TAKEN * words,
            "{count} of {DETOURS:?} in {words} words, more than {TAKEN} in 10000. Repeat the noun: \"the keys of a \
             page\" instead of \"those of a page\"\n{}",
            list.join("\n")
        );
    }
}

#[test]
fn sentences_are_found() {
    let text = "/// What it is. Of a page, `a.b` bytes.\n/// More: of which none.\nfn f() {}\n// Why.\n";
    let found = paragraphs("x.rs", comments("x.rs", text).into_iter());
    assert_eq!(found.len(), 2);
    assert_eq!(sentences(&found[0].text), ["What it is.", "Of a page, `a.b` bytes.", "More: of which none."]);
    assert_eq!(sentences(&found[0].text).into_iter().filter(|s| opens(s)).count(), 2);
    assert_eq!((detours(&found[0].text), found[1].place.as_str()), (1, "x.rs:4"));
    let python = "\"\"\"What it is.\n\nOf it.\n\"\"\"\nx = 1  # no\n# Of x.\n";
    let found = paragraphs("x.py", comments("x.py", python).into_iter());
    assert_eq!(found.iter().filter(|p| opens(&p.text)).count(), 3);
}
