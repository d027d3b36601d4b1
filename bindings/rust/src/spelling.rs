//! Spellings of paths. The system's loader knows a library by the path that it was loaded by, and does not look whether
//! another file lies there by now; a new file is loaded by another spelling of its path.

use std::collections::BTreeMap;
use std::fs::metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Device and inode of a file.
type Identity = (u64, u64);

/// The last file at each path, and how many others were there before.
static SEEN: Mutex<BTreeMap<PathBuf, (Identity, usize)>> = Mutex::new(BTreeMap::new());

/// A spelling of the absolute path by which no other file has been loaded.
pub(crate) fn fresh(path: PathBuf) -> PathBuf {
    let Ok(found) = metadata(&path) else { return path };
    let now = (found.dev(), found.ino());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let (last, others) = seen.entry(path.clone()).or_insert((now, 0));
    if *last != now {
        (*last, *others) = (now, *others + 1);
    }
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if *others > 0 => {
            // (Joined as texts: a path that is joined by its parts loses dots.)
            let mut text = folder.as_os_str().to_owned();
            text.push("/");
            text.push("./".repeat(*others));
            text.push(name);
            text.into()
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn other_files_have_other_spellings() {
        let folder = std::env::temp_dir().join(format!("llmcc-spelling-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, new) = (folder.join("m.so"), folder.join("new.so"));
        fs::write(&path, "1").unwrap();
        assert_eq!(fresh(path.clone()).as_os_str(), path.as_os_str());
        assert_eq!(fresh(path.clone()).as_os_str(), path.as_os_str(), "the same file");
        fs::write(&new, "2").unwrap();
        fs::rename(&new, &path).unwrap();
        let spelled = fresh(path.clone());
        assert_ne!(spelled.as_os_str(), path.as_os_str());
        assert_eq!(fs::read_to_string(&spelled).unwrap(), "2");
        fs::remove_dir_all(&folder).unwrap();
    }
}
