//! Paths of the machine that built a binary: of the sources, of Cargo's registry, of the toolchain.

use crate::Failure;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Folders of this machine that no package may name.
///
/// # Errors
/// The workspace is not where it was when this program was built.
pub fn private(workspace: &Path) -> Result<Vec<PathBuf>, Failure> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let of = |variable: &str, folder: &str| {
        let given = std::env::var_os(variable).map(PathBuf::from);
        given.or_else(|| home.as_ref().map(|home| home.join(folder)))
    };
    let others = [of("CARGO_HOME", ".cargo"), of("RUSTUP_HOME", ".rustup")];
    let there = others.into_iter().flatten().filter_map(|folder| folder.canonicalize().ok());
    Ok([workspace.canonicalize()?].into_iter().chain(there).collect())
}

/// The paths in `bytes` that lie in one of these folders, each once.
pub fn inside(bytes: &[u8], folders: &[PathBuf]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in folders {
        let start = format!("{}/", folder.display());
        let len = start.len();
        let is_path = |b: &&u8| b.is_ascii_graphic() && !b"\"'`:;,<>()".contains(b);
        for (at, _) in bytes.windows(len).enumerate().filter(|(_, w)| *w == start.as_bytes()) {
            let rest = bytes[at + len..].iter().take_while(is_path).count();
            found.insert(String::from_utf8_lossy(&bytes[at..at + len + rest]).into_owned());
        }
    }
    found
}
