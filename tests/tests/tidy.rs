//! The conventions of ARCHITECTURE.md, checked: direction of dependencies, code map, one line per
//! thing in the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "tidy/ratchets.rs"]
mod ratchets;
#[path = "tidy/wording.rs"]
mod wording;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Who may depend on whom, within the workspace. Tests and development dependencies are free.
const ALLOWED: &[(&str, &[&str])] = &[
    ("llmcc-abi", &[]),
    ("llmcc-steps", &[]),
    ("llmcc-ukernels", &["llmcc-abi"]),
    ("llmcc-text", &[]),
    ("llmcc-media", &[]),
    ("llmcc-rt", &["llmcc-abi", "llmcc-steps", "llmcc-ukernels", "llmcc-text", "llmcc-media"]),
    ("llmcc-rt-image", &["llmcc-abi"]),
    ("llmcc-model", &[]),
    ("llmcc-serve", &["llmcc-model", "llmcc-turns"]),
    ("llmcc-route", &["llmcc-serve"]),
    ("llmcc-turns", &[]),
    ("llmcc-hub", &[]),
    ("llmcc-ptx", &[]),
    ("llmcc-fake-cuda", &["llmcc-ptx"]),
    ("llmcc-test-support", &["llmcc-ir", "llmcc-abi"]),
    ("llmcc-dist", &["llmcc", "llmcc-gpu", "llmcc-rt-image"]),
    ("llmcc-features", &[]),
    ("llmcc-benches", &["llmcc-abi", "llmcc-ir", "llmcc-ukernels"]),
    ("llmcc-ir", &["llmcc-abi"]),
    ("llmcc-frontends", &["llmcc-ir", "llmcc-text"]),
    ("llmcc-passes", &["llmcc-ir", "llmcc-abi"]),
    ("llmcc-codegen", &["llmcc-ir", "llmcc-abi"]),
    ("llmcc-gpu", &["llmcc-codegen", "llmcc-ir", "llmcc-abi"]),
    (
        "llmcc",
        &[
            "llmcc-abi",
            "llmcc-ir",
            "llmcc-frontends",
            "llmcc-hub",
            "llmcc-passes",
            "llmcc-codegen",
            "llmcc-gpu",
            "llmcc-rt-image",
            "llmcc-model",
            "llmcc-route",
            "llmcc-serve",
            "llmcc-steps",
        ],
    ),
];

#[test]
fn dependencies_point_one_way() {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline", "--locked"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let meta: serde_json::Value = serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON");
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let mut seen = BTreeSet::new();
    for p in meta["packages"].as_array().expect("packages") {
        let name = p["name"].as_str().expect("name");
        if name == "llmcc-tests" {
            continue;
        }
        let may =
            allowed.get(name).unwrap_or_else(|| panic!("crate {name} is not in ALLOWED: say what it may depend on"));
        seen.insert(name.to_owned());
        for d in p["dependencies"].as_array().expect("dependencies") {
            let dep = d["name"].as_str().expect("name");
            let ours = dep == "llmcc" || dep.starts_with("llmcc-");
            assert!(!ours || d["kind"] == "dev" || may.contains(&dep), "{name} must not depend on {dep}");
        }
    }
    assert_eq!(seen.len(), ALLOWED.len(), "ALLOWED names crates that do not exist");
}

/// The compiler's machinery stays where it belongs.
#[test]
fn backends_do_not_leak() {
    for (manifest, forbidden) in [
        ("ir/Cargo.toml", &["cranelift", "egg", "serde"][..]),
        ("frontends/Cargo.toml", &["cranelift", "egg"]),
        ("passes/Cargo.toml", &["cranelift"]),
        ("runtime/rt/Cargo.toml", &["cranelift", "egg", "llmcc-ir"]),
    ] {
        let text = read(manifest);
        for f in forbidden {
            let line = text.lines().find(|l| l.starts_with(f));
            assert!(line.is_none(), "{manifest} must not use {f}: {line:?}");
        }
    }
}

/// Files of tests that belong to no program would never run.
#[test]
fn every_file_of_tests_is_run() {
    let mut crates = 0;
    let workspace = read("Cargo.toml");
    let (_, members) = workspace.split_once("members = [").expect("members");
    for member in members.lines().skip(1).map_while(|line| line.trim().strip_prefix('"')?.strip_suffix("\",")) {
        let text = read(Path::new(member).join("Cargo.toml"));
        if !text.contains("autotests = false") {
            continue;
        }
        crates += 1;
        let folder = Path::new(member).join("tests");
        let files: Vec<String> = fs::read_dir(root().join(&folder))
            .expect("tests")
            .filter_map(|file| Some(file.expect("a file").file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
            .collect();
        let programs = files.iter().filter(|name| text.contains(&format!("[[test]]\nname = \"{name}\"\n")));
        let declared: String = programs.clone().map(|name| read(folder.join(name).with_extension("rs"))).collect();
        for name in &files {
            let runs = programs.clone().any(|p| p == name) || declared.contains(&format!("mod {name};\n"));
            assert!(runs, "{member}/tests/{name}.rs is no module of suite.rs beside it");
        }
    }
    assert!(crates > 10, "{crates}");
}

/// ARCHITECTURE.md is read in one sitting, and every path in its code map exists.
#[test]
fn the_code_map_is_true() {
    let text = read("ARCHITECTURE.md");
    assert!(text.lines().count() <= 200, "longer texts belong in docs/design");
    let map =
        text.split("```map").nth(1).and_then(|s| s.split("```").next()).expect("ARCHITECTURE.md has a ```map block");
    let mut count = 0;
    for line in map.lines().filter(|l| !l.trim().is_empty()) {
        let path = line.split_whitespace().next().expect("a path");
        assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}, which does not exist");
        count += 1;
    }
    assert!(count > 20, "the code map names only {count} paths");
}

/// `mod` lines of a table folder: every file has one, and every file is in the table.
#[test]
fn things_are_one_file_and_one_line() {
    for (dir, table) in [
        ("frontends/src/arch/models", "frontends/src/arch/models/mod.rs"),
        ("frontends/src/arch/blocks", "frontends/src/arch/blocks/mod.rs"),
        ("frontends/src/arch/blocks/families", "frontends/src/arch/blocks/families/mod.rs"),
        ("frontends/src/arch/reading", "frontends/src/arch/reading/mod.rs"),
        ("ir/src/quant", "ir/src/quant/mod.rs"),
        ("passes/src/rules", "passes/src/rules/mod.rs"),
    ] {
        let text = read(table);
        for entry in fs::read_dir(root().join(dir)).expect(dir) {
            let path = entry.expect("entry").path();
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
            if path.extension().is_none_or(|e| e != "rs") || stem == "mod" {
                continue;
            }
            assert!(text.contains(&format!("mod {stem};")), "{table} does not mention {stem}");
        }
    }
}

/// Files below `dir` that are not built and whose names end in one of `endings`.
fn files(dir: &Path, endings: &[&str], out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("folder") {
        let path = entry.expect("entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !["target", "build", ".git", "corpus"].contains(&name) {
                files(&path, endings, out);
            }
        } else if endings.iter().any(|end| name.ends_with(end)) {
            out.push(path);
        }
    }
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    files(dir, &[".rs"], out);
}

#[test]
fn every_source_file_starts_with_its_purpose() {
    let mut files = vec![];
    rust_files(&root(), &mut files);
    // A file of unit tests has the subject of the file it tests.
    let tests = |f: &PathBuf| {
        f.file_name().is_some_and(|n| n == "tests.rs") || f.components().any(|c| c.as_os_str() == "tests")
    };
    for f in files.into_iter().filter(|f| !tests(f)) {
        let text = fs::read_to_string(&f).expect("readable");
        let first = text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
        assert!(first.starts_with("//!") || first.starts_with("#!["), "{} does not say what it is for", f.display());
    }
}

/// Each module of the command line can be read after those that it uses.
#[test]
fn the_command_line_has_no_circles() {
    let source = root().join("cli/src");
    let mut files = vec![];
    rust_files(&source, &mut files);
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for f in files {
        let path = f.strip_prefix(&source).expect("in the folder").with_extension("");
        let module = path.components().next().expect("a name").as_os_str().to_string_lossy().into_owned();
        let text = fs::read_to_string(&f).expect("readable");
        let code =
            text.split("#[cfg(test)]").next().unwrap_or_default().lines().filter(|l| !l.trim_start().starts_with("//"));
        for after in code.flat_map(|line| line.split("crate::").skip(1).map(str::to_owned).collect::<Vec<_>>()) {
            let list =
                after.strip_prefix('{').map_or(after.as_str(), |list| list.split('}').next().unwrap_or_default());
            let names = if after.starts_with('{') { list.split(',').collect() } else { vec![list] };
            let name = |n: &str| {
                n.trim().split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap_or_default().to_owned()
            };
            uses.entry(module.clone())
                .or_default()
                .extend(names.into_iter().map(name).filter(|n| !n.is_empty() && *n != module));
        }
    }
    assert!(uses.len() > 10 && uses["session"].contains("lowered"), "{uses:?}");
    for module in uses.keys() {
        let mut reached = uses[module].clone();
        loop {
            let more: BTreeSet<String> = reached.iter().filter_map(|m| uses.get(m)).flatten().cloned().collect();
            if more.is_subset(&reached) {
                break;
            }
            reached.extend(more);
        }
        assert!(!reached.contains(module), "cli/src: `{module}` uses itself by way of what it uses: {reached:?}");
    }
}
