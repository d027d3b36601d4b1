//! The crates that are linked into a program, from Cargo's graph.

use crate::Failure;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The platform that packages are for.
pub const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// A program or library whose crates are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// Its package.
    pub package: &'static str,
    /// Its features, as arguments of Cargo in the workspace.
    pub features: &'static [&'static str],
    /// A library whose bytes it holds, which Cargo's graph does not show.
    pub holds: Option<&'static Root>,
}

/// The runtime with all its features, which artifacts hold.
pub const RUNTIME: Root = Root {
    package: "llmcc-rt",
    features: &["--no-default-features", "--features", "llmcc-rt/media,llmcc-rt/grammar,llmcc-rt/heap"],
    holds: None,
};
/// The compiler without LLVM, with the runtime that it puts into artifacts.
pub const COMPILER: Root = Root { package: "llmcc", features: &[], holds: Some(&RUNTIME) };
/// The program that lowers GPU kernels; all but LLVM and MLIR themselves.
pub const GPU: Root = Root { package: "llmcc-gpu", features: &["--features", "llmcc-gpu/llvm"], holds: None };

/// A crate.
#[derive(Clone, Debug)]
pub struct Package {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// SPDX expression; empty where the crate names a file instead.
    pub license: String,
    /// Authors as its manifest names them.
    pub authors: Vec<String>,
    /// Folder of its sources.
    pub folder: PathBuf,
    /// Whether it is a part of llmcc.
    pub ours: bool,
    /// Names and versions of the crates it depends on, of those that are linked.
    pub needs: BTreeSet<(String, String)>,
    /// SHA-256 of its archive in the registry; `None` for our own.
    pub checksum: Option<String>,
}

/// The crates that are linked into `root`, and into what it holds, on [`PLATFORM`]: no build scripts, no procedural
/// macros.
///
/// # Errors
/// Cargo fails.
pub fn packages(workspace: &Path, root: Root) -> Result<Vec<Package>, Failure> {
    let mut found = linked_packages(workspace, root)?;
    let Some(held) = root.holds else { return Ok(found) };
    for package in packages(workspace, *held)? {
        let same = |p: &&mut Package| (&p.name, &p.version) == (&package.name, &package.version);
        match found.iter_mut().find(same) {
            Some(both) => both.needs.extend(package.needs),
            None => found.push(package),
        }
    }
    let library = found.iter().find(|p| p.name == held.package).map(|p| (p.name.clone(), p.version.clone()));
    if let Some(holder) = found.iter_mut().find(|p| p.name == root.package) {
        holder.needs.extend(library);
    }
    found.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(found)
}

fn linked_packages(workspace: &Path, root: Root) -> Result<Vec<Package>, Failure> {
    let linked = linked(workspace, root)?;
    let checksums = checksums(&std::fs::read_to_string(workspace.join("Cargo.lock"))?);
    let arguments = [&["metadata", "--format-version", "1", "--filter-platform", PLATFORM][..], root.features].concat();
    let metadata: Value = serde_json::from_str(&cargo(workspace, &arguments)?)?;
    let mut found = vec![];
    let mut ids = BTreeMap::new();
    for p in array(&metadata["packages"]) {
        let key = (text(&p["name"]), text(&p["version"]));
        ids.insert(text(&p["id"]), key.clone());
        if !linked.contains(&key) {
            continue;
        }
        let manifest = PathBuf::from(text(&p["manifest_path"]));
        found.push(Package {
            checksum: checksums.get(&key).cloned(),
            ours: p["source"].is_null(),
            name: key.0,
            version: key.1,
            license: text(&p["license"]),
            authors: array(&p["authors"]).iter().map(text).collect(),
            folder: manifest.parent().unwrap_or(workspace).to_owned(),
            needs: BTreeSet::new(),
        });
    }
    for node in array(&metadata["resolve"]["nodes"]) {
        let Some(key) = ids.get(&text(&node["id"])) else { continue };
        let Some(package) = found.iter_mut().find(|p| (&p.name, &p.version) == (&key.0, &key.1)) else { continue };
        let needs = array(&node["dependencies"]).iter().filter_map(|id| ids.get(&text(id)));
        package.needs = needs.filter(|n| linked.contains(*n)).cloned().collect();
    }
    found.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    match found.len() == linked.len() {
        true => Ok(found),
        false => Err(format!("`cargo metadata` lacks crates that `cargo tree` lists for {}", root.package).into()),
    }
}

/// Names and versions, by `cargo tree`, which resolves the features of a single package.
fn linked(workspace: &Path, root: Root) -> Result<BTreeSet<(String, String)>, Failure> {
    let tree = ["tree", "-p", root.package, "-e", "normal,no-proc-macro", "--target", PLATFORM];
    let form = ["--prefix", "none", "--no-dedupe", "--format", "{p}"];
    let lines = cargo(workspace, &[&tree[..], &form, root.features].concat())?;
    let name = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    Ok(lines.lines().filter_map(name).collect())
}

/// Runs Cargo on the lock file as it is, without the network.
fn cargo(workspace: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(program).args(arguments).args(["--locked", "--offline"]).current_dir(workspace).output()?;
    if !done.status.success() {
        return Err(format!("cargo {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(String::from_utf8(done.stdout)?)
}

/// The checksums of a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]").skip(1);
    blocks.filter_map(|b| Some(((value(b, "name")?, value(b, "version")?), value(b, "checksum")?))).collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
