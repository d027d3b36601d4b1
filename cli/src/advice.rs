//! Advice where a path is not the kind of file a command takes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Endings of checkpoints that are a single file.
const CHECKPOINTS: [&str; 5] = ["gguf", "safetensors", "bin", "pt", "pth"];

/// Whether a path is a checkpoint by its name, or a folder.
pub fn is_checkpoint(path: &Path) -> bool {
    path.is_dir() || path.extension().is_some_and(|e| CHECKPOINTS.iter().any(|ending| e == *ending))
}

/// Advice about a missing path that a command would read (`verb`: "compile", say).
pub fn missing(path: &Path, verb: &str) -> String {
    let nothing = "there is no such file or folder";
    match hub_id(path) {
        Some(id) => {
            let folder = id.rsplit('/').next().unwrap_or(id);
            format!(
                "{nothing}. For a model of the Hugging Face hub, download its files first (`hf download {id} \
                 --local-dir {folder}`), and {verb} that folder"
            )
        }
        None => nothing.into(),
    }
}

/// The name of a model on the hub that a path looks like.
fn hub_id(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let id = ["https://huggingface.co/", "https://hf.co/", "hf://", "hf:"].iter().find_map(|p| text.strip_prefix(p));
    let given = id.unwrap_or(text).trim_end_matches('/');
    let mut parts = given.split('/');
    let (owner, name) = (parts.next()?, parts.next());
    let word = |w: &str| {
        let ours = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !w.is_empty() && !w.starts_with('.') && w.chars().all(ours)
    };
    let file = Path::new(given).extension().is_some_and(|e| e == "so" || CHECKPOINTS.iter().any(|c| e == *c));
    // A folder of that name is the user's own.
    let own = id.is_none() && name.is_some() && Path::new(owner).is_dir();
    let named = word(owner) && name.is_none_or(word) && parts.next().is_none();
    (named && !file && !own && (name.is_some() || id.is_none())).then_some(given)
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
    (!path.exists() && !path.is_symlink() && hub_id(path).is_some())
        .then(|| missing(path, "compile"))
        .map(|what| format!("{what} with `llmcc compile`: this command takes the .so that it writes"))
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
            ("https://huggingface.co/Qwen/Qwen3-0.6B/", Some("Qwen/Qwen3-0.6B")),
            ("hf://Qwen/Qwen3-0.6B", Some("Qwen/Qwen3-0.6B")),
            ("gpt2", Some("gpt2")),
            ("./meta-llama/Llama", None),
            ("/a/b", None),
            ("a/b/c", None),
            ("model.gguf", None),
            ("m.so", None),
            ("out/m.so", None),
        ] {
            assert_eq!(hub_id(Path::new(path)), id, "{path}");
        }
    }

    #[test]
    fn the_nearest_name_is_alike() {
        let known = || ["x86-64", "x86-64-v3", "sm90"].into_iter();
        assert_eq!(nearest("x86_64_v3", known()), Some("x86-64-v3"));
        assert_eq!(nearest("SM_90", known()), Some("sm90"));
        assert_eq!(nearest("riscv", known()), None);
    }
}
