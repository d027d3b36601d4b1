//! Files of a crate use each other only one way: a circle of files is one file in many pieces, and no piece can be
//! read alone.
//!
//! A file uses another where a path of it leads to an item of the other: in `use`, with `crate::`,
//! `super::` or `self::`, or by the bare name of a child (`load::open(..)`). A name that is only passed
//! on (`pub use`) belongs to the file that defines it: whoever takes it from the file that passes it on
//! uses the defining file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Sources of all crates.
const CRATES: &[&str] = &[
    "bindings/rust/src",
    "cli/src",
    "codegen/gpu/src",
    "codegen/src",
    "frontends/hub/src",
    "frontends/src",
    "ir/src",
    "passes/src",
    "runtime/abi/src",
    "runtime/image/src",
    "runtime/rt/src",
    "runtime/steps/src",
    "runtime/text/src",
    "runtime/media/src",
    "runtime/ukernels/src",
    "serve/src",
    "serve/route/src",
    "serve/turns/src",
    "tests/ptx/fake/src",
    "tests/ptx/src",
    "tests/src",
    "tests/support/src",
    "tools/dist/src",
];

/// A circle that is better than the same files without one.
struct Better {
    of: &'static str,
    /// The circle lies in these modules and those below them.
    within: &'static [&'static str],
    /// Why it is better so.
    why: &'static str,
}

const BETTER: &[Better] = &[
    Better {
        of: "ir/src",
        within: &["eval", "graph", "kernel", "state", "text", "verify"],
        why: "an operation, a kind of state and a family of kernels each have their text, rules and meaning in one \
              file, so that adding one is a file and a line",
    },
    Better {
        of: "codegen/gpu/src",
        within: &["mlir"],
        why: "the builder is one type whose methods fill several files",
    },
    Better {
        of: "runtime/text/src",
        within: &["jinja"],
        why: "expressions call functions and methods, which format values and call expressions again: one recursion",
    },
    Better {
        of: "runtime/ukernels/src",
        within: &["attend"],
        why: "steps of one function, inlined into it; moving their types is worth no other code",
    },
    Better { of: "runtime/ukernels/src", within: &["isa::sse2"], why: "one implementation of `Isa` in three files" },
    Better { of: "runtime/ukernels/src", within: &["panel"], why: "tiles and panels are generic over each other" },
    Better {
        of: "tests/ptx/src",
        within: &[""],
        why: "an emulator: instructions are closures over the machine, whose state is made of what they need",
    },
];

/// A module by its path in the crate.
type Module = Vec<String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The modules of a crate with their code; comments, unit tests and dummies are left out.
fn modules(src: &Path, dir: &Path, out: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(dir).expect("folder") {
        let path = entry.expect("entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if path.is_dir() && name != "tests" {
            modules(src, &path, out);
        } else if let Some(stem) = name.strip_suffix(".rs").filter(|s| !["tests", "testing", "dummy"].contains(s)) {
            let folder = path.parent().and_then(|p| p.strip_prefix(src).ok()).expect("inside");
            let mut module: Module = folder.iter().map(|s| s.to_string_lossy().into_owned()).collect();
            if !["mod", "lib", "main"].contains(&stem) {
                module.push(stem.to_string());
            }
            out.insert(module, code(&fs::read_to_string(&path).expect("readable")));
        }
    }
}

/// The lines of code, without items for tests. In a module inside a file `super` is the file.
fn code(text: &str) -> String {
    let indent = |l: &str| l.len() - l.trim_start().len();
    let mut out = String::new();
    // Where the item for tests, and the inner modules, began.
    let (mut skipped, mut inner): (Option<usize>, Vec<usize>) = (None, vec![]);
    for line in text.lines().map(|l| l.split("//").next().unwrap_or_default().trim_end()) {
        // Where a thing is visible is no use of that place.
        let seen =
            line.split_once("pub(in ").and_then(|(before, rest)| Some(before.to_owned() + rest.split_once(')')?.1));
        let line = seen.as_deref().unwrap_or(line);
        if line.trim().is_empty() {
            continue;
        }
        if let Some(from) = skipped {
            let ends = indent(line) <= from && (line.ends_with(['}', ';', ',']));
            if ends {
                skipped = None;
            }
            continue;
        }
        if line.trim() == "#[cfg(test)]" {
            skipped = Some(indent(line));
            continue;
        }
        inner.retain(|from| !(line.trim_start().starts_with('}') && indent(line) == *from));
        let depth = inner.len();
        let words: Vec<&str> = line.split_whitespace().filter(|w| !w.starts_with("pub")).collect();
        if matches!(words[..], ["mod", _, "{"]) {
            inner.push(indent(line));
        }
        out.push_str(&if depth > 0 { line.replacen("super::", "self::", 1) } else { line.to_string() });
        out.push('\n');
    }
    out
}

/// The paths in a `use`, braces written out, each with the name that it brings.
fn paths(prefix: &str, tree: &str, out: &mut Vec<(String, String)>) {
    let Some((head, inner)) = tree.split_once('{') else {
        let tree = tree.trim();
        if !tree.is_empty() {
            let (path, name) = tree.split_once(" as ").unwrap_or((tree, tree.rsplit("::").next().unwrap_or(tree)));
            out.push((format!("{prefix}{}", path.trim()), name.trim().to_string()));
        }
        return;
    };
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let (mut depth, mut start) = (0, 0);
    for (i, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            paths(&format!("{prefix}{}", head.trim()), &inner[start..i], out);
            start = i + 1;
        }
    }
}

/// Names in a file: paths of its own, names that it only passes on, and where names of `use` lead.
#[derive(Default)]
struct File {
    used: Vec<String>,
    brought: BTreeMap<String, String>,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `name` stands in the code as a type, a constant, a macro, a function that is called, or the
/// beginning of a path; not as a field, a method or the end of a path.
fn names(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(i, _)| {
        let (before, after) = (&code[..i], &code[i + name.len()..]);
        let apart = !before.ends_with([':', '.']) && !before.ends_with(is_word) && !after.starts_with(is_word);
        let is_defined = ["fn ", "let ", "mod "].iter().any(|word| before.ends_with(word));
        let is_type = name.starts_with(char::is_uppercase);
        apart && !is_defined && (is_type || after.starts_with(['(', '!']) || after.starts_with("::"))
    })
}

fn read(module: &Module, code: &str, all: &BTreeMap<Module, String>) -> File {
    let mut file = File::default();
    let (mut passed_on, mut rest) = (vec![], String::new());
    let mut left = code;
    // A `use` begins a line, perhaps after its visibility.
    while let Some(i) = left.find("use ") {
        let line = left[..i].rsplit('\n').next().unwrap_or_default();
        let visible = line.trim_start().starts_with("pub");
        let begins = line.trim().is_empty() || visible && line.trim_end().ends_with(['b', ')']);
        rest.push_str(&left[..i - line.len()]);
        left = &left[i + 4..];
        let Some((tree, after)) = left.split_once(';').filter(|_| begins) else {
            rest.push_str(line);
            continue;
        };
        left = after;
        let mut found = vec![];
        paths("", tree, &mut found);
        for (path, name) in found {
            match visible {
                true => passed_on.push((path.clone(), name.clone())),
                false => file.used.push(path.clone()),
            }
            file.brought.entry(name).or_insert(path);
        }
    }
    rest.push_str(left);
    file.used.extend(passed_on.into_iter().filter(|(_, name)| names(&rest, name)).map(|(path, _)| path));
    let tokens = rest.split(|c: char| !(is_word(c) || c == ':'));
    let begins = |path: &str| {
        let first = path.split("::").next().unwrap_or_default();
        let child = || all.contains_key(&[module.clone(), vec![first.to_string()]].concat());
        path.contains("::") && (["crate", "super", "self"].contains(&first) || child())
    };
    file.used.extend(tokens.filter(|path| begins(path)).map(str::to_string));
    file
}

/// The file that has the item of a path of `from`.
fn target(path: &str, from: &Module, files: &BTreeMap<Module, File>, depth: usize) -> Option<Module> {
    let parts: Vec<&str> = path.split("::").map(str::trim).collect();
    let ups = parts.iter().take_while(|p| **p == "super").count();
    let (mut at, rest): (Module, &[&str]) = match parts[0] {
        "crate" => (vec![], &parts[1..]),
        "self" => (from.clone(), &parts[1..]),
        "super" => (from[..from.len().checked_sub(ups)?].to_vec(), &parts[ups..]),
        first if files.contains_key(&[from.clone(), vec![first.to_string()]].concat()) => (from.clone(), &parts[..]),
        _ => return None,
    };
    for (i, part) in rest.iter().enumerate() {
        at.push((*part).to_string());
        if files.contains_key(&at) {
            continue;
        }
        at.pop();
        // Taken from where it is passed on, or from another crate.
        let brought = files.get(&at).and_then(|file| file.brought.get(*part)).filter(|_| depth < 8);
        return match brought {
            Some(path) => target(&[&[path.as_str()], &rest[i + 1..]].concat().join("::"), &at, files, depth + 1),
            None => Some(at),
        };
    }
    Some(at)
}

/// The modules that each file of a crate uses.
fn used(src: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut all = BTreeMap::new();
    modules(src, src, &mut all);
    let files: BTreeMap<Module, File> = all.iter().map(|(m, code)| (m.clone(), read(m, code, &all))).collect();
    let of = |(m, file): (&Module, &File)| {
        let others = file.used.iter().filter_map(|p| target(p, m, &files, 0)).filter(|t| t != m);
        (m.clone(), others.filter(|t| files.contains_key(t)).collect())
    };
    files.iter().map(of).collect()
}

/// All that a file uses, at first or further hand.
fn reached(from: &Module, used: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(m) = open.pop() {
        for other in used.get(&m).into_iter().flatten() {
            if seen.insert(other.clone()) {
                open.push(other.clone());
            }
        }
    }
    seen
}

/// The circles: files that all reach each other.
fn circles(used: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<BTreeSet<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<Module>> = used.keys().map(|m| (m, reached(m, used))).collect();
    let circle = |m: &Module| -> BTreeSet<Module> {
        reach[m].iter().filter(|other| reach.get(other).is_some_and(|back| back.contains(m))).cloned().collect()
    };
    used.keys().map(circle).filter(|c| c.len() > 1).collect()
}

fn show(m: &Module) -> String {
    if m.is_empty() { "the root".into() } else { m.join("::") }
}

fn covers(within: &[&str], circle: &BTreeSet<Module>) -> bool {
    let inside = |m: &Module| {
        let name = m.join("::");
        within.iter().any(|room| room.is_empty() || name == *room || name.starts_with(&format!("{room}::")))
    };
    circle.iter().all(inside)
}

#[test]
fn files_do_not_use_each_other_in_circles() {
    let allowed: Vec<(&str, &[&str])> = BETTER.iter().map(|b| (b.of, b.within)).collect();
    let (mut found, mut needed) = (vec![], BTreeSet::new());
    for src in CRATES {
        let used = used(&root().join(src));
        assert!(!used.is_empty(), "{src} has no modules");
        for circle in circles(&used) {
            if let Some(i) = allowed.iter().position(|(of, within)| of == src && covers(within, &circle)) {
                needed.insert(i);
                continue;
            }
            let uses = |m: &Module| used[m].iter().filter(|o| circle.contains(*o)).map(show).collect::<Vec<_>>();
            let lines = circle.iter().map(|m| format!("  {} uses {}", show(m), uses(m).join(", ")));
            found.push(format!("{src}:\n{}", lines.collect::<Vec<_>>().join("\n")));
        }
    }
    assert!(found.is_empty(), "circles of files:\n{}", found.join("\n"));
    for (i, (of, within)) in allowed.iter().enumerate() {
        assert!(needed.contains(&i), "{of}: no circle in {} any more: its line goes", within.join(", "));
    }
    assert!(BETTER.iter().all(|b| b.why.len() > 20), "a circle says what it is good for");
}

#[test]
fn uses_are_found_however_they_are_written() {
    let all = |texts: &[(&str, &str)]| -> BTreeMap<Module, String> {
        let module = |name: &str| if name.is_empty() { vec![] } else { name.split("::").map(String::from).collect() };
        texts.iter().map(|(name, text)| (module(name), code(text))).collect()
    };
    let crate_of = all(&[
        ("", "mod a;\nmod b;\npub use a::Thing;\n"),
        (
            "a",
            "mod child;\npub struct Thing;\nfn f() {\n    child::open()\n}\n\
             #[cfg(test)]\nmod tests {\n    use crate::b::Other;\n}\n",
        ),
        ("a::child", "// super::super::b::no\npub fn open() {}\n"),
        ("b", "use crate::{Thing, a::{child::open as o}};\nmod inner {\n    use super::Thing;\n}\n"),
    ]);
    let files: BTreeMap<Module, File> = crate_of.iter().map(|(m, c)| (m.clone(), read(m, c, &crate_of))).collect();
    let uses = |name: &str| -> Vec<String> {
        let m: Module = if name.is_empty() { vec![] } else { name.split("::").map(String::from).collect() };
        let mut out: Vec<String> = files[&m]
            .used
            .iter()
            .filter_map(|p| target(p, &m, &files, 0))
            .filter(|t| *t != m)
            .map(|t| show(&t))
            .collect();
        out.sort();
        out.dedup();
        out
    };
    assert_eq!(uses(""), [""; 0], "what is passed on is not used");
    assert_eq!(uses("a"), ["a::child"], "a bare path to a child; tests do not count");
    assert_eq!(uses("a::child"), [""; 0], "comments do not count");
    assert_eq!(uses("b"), ["a", "a::child"], "what the root passes on is of `a`");
}
