//! Advice where a path is not the kind of file a command takes.

use llmcc_hub::{Part, Reference};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Endings of checkpoints that are a single file.
const CHECKPOINTS: [&str; 5] = ["gguf", "safetensors", "bin", "pt", "pth"];

/// Whether a path is a checkpoint by its name, or a folder.
pub fn is_checkpoint(path: &Path) -> bool {
    path.is_dir() || path.extension().is_some_and(|e| CHECKPOINTS.iter().any(|ending| e == *ending))
}

/// Advice about a missing path, where an artifact or a tokenizer is wanted.
pub fn missing(path: &Path) -> String {
    let nothing = "there is no such file or folder";
    match on_hub(path) {
        Some(what) => format!(
            "{nothing}. A model of the Hugging Face hub is compiled first (`llmcc compile {what} -o model.so`): give \
             model.so"
        ),
        None if is_bare(path) => {
            format!(
                "{nothing}. A model of the Hugging Face hub is called OWNER/NAME; an old one hf://{}",
                path.display()
            )
        }
        None => nothing.into(),
    }
}

/// The model on the hub that a path means where nothing is there.
pub fn on_hub(path: &Path) -> Option<Reference> {
    let text = path.to_str()?;
    let what = Reference::parse(text).ok()?;
    let named = text.starts_with("hf:") || text.starts_with("http");
    let owner = what.id.split('/').next()?;
    // A folder of that name is the user's own.
    if !named && Path::new(owner).is_dir() {
        return None;
    }
    let ending = |name: &str| Path::new(name).extension().is_some_and(|e| CHECKPOINTS.iter().any(|c| e == *c));
    let likely = match &what.part {
        Part::Model => named || !ending(&what.id) && !what.id.ends_with(".so"),
        Part::Format(_) => true,
        Part::File(file) => ending(file) || file.ends_with(".index.json"),
    };
    likely.then_some(what)
}

/// Whether a path is a single word without an ending of a file.
fn is_bare(path: &Path) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let file = path.extension().is_some_and(|e| e == "so" || CHECKPOINTS.iter().any(|c| e == *c));
    !file && path.to_str().is_some_and(|text| !text.is_empty() && !text.starts_with('.') && text.chars().all(word))
}

/// Whether a file is a program or library of this system's.
pub fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    path.is_file() && File::open(path).and_then(|mut f| f.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

/// Advice about a path that is no artifact, where more can be said than that.
pub fn no_artifact(path: &Path) -> Option<String> {
    let name = path.display();
    if is_checkpoint(path) && path.exists() {
        let folder = path.is_dir() && !path.join("config.json").exists() && !path.join("params.json").exists();
        return Some(match folder {
            true => "it is a folder; give the .so written by `llmcc compile`".into(),
            false => format!(
                "it is a checkpoint, not an artifact: compile it first (`llmcc compile {name} -o model.so`), and give \
                 model.so"
            ),
        });
    }
    (!path.exists() && !path.is_symlink() && on_hub(path).is_some()).then(|| missing(path))
}

/// The known name that is most alike, if any is.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let best = known.map(|k| (strsim::jaro_winkler(&name, &k.to_lowercase()), k)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= 0.8).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_hub_are_told_from_paths() {
        for (path, id) in [
            ("meta-llama/Llama-3.2-1B", Some("meta-llama/Llama-3.2-1B")),
            ("meta-llama/Llama-3.2-1B@v1", Some("meta-llama/Llama-3.2-1B@v1")),
            ("https://huggingface.co/Qwen/Qwen3-0.6B/", Some("Qwen/Qwen3-0.6B")),
            ("hf://Qwen/Qwen3-0.6B", Some("Qwen/Qwen3-0.6B")),
            ("hf://gpt2", Some("gpt2")),
            ("a/b:Q4_K_M", Some("a/b:Q4_K_M")),
            ("a/b/c.gguf", Some("a/b/c.gguf")),
            ("gpt2", None),
            ("./meta-llama/Llama", None),
            ("/a/b", None),
            ("a/b/c", None),
            ("a/../c.gguf", None),
            ("model.gguf", None),
            ("out/model.gguf", None),
            ("m.so", None),
            ("out/m.so", None),
            ("src/main", None),
        ] {
            assert_eq!(on_hub(Path::new(path)).map(|r| r.to_string()).as_deref(), id, "{path}");
        }
        assert!(missing(Path::new("gpt2")).contains("hf://gpt2") && !missing(Path::new("m.so")).contains("hub"));
    }

    #[test]
    fn the_nearest_name_is_alike() {
        let known = || ["x86-64", "x86-64-v3", "sm90"].into_iter();
        assert_eq!(nearest("x86_64_v3", known()), Some("x86-64-v3"));
        assert_eq!(nearest("SM_90", known()), Some("sm90"));
        assert_eq!(nearest("riscv", known()), None);
    }
}
