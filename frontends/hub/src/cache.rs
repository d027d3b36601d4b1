//! The cache of the hub, as Python's `huggingface_hub` lays it out:
//!
//! ```text
//! models--OWNER--NAME/blobs/HASH              bytes of a file, by their hash
//! models--OWNER--NAME/refs/main               the commit of a branch
//! models--OWNER--NAME/snapshots/COMMIT/FILE   a link to the bytes
//! models--OWNER--NAME/.no_exist/COMMIT/FILE   a file that this commit lacks
//! .locks/models--OWNER--NAME/HASH.lock        held while a file is written
//! ```

use crate::error::HubError;
use crate::names;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Marks a folder that backups may leave out (the standard of cache directory tagging).
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
    # This file is a cache directory tag created by huggingface_hub.\n\
    # For information about cache directory tags, see:\n#\thttps://bford.info/cachedir/\n";
/// Permissions of lock files, before the user's mask: a group may share a cache.
const LOCK_MODE: u32 = 0o664;
/// Time between two looks at a lock that another process holds.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// Folders between a snapshot's own and that of the repository.
const UP: &str = "../..";

/// The part of a cache that has one repository.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    folder: PathBuf,
    locks: PathBuf,
    links: bool,
}

/// A lock, until it is dropped.
pub(crate) struct Lock(#[allow(dead_code)] File);

impl Cache {
    /// The part of model `id`; without `links`, snapshots have files in place of links.
    pub(crate) fn new(root: &Path, id: &str, links: bool) -> Cache {
        let name = format!("models--{}", id.replace('/', "--"));
        Cache { root: root.to_owned(), folder: root.join(&name), locks: root.join(".locks").join(name), links }
    }

    /// Folder of everything.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// The path by which programs read a file.
    pub(crate) fn pointer(&self, commit: &str, name: &str) -> PathBuf {
        self.snapshot(commit).join(name)
    }

    pub(crate) fn blob(&self, hash: &str) -> PathBuf {
        self.folder.join("blobs").join(hash)
    }

    /// Bytes of a blob that is not whole yet.
    pub(crate) fn incomplete(&self, hash: &str) -> PathBuf {
        self.folder.join("blobs").join(format!("{hash}.incomplete"))
    }

    /// The commit that a revision was when it was looked up last.
    pub(crate) fn commit_of(&self, revision: &str) -> Option<String> {
        if names::is_commit(revision) {
            return Some(revision.to_owned());
        }
        let text = fs::read_to_string(self.folder.join("refs").join(revision)).ok()?;
        Some(text.trim().to_owned()).filter(|commit| names::is_commit(commit))
    }

    /// Makes the folders of a commit, and remembers that a revision is this commit.
    pub(crate) fn prepare(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        for folder in [self.folder.join("blobs"), self.snapshot(commit), self.locks.clone()] {
            make(&folder)?;
        }
        let tag = self.root.join("CACHEDIR.TAG");
        if !tag.exists() {
            // Without it the cache works as well.
            let _ = fs::write(tag, TAG);
        }
        if revision == commit || self.commit_of(revision).as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.folder.join("refs").join(revision);
        path.parent().map_or(Ok(()), make)?;
        fs::write(&path, commit).map_err(HubError::io("write", &path))
    }

    /// Remembers that a commit lacks a file.
    pub(crate) fn mark_absent(&self, commit: &str, name: &str) {
        let path = self.folder.join(".no_exist").join(commit).join(name);
        // Nothing depends on it: Python's library saves a request by it.
        let _ = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| OpenOptions::new().create(true).append(true).open(&path).map(|_| ()));
    }

    /// Gives a commit's file the bytes of a blob; `fresh`: the blob is in no other snapshot.
    pub(crate) fn link(&self, commit: &str, name: &str, hash: &str, fresh: bool) -> Result<(), HubError> {
        let path = self.pointer(commit, name);
        path.parent().map_or(Ok(()), make)?;
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(HubError::io("replace", &path)(e)),
            _ => {}
        }
        let deeper = "../".repeat(name.matches('/').count());
        let target = format!("{deeper}{UP}/blobs/{hash}");
        let linked = if self.links { symlink(target, &path) } else { Err(ErrorKind::Unsupported.into()) };
        match linked {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::AlreadyExists && path.exists() => Ok(()),
            // A file system without links has the file itself there, as Python's library leaves it.
            Err(_) if fresh => fs::rename(self.blob(hash), &path).map_err(HubError::io("write", &path)),
            Err(_) => fs::copy(self.blob(hash), &path).map(|_| ()).map_err(HubError::io("write", &path)),
        }
    }

    /// Waits until no other process writes a blob. `waiting` is called once if it has to.
    pub(crate) fn lock(&self, hash: &str, waiting: &dyn Fn()) -> Result<Lock, HubError> {
        let path = self.locks.join(format!("{hash}.lock"));
        let mut said = false;
        loop {
            let mut options = OpenOptions::new();
            let file = options.create(true).append(true).mode(LOCK_MODE).open(&path);
            let file = file.map_err(HubError::io("open", &path))?;
            match file.try_lock() {
                // Whoever held it may have removed its name, so that others lock another file.
                Ok(()) if is_at(&file, &path) => return Ok(Lock(file)),
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => {}
                // A file system without locks: hashes tell a file that two have written.
                Err(TryLockError::Error(_)) => return Ok(Lock(file)),
            }
            if !said {
                waiting();
                said = true;
            }
            std::thread::sleep(LOCK_PAUSE);
        }
    }

    /// Names of a snapshot's files with their sizes, in order.
    pub(crate) fn files(&self, commit: &str) -> Vec<(String, u64)> {
        let mut found = vec![];
        walk(&self.snapshot(commit), "", &mut found);
        found.sort();
        found
    }
}

/// Whether a path leads to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |m: fs::Metadata| (m.dev(), m.ino());
    file.metadata().map(identity).ok().is_some_and(|own| fs::metadata(path).map(identity).ok() == Some(own))
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, u64)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        // Folders are the cache's own; links lead to files.
        let Ok(meta) = fs::metadata(entry.path()) else { continue };
        if meta.is_file() {
            found.push((format!("{prefix}{name}"), meta.len()));
        } else if entry.file_type().is_ok_and(|t| t.is_dir()) {
            walk(&entry.path(), &format!("{prefix}{name}/"), found);
        }
    }
}

fn make(folder: &Path) -> Result<(), HubError> {
    fs::create_dir_all(folder).map_err(HubError::io("make the folder", folder))
}

/// Opens the bytes of a blob that is not whole yet, to read and to go on writing.
pub(crate) fn open_incomplete(path: &Path) -> Result<File, HubError> {
    let mut options = OpenOptions::new();
    // Without following a link, which no program of the hub leaves there.
    options.read(true).write(true).create(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    options.open(path).map_err(HubError::io("write", path))
}

/// Writes to the disk, then gives a blob its name.
pub(crate) fn complete(file: &mut File, from: &Path, to: &Path) -> Result<(), HubError> {
    file.flush().and_then(|()| file.sync_data()).map_err(HubError::io("write", from))?;
    fs::rename(from, to).map_err(HubError::io("write", to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn files_are_where_python_s_library_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path(), "org/model", true);
        cache.prepare("refs/pr/1", COMMIT).unwrap();
        fs::write(cache.blob("aa"), "bytes").unwrap();
        cache.link(COMMIT, "config.json", "aa", true).unwrap();
        cache.link(COMMIT, "1_Pooling/config.json", "aa", false).unwrap();
        let at = |path: &str| dir.path().join("models--org--model").join(path);
        let link = |path: &str| fs::read_link(at(path)).unwrap();
        let snapshot = format!("snapshots/{COMMIT}");
        assert_eq!(link(&format!("{snapshot}/config.json")), Path::new("../../blobs/aa"));
        assert_eq!(link(&format!("{snapshot}/1_Pooling/config.json")), Path::new("../../../blobs/aa"));
        assert_eq!(fs::read_to_string(at(&format!("{snapshot}/1_Pooling/config.json"))).unwrap(), "bytes");
        assert_eq!(fs::read_to_string(at("refs/refs/pr/1")).unwrap(), COMMIT);
        assert_eq!(cache.commit_of("refs/pr/1").as_deref(), Some(COMMIT));
        assert_eq!(cache.commit_of("main"), None);
        cache.mark_absent(COMMIT, "a/b.json");
        assert!(at(&format!(".no_exist/{COMMIT}/a/b.json")).is_file());
        assert!(dir.path().join("CACHEDIR.TAG").is_file());
        assert_eq!(cache.files(COMMIT), [("1_Pooling/config.json".into(), 5), ("config.json".into(), 5)]);
        // A reference that holds something else is none.
        fs::write(at("refs/main"), "../../elsewhere").unwrap();
        assert_eq!(cache.commit_of("main"), None);
    }

    #[test]
    fn without_links_snapshots_have_files() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path(), "org/model", false);
        cache.prepare("main", COMMIT).unwrap();
        fs::write(cache.blob("aa"), "bytes").unwrap();
        cache.link(COMMIT, "a", "aa", false).unwrap();
        assert!(cache.blob("aa").exists());
        cache.link(COMMIT, "b", "aa", true).unwrap();
        assert!(!cache.blob("aa").exists());
        for name in ["a", "b"] {
            let path = cache.pointer(COMMIT, name);
            assert!(path.symlink_metadata().unwrap().is_file() && fs::read_to_string(path).unwrap() == "bytes");
        }
    }

    #[test]
    fn a_lock_is_held_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path(), "org/model", true);
        cache.prepare("main", COMMIT).unwrap();
        let first = cache.lock("aa", &|| panic!("nobody holds it")).unwrap();
        let waits = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            let second = s.spawn(|| {
                let say = || waits.store(true, std::sync::atomic::Ordering::SeqCst);
                cache.lock("aa", &say).map(|_| ())
            });
            while !waits.load(std::sync::atomic::Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert!(!second.is_finished());
            drop(first);
            second.join().unwrap().unwrap();
        });
    }
}
