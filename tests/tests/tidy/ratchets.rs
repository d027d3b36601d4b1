//! Counts that may only fall: lines of a file, of a function, of text; wildcard arms over the kinds
//! of things that grow.
//!
//! Files that exceeded a limit when it was set are listed with their size. A test fails when a
//! count grows, when another file exceeds the limit, and when a listed count has fallen: then its
//! line is to be lowered or removed.

use super::{root, rust_files};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Lines of a file.
const FILE: usize = 700;
/// Lines of a function, from its signature to its last brace.
const FUNCTION: usize = 60;
/// Characters of a line.
const LINE: usize = 120;
/// Enumerations whose members differ: a match over them names each, so that a new member does not
/// compile until someone has given its meaning.
const OPEN: &[&str] =
    &["Op", "Body", "Expr", "Store", "ParamKind", "ValueType", "StateSpec", "Code", "Elem", "RowElem", "KvDType"];

/// Sizes by place, `path` or `path name`.
type Sizes = BTreeMap<String, usize>;

/// Rust files with their paths from the root, and their texts.
fn texts() -> Vec<(String, String)> {
    let mut files: Vec<PathBuf> = vec![];
    rust_files(&root(), &mut files);
    files.sort();
    let text = |f: PathBuf| {
        let path = f.strip_prefix(root()).expect("below the root").display().to_string();
        (path, fs::read_to_string(&f).expect("readable"))
    };
    files.into_iter().map(text).collect()
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with("tests") || part.ends_with("tests.rs") || part == "benches")
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Compares counts above a limit with the list `tests/tests/tidy/NAME.txt`.
fn hold(name: &str, what: &str, found: &Sizes) {
    let path = root().join("tests/tests/tidy").join(name);
    if std::env::var_os("LLMCC_LOWER_RATCHETS").is_some() {
        let lines: String = found.iter().map(|(place, size)| format!("{size} {place}\n")).collect();
        fs::write(&path, lines).expect("written");
        return;
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let listed: Sizes = text
        .lines()
        .filter_map(|l| l.split_once(' '))
        .map(|(size, place)| (place.to_owned(), size.parse().expect("a number")))
        .collect();
    let mut wrong = vec![];
    for (place, size) in found {
        match listed.get(place) {
            None => wrong.push(format!("{place}: {size} {what}")),
            Some(was) if size > was => wrong.push(format!("{place}: {size} {what}, was {was}")),
            Some(_) => {}
        }
    }
    for (place, was) in &listed {
        let now = found.get(place).copied().unwrap_or(0);
        if now < *was {
            wrong.push(format!(
                "{place}: {now} {what} instead of {was}: lower it in {name} (LLMCC_LOWER_RATCHETS=1 does)"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_stay_short() {
    let sizes = texts().into_iter().map(|(path, text)| (path, text.lines().count()));
    hold("files.txt", "lines in a file", &sizes.filter(|(_, n)| *n > FILE).collect());
}

#[test]
fn functions_stay_short() {
    let mut found = Sizes::new();
    for (path, text) in texts().into_iter().filter(|(path, _)| !is_test(path)) {
        for (name, length) in functions(&text).into_iter().filter(|(_, length)| *length > FUNCTION) {
            let most = found.entry(format!("{path} {name}")).or_default();
            *most = length.max(*most);
        }
    }
    hold("functions.txt", "lines in a function", &found);
}

/// Names and lengths of the functions of a formatted file.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = vec![];
    for (i, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let end = format!("{}}}", &line[..indent(line)]);
        let body = lines[i..].iter().position(|l| *l == end || l.ends_with(';') && indent(l) == indent(line));
        found.extend(body.map(|n| (name, n + 1)));
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let words = line.trim_start();
    let qualifiers = ["pub", "pub(super)", "pub(crate)", "const", "async", "unsafe", "extern", "\"C\"", "\"C-unwind\""];
    let mut rest = words;
    loop {
        let (word, after) = rest.split_once(' ')?;
        if word == "fn" {
            return after.split(['(', '<']).next();
        }
        if !qualifiers.contains(&word) {
            return None;
        }
        rest = after;
    }
}

#[test]
fn lines_stay_narrow() {
    let mut found = Sizes::new();
    for (path, text) in texts() {
        let wide = text.lines().filter(|l| l.chars().count() > LINE).count();
        if wide > 0 {
            found.insert(path, wide);
        }
    }
    hold("lines.txt", &format!("lines of more than {LINE} characters"), &found);
}

#[test]
fn matches_name_every_member() {
    let mut found = Sizes::new();
    for (path, text) in texts().into_iter().filter(|(path, _)| !is_test(path)) {
        let lines: Vec<&str> = text.lines().collect();
        let wild = (0..lines.len()).filter(|i| is_open_wildcard(&lines, *i)).count();
        if wild > 0 {
            found.insert(path, wild);
        }
    }
    hold("wildcards.txt", "wildcard arms over what grows", &found);
}

/// Whether line `at` is a wildcard arm of a match whose other arms are members of [`OPEN`].
fn is_open_wildcard(lines: &[&str], at: usize) -> bool {
    let arm = lines[at].trim_start();
    if !(arm.starts_with("_ =>") || arm.starts_with("_ if ")) {
        return false;
    }
    let depth = indent(lines[at]);
    let above = lines[..at].iter().rev().filter(|l| !l.trim().is_empty());
    above.take_while(|l| indent(l) >= depth).filter(|l| indent(l) == depth).any(|l| {
        let pattern = l.trim_start().trim_start_matches(['&', '(', '[']).trim_start_matches("Some(");
        OPEN.iter().any(|name| pattern.strip_prefix(name).is_some_and(|rest| rest.starts_with("::")))
    })
}

/// Types that a file defines for others or for itself.
fn types(text: &str) -> Vec<&str> {
    let name = |line: &'_ str| -> Option<usize> {
        let words = line.trim_start_matches("pub(super) ").trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let rest = ["struct ", "enum ", "trait "].iter().find_map(|k| words.strip_prefix(k))?;
        Some(line.len() - rest.len())
    };
    let word = |rest: &'_ str| rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    text.lines().filter_map(|l| name(l).map(|at| &l[at..][..word(&l[at..])])).collect()
}

#[test]
fn names_have_one_meaning() {
    let mut found = Sizes::new();
    for (_, text) in texts().into_iter().filter(|(path, _)| !is_test(path)) {
        types(&text).into_iter().for_each(|name| *found.entry(name.to_owned()).or_default() += 1);
    }
    found.retain(|_, n| *n > 2);
    hold("names.txt", "types of one name", &found);
}

/// The glossary's names are where it says.
#[test]
fn the_glossary_is_true() {
    let page = fs::read_to_string(root().join("docs/glossary.md")).expect("readable");
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|l| l.starts_with("| ")).skip(1).map(|l| l.split(" | ").collect()).collect();
    assert!(rows.len() > 30, "only {} words found", rows.len());
    let words: Vec<&str> = rows.iter().map(|r| r[0]).collect();
    assert!(words.is_sorted_by_key(|w| w.to_lowercase()), "words are not in order");
    for row in &rows {
        let [_, place, _] = row[..] else { panic!("three columns: {row:?}") };
        let quoted: Vec<&str> = place.split('`').filter(|s| !s.trim().is_empty()).collect();
        let (name, path) = match quoted[..] {
            [path] => (None, path),
            [name, path] => (Some(name), path),
            _ => panic!("a name and a path: {place}"),
        };
        let text = fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        let defines =
            |n: &str| ["struct", "enum", "trait", "const", "type"].iter().any(|k| text.contains(&format!("{k} {n}")));
        assert!(name.is_none_or(defines), "{path} does not define {name:?}");
    }
}

#[test]
fn what_is_counted_is_found() {
    assert_eq!(types("pub struct A<T>(T);\npub(super) enum Bc {\nlet struct_ = 1;\ntrait D: E {}"), ["A", "Bc", "D"]);
    let text = "impl A {\n    pub fn long(&self) -> u8 {\n        match self {\n            Op::Embed => 1,\n            _ => 2,\n        }\n    }\n}\n";
    assert_eq!(functions(text), [("long", 6)]);
    let lines: Vec<&str> = text.lines().collect();
    let wild: Vec<usize> = (0..lines.len()).filter(|i| is_open_wildcard(&lines, *i)).collect();
    assert_eq!(wild, [4]);
    assert!(is_test("ir/src/verify/tests.rs") && is_test("tests/src/lib.rs") && !is_test("ir/src/lib.rs"));
}
