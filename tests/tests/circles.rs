//! Files of a crate use each other in one direction only: a circle of files is one file in many
//! pieces, none readable alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates without circles.
const OPEN: &[&str] = &["frontends/src"];

/// A module by its path in the crate.
type Module = Vec<String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The modules of a crate with their text up to the unit tests, comments left out.
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
            let text = fs::read_to_string(&path).expect("readable");
            let code = text.split("\n#[cfg(test)]").next().unwrap_or_default().lines();
            out.insert(module, code.map(|l| l.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n"));
        }
    }
}

/// The paths in a `use`, braces written out.
fn paths(prefix: &str, tree: &str, out: &mut Vec<String>) {
    let Some((head, inner)) = tree.split_once('{') else { return out.push(format!("{prefix}{}", tree.trim())) };
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let (mut depth, mut start) = (0, 0);
    for (i, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            paths(&format!("{prefix}{}", head.trim()), inner[start..i].trim(), out);
            start = i + 1;
        }
    }
}

/// The module whose file a path of `from` leads to.
fn target(path: &str, from: &Module, all: &BTreeMap<Module, String>) -> Option<Module> {
    let parts: Vec<&str> = path.split("::").map(str::trim).collect();
    let ups = parts.iter().take_while(|p| **p == "super").count();
    let (mut at, rest): (Module, &[&str]) = match parts[0] {
        "crate" => (vec![], &parts[1..]),
        "self" => (from.clone(), &parts[1..]),
        "super" => (from[..from.len().checked_sub(ups)?].to_vec(), &parts[ups..]),
        first if all.contains_key(&[from.clone(), vec![first.to_string()]].concat()) => (from.clone(), &parts[..]),
        _ => return None,
    };
    for part in rest {
        at.push((*part).to_string());
        if !all.contains_key(&at) {
            at.pop();
            break;
        }
    }
    Some(at)
}

fn uses(module: &Module, text: &str, all: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let mut found = vec![];
    for tree in text.split("use ").skip(1).filter_map(|s| s.split_once(';')) {
        paths("", tree.0, &mut found);
    }
    for start in ["crate::", "super::"] {
        let ends = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
        // From where they begin: the second `super` of two is none of the file itself.
        let whole = text.match_indices(start).filter(|(i, _)| !text[..*i].ends_with("super::"));
        found.extend(whole.map(|(i, _)| text[i..].split(ends).next().unwrap_or_default().to_string()));
    }
    found.iter().filter_map(|p| target(p, module, all)).filter(|t| t != module).collect()
}

#[test]
fn files_do_not_use_each_other_in_circles() {
    for src in OPEN {
        let src = root().join(src);
        let mut all = BTreeMap::new();
        modules(&src, &src, &mut all);
        assert!(all.len() > 10, "{}: {} modules", src.display(), all.len());
        let mut left: BTreeMap<Module, BTreeSet<Module>> =
            all.iter().map(|(m, text)| (m.clone(), uses(m, text, &all))).collect();
        assert!(left.values().map(BTreeSet::len).sum::<usize>() > all.len(), "{left:?}");
        // Whoever uses nobody that is left is in no circle, and leaves.
        loop {
            let free: Vec<Module> = left
                .iter()
                .filter(|(_, used)| used.iter().all(|u| !left.contains_key(u)))
                .map(|(m, _)| m.clone())
                .collect();
            if free.is_empty() {
                break;
            }
            free.iter().for_each(|m| drop(left.remove(m)));
        }
        let names: Vec<String> = left.keys().map(|m| m.join("::")).collect();
        assert!(names.is_empty(), "{}: these use each other, or files that do: {}", src.display(), names.join(", "));
    }
}
