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

/// Words that mean different things in different files, with the files where they mean what
/// `docs/glossary.md` says. Elsewhere name the thing: a slot is memory of buffers, and neither a place in
/// a table, nor an expert's rank, nor room for an adapter; a number is an index, a count, an id or a value.
const MANY_MEANINGS: &[(&str, &[&str])] = &[
    (
        "slot",
        &[
            "codegen/src/artifact.rs",
            "ir/src/eval/plan.rs",
            "ir/src/plan.rs",
            "ir/src/text/parse_plan.rs",
            "ir/src/text/print_plan.rs",
            "ir/src/verify/plan.rs",
            "passes/src/memory.rs",
            "passes/src/plan.rs",
            "runtime/rt/src/engine/arena.rs",
        ],
    ),
    ("number", &[]),
];

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

/// An input of entries costs six files (`docs/adding-entry.md`), beside whoever reads it.
#[test]
fn inputs_are_named_in_few_files() {
    for name in ["Types", "Given", "Axes"] {
        let words = [format!("Input::{name}"), format!("Array::{name}"), format!(" {name};")];
        let names = |text: &str| words.iter().any(|word| text.contains(word));
        let all = texts();
        let own = all.iter().filter(|(path, text)| !is_test(path) && !path.starts_with("frontends/") && names(text));
        let files: Vec<&str> = own.map(|(path, _)| path.as_str()).collect();
        assert!((3..=6).contains(&files.len()), "{name}: {files:?}");
    }
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

/// Names that a file defines: types, functions, constants, fields, and variables by `let`.
fn defined(text: &str) -> Vec<&str> {
    let keywords = ["fn", "let", "let mut", "const", "static", "struct", "enum", "trait", "type"];
    let visible = ["pub(super) ", "pub(crate) ", "pub ", "unsafe ", "async "];
    let name = |line: &'_ str| -> Option<usize> {
        let words = visible.iter().fold(line.trim_start(), |rest, word| rest.strip_prefix(word).unwrap_or(rest));
        let after = |k: &str| words.strip_prefix(k)?.strip_prefix(' ');
        let rest = keywords.iter().rev().find_map(|k| after(k)).unwrap_or(words);
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let is_field = rest[end..].starts_with(": ") && rest.ends_with(',');
        (end > 0 && (rest.len() < words.len() || is_field)).then_some(line.len() - rest.len())
    };
    let word = |rest: &'_ str| rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    text.lines().filter_map(|l| name(l).map(|at| &l[at..][..word(&l[at..])])).collect()
}

/// Whether a name has the word, alone or in the plural: `next_slot`, `SLOTS`, `SlotTable`.
fn has_word(name: &str, word: &str) -> bool {
    let mut parts = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && before.is_lowercase() {
            parts.push(String::new());
        }
        before = c;
        let part = parts.last_mut().expect("one at least");
        part.extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    parts.iter().any(|part| part == word || part.strip_suffix('s') == Some(word))
}

/// Names that have a word of many meanings become fewer, each crate by itself.
#[test]
fn words_have_one_meaning() {
    for file in MANY_MEANINGS.iter().flat_map(|(_, files)| *files) {
        assert!(root().join(file).is_file(), "{file} is not there");
    }
    let mut found = Sizes::new();
    for (path, text) in texts().into_iter().filter(|(path, _)| !is_test(path)) {
        let room = path.split_once("/src/").map_or("elsewhere", |(room, _)| room);
        for (word, _) in MANY_MEANINGS.iter().filter(|(_, files)| !files.contains(&path.as_str())) {
            let n = defined(&text).into_iter().filter(|name| has_word(name, word)).count();
            if n > 0 {
                *found.entry(format!("{word} in {room}")).or_default() += n;
            }
        }
    }
    hold("words.txt", "names with a word of many meanings", &found);
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
    let text = "pub struct A<T>(T);\npub(super) enum Bc {\n    pub at: usize,\n    let mut slots = 1;\n  f(x, y);\n";
    assert_eq!(defined(text), ["A", "Bc", "at", "slots"]);
    let slots = ["slot", "next_slot", "SLOTS", "SlotTable", "HostSlot", "slotted", "lot"];
    assert_eq!(slots.map(|name| has_word(name, "slot")), [true, true, true, true, true, false, false]);
    let text = "impl A {\n    pub fn long(&self) -> u8 {\n        match self {\n            Op::Embed => 1,\n            _ => 2,\n        }\n    }\n}\n";
    assert_eq!(functions(text), [("long", 6)]);
    let lines: Vec<&str> = text.lines().collect();
    let wild: Vec<usize> = (0..lines.len()).filter(|i| is_open_wildcard(&lines, *i)).collect();
    assert_eq!(wild, [4]);
    assert!(is_test("ir/src/verify/tests.rs") && is_test("tests/src/lib.rs") && !is_test("ir/src/lib.rs"));
}
