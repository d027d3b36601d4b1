//! Whether a file was replaced or changed while it was read.

use crate::Error;
use llmcc_codegen::link::weights_path;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An artifact and its weights file as they were.
pub struct Stamp {
    files: Vec<(PathBuf, Option<Facts>)>,
}

/// Device and inode, and size and time of change.
#[derive(PartialEq, Eq)]
struct Facts {
    file: (u64, u64),
    contents: (u64, i64, i64),
}

impl Stamp {
    /// As they are now.
    pub fn of(artifact: &Path) -> Stamp {
        let files = [artifact.to_owned(), weights_path(artifact)];
        Stamp { files: files.into_iter().map(|f| (f.clone(), facts(&f))).collect() }
    }

    /// The fault of an artifact: if its file was replaced by now, that, and else `error`.
    pub fn explain(&self, error: Error) -> Error {
        if !matches!(error, Error::Artifact { .. } | Error::Machine { .. } | Error::Failed(_) | Error::Io { .. }) {
            return error;
        }
        let changed = self.files.iter().find_map(|(path, before)| {
            let (before, now) = (before.as_ref()?, facts(path));
            let how = match now {
                None => "removed",
                Some(now) if now.file != before.file => "replaced by another file",
                Some(now) if now.contents != before.contents => "changed",
                Some(_) => return None,
            };
            Some((path.clone(), how))
        });
        match changed {
            None => error,
            Some((path, how)) => Error::Artifact {
                path,
                message: format!(
                    "it was {how} while it was being read; try again when it is complete (to replace an artifact in use, write another file and rename it, as `llmcc compile` does)"
                ),
            },
        }
    }
}

fn facts(path: &Path) -> Option<Facts> {
    let m = fs::metadata(path).ok()?;
    Some(Facts { file: (m.dev(), m.ino()), contents: (m.size(), m.mtime(), m.mtime_nsec()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_become_others_are_noticed() {
        let folder = std::env::temp_dir().join(format!("llmcc-stamp-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (path, other) = (folder.join("m.so"), folder.join("other"));
        let damaged = || Error::Artifact { path: "m.so".into(), message: "its bytes differ".into() };
        let said = |change: &dyn Fn()| {
            fs::write(&path, "first").expect("written");
            let stamp = Stamp::of(&path);
            change();
            stamp.explain(damaged()).to_string()
        };
        assert!(said(&|| ()).contains("its bytes differ"));
        assert!(said(&|| fs::write(&path, "longer than before").expect("written")).contains("it was changed while"));
        assert!(said(&|| fs::remove_file(&path).expect("removed")).contains("it was removed while"));
        let replaced = said(&|| fs::write(&other, "first").and_then(|()| fs::rename(&other, &path)).expect("renamed"));
        assert!(replaced.contains("replaced by another file"), "{replaced}");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
