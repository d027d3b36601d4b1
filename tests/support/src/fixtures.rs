//! Folders of `tests/goldens` with their weights, which are made of recipes when they are first asked for.

use crate::gguf::gguf;
use crate::weights::{FNV1A, fnv1a, safetensors};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

/// Counts up when the same recipe makes other bytes; as in `tests/goldens/weights.py`.
const VERSION: &str = "1";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file or folder of `tests/goldens`. A folder with recipes is one below `target/fixtures` that has its files
/// and the weights too; a file may have a recipe (`x.gguf.recipe`) in its place.
///
/// # Panics
///
/// Where a recipe is none, or files cannot be read or written.
pub fn fixture(name: &str) -> PathBuf {
    static MADE: OnceLock<Mutex<HashMap<String, PathBuf>>> = OnceLock::new();
    let mut made = MADE.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
    made.entry(name.to_string()).or_insert_with(|| with_weights(&workspace().join("tests/goldens").join(name))).clone()
}

fn with_weights(source: &Path) -> PathBuf {
    let (folder, name) = (source.parent().expect("a folder"), source.file_name().expect("a name"));
    let recipe = format!("{}.recipe", name.to_string_lossy());
    if folder.join(&recipe).exists() {
        return made_of(folder, vec![recipe]).join(name);
    }
    let mut files = vec![];
    if source.is_dir() {
        list(source, "", &mut files);
    }
    if !files.iter().any(|name| name.ends_with(".recipe")) {
        return source.to_owned();
    }
    files.sort();
    made_of(source, files)
}

/// A folder below `target/fixtures` with files of another, and those that their recipes make.
fn made_of(source: &Path, files: Vec<String>) -> PathBuf {
    let read = |name: &String| fs::read(source.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let bytes: Vec<Vec<u8>> = files.iter().map(read).collect();
    let hash = files.iter().zip(&bytes).fold(fnv1a(VERSION.as_bytes(), FNV1A), |h, (name, bytes)| {
        fnv1a(bytes, fnv1a(format!("{name}\0{}\0", bytes.len()).as_bytes(), h))
    });
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let place = target.join(format!("fixtures/{hash:016x}")).join(source.file_name().expect("a name"));
    if !place.exists() {
        make(&place, files.iter().zip(&bytes)).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
    }
    place
}

/// Files below a folder, with `/` between names.
fn list(folder: &Path, before: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap_or_else(|e| panic!("{}: {e}", folder.display())).path();
        let name = format!("{before}{}", path.file_name().expect("a name").to_string_lossy());
        match path.is_dir() {
            true => list(&path, &format!("{name}/"), files),
            false => files.push(name),
        }
    }
}

/// Writes a folder under another name first: several tests may do this at the same time.
fn make<'a>(place: &Path, files: impl Iterator<Item = (&'a String, &'a Vec<u8>)>) -> Result<(), String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let told = |e: std::io::Error| e.to_string();
    let parent = place.parent().expect("a folder");
    let scratch = parent.with_extension(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    for (name, bytes) in files {
        let to = scratch.join(name);
        fs::create_dir_all(to.parent().expect("a folder")).map_err(told)?;
        fs::write(&to, bytes).map_err(told)?;
        if name.ends_with(".recipe") {
            let text = std::str::from_utf8(bytes).map_err(|e| format!("{name}: {e}"))?;
            let (file, ending) = match name.ends_with(".gguf.recipe") {
                true => (gguf(text), ""),
                false => (safetensors(text), "safetensors"),
            };
            let file = file.map_err(|e| format!("{name}: {e}"))?;
            fs::write(to.with_extension(ending), file).map_err(told)?;
        }
    }
    fs::create_dir_all(parent).map_err(told)?;
    match fs::rename(&scratch, place) {
        Err(e) if !place.exists() => Err(e.to_string()),
        // Another process was first.
        Err(_) => fs::remove_dir_all(&scratch).map_err(told),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder gets its weights once, whoever asks first; another recipe has another folder.
    #[test]
    fn folders_are_made_once() {
        let source = std::env::temp_dir().join(format!("llmcc-fixtures-{}", std::process::id()));
        fs::create_dir_all(source.join("part")).unwrap();
        fs::write(source.join("config.json"), "{}").unwrap();
        fs::write(source.join("part/model.recipe"), "seed 1\nf32 a 4 normal 0 1\n").unwrap();
        let folders: Vec<PathBuf> = std::thread::scope(|s| {
            let all: Vec<_> = (0..4).map(|_| s.spawn(|| with_weights(&source))).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let weights = fs::read(folders[0].join("part/model.safetensors")).unwrap();
        assert!(folders.iter().all(|f| *f == folders[0]) && folders[0].join("config.json").exists());
        fs::write(source.join("part/model.recipe"), "seed 2\nf32 a 4 normal 0 1\n").unwrap();
        let other = with_weights(&source);
        assert_ne!(fs::read(other.join("part/model.safetensors")).unwrap(), weights);
        assert_eq!(fs::read(folders[0].join("part/model.safetensors")).unwrap(), weights);
        let recipe = "seed 1\nkey u32 a 1\nq8_0 b 1x32 0 1\n";
        fs::write(source.join("x.gguf.recipe"), recipe).unwrap();
        let file = with_weights(&source.join("x.gguf"));
        assert_eq!(fs::read(&file).unwrap(), gguf(recipe).unwrap());
        let of_file = file.parent().unwrap().parent().unwrap();
        for folder in [folders[0].parent().unwrap(), other.parent().unwrap(), of_file, &source] {
            fs::remove_dir_all(folder).unwrap();
        }
    }
}
