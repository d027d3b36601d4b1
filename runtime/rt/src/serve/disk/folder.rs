//! The files of parts of sequences: one each, in a folder of the model's.
//!
//! A file is written beside its place and renamed, so that a process that is killed leaves whole files. A file that was
//! damaged is found by its hash, and deleted.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use llmcc_abi::tree::Hash;

use super::tree::name_of;
use crate::error::{Error, Result};
use crate::kv::{Packed, pack, unpack};

/// The ending of files.
const ENDING: &str = "part";
/// Bytes of a file that are read first: most parts' tokens are within them.
const HEAD: usize = 16 << 10;
/// A file that is being written for so long is nobody's any more.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The folder of one model within the one that the user named.
pub struct Folder {
    path: PathBuf,
    identity: Hash,
}

/// A file.
pub struct Found {
    /// Its name.
    pub name: Hash,
    /// The part without its pages.
    pub packed: Packed,
    /// Its bytes.
    pub bytes: u64,
    /// When it was used last.
    pub when: SystemTime,
}

impl Folder {
    /// The folder of a model within `path`. Folders are made where they are missing, for this user only.
    ///
    /// # Errors
    /// It cannot be made, or not be written.
    pub fn open(path: &Path, identity: &Hash) -> Result<Folder> {
        let own = path.join(hex(identity));
        let failed = |cause| Error::system(format_args!("cannot use the cache folder {}", path.display()), cause);
        DirBuilder::new().recursive(true).mode(0o700).create(&own).map_err(failed)?;
        let folder = Folder { path: own, identity: *identity };
        let beside = folder.beside();
        fs::write(&beside, []).and_then(|()| fs::remove_file(&beside)).map_err(failed)?;
        Ok(folder)
    }

    /// The parts in the folder, each behind the ones before it. Files that are none are left alone, damaged and
    /// abandoned ones deleted.
    pub fn list(&self) -> Vec<Found> {
        let mut all: Vec<Found> = Vec::new();
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(meta) = entry.metadata() else { continue };
            let when = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            match path.extension().and_then(|ending| ending.to_str()) {
                Some("tmp") if when.elapsed().is_ok_and(|age| age > ABANDONED) => drop(fs::remove_file(&path)),
                Some(ENDING) if meta.is_file() => match head(&path) {
                    Ok(packed) if packed.identity == self.identity && self.file(&name_of(&packed)) == path => {
                        all.push(Found { name: name_of(&packed), packed, bytes: meta.len(), when });
                    }
                    _ => drop(fs::remove_file(&path)),
                },
                _ => {}
            }
        }
        all.sort_by_key(|found| (found.packed.part.from, found.name));
        all
    }

    fn file(&self, name: &Hash) -> PathBuf {
        self.path.join(hex(name)).with_extension(ENDING)
    }

    /// Writes a part. Returns the bytes of its file.
    ///
    /// # Errors
    /// There is no memory; the file cannot be written.
    pub fn write(&self, name: &Hash, packed: &Packed) -> Result<u64> {
        let bytes = pack(packed)?;
        let file = format!("{}.{ENDING}", hex(name));
        match self.write_file(&file, &bytes) {
            Ok(()) => Ok(bytes.len() as u64),
            Err(cause) => Err(Error::system(format_args!("cannot write into {}", self.path.display()), cause)),
        }
    }

    /// A path that nobody else writes.
    fn beside(&self) -> PathBuf {
        static FILES: AtomicU64 = AtomicU64::new(0);
        self.path.join(format!("{}-{}.tmp", std::process::id(), FILES.fetch_add(1, Relaxed)))
    }

    fn write_file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let beside = self.beside();
        let write = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(bytes)?;
            fs::rename(&beside, self.path.join(name))
        };
        write().inspect_err(|_| drop(fs::remove_file(&beside)))
    }

    /// Reads a part, and notes that it was used.
    ///
    /// # Errors
    /// It is gone, cannot be read, or was damaged; then it is deleted.
    pub fn read(&self, name: &Hash) -> Result<Packed> {
        let path = self.file(name);
        let failed = |cause| Error::system(format_args!("cannot read {}", path.display()), cause);
        let mut file = File::open(&path).map_err(failed)?;
        // (A folder that is read only still serves.)
        let _ = file.set_modified(SystemTime::now());
        let len = file.metadata().map_err(failed)?.len();
        crate::reserve::need(usize::try_from(len).unwrap_or(usize::MAX))?;
        let mut bytes = Vec::with_capacity(len as usize);
        file.read_to_end(&mut bytes).map_err(failed)?;
        let read = unpack(&bytes, true);
        match read {
            Ok(packed) if packed.identity == self.identity && name_of(&packed) == *name => Ok(packed),
            _ => {
                self.delete(name);
                Err(Error::artifact(format!("{} was damaged, and is deleted", path.display())))
            }
        }
    }

    /// Deletes a part.
    pub fn delete(&self, name: &Hash) {
        // (Another process may have.)
        let _ = fs::remove_file(self.file(name));
    }
}

/// The part of a file without its pages.
fn head(path: &Path) -> Result<Packed> {
    let failed = |cause| Error::system("cannot read a part of a sequence", cause);
    let mut file = File::open(path).map_err(failed)?;
    let (mut bytes, mut most) = (Vec::new(), HEAD as u64);
    loop {
        let read = Read::by_ref(&mut file).take(most).read_to_end(&mut bytes).map_err(failed)?;
        match unpack(&bytes, false) {
            Err(_) if read as u64 == most => most = bytes.len() as u64,
            other => return other,
        }
    }
}

/// A hash in digits.
pub fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{Saved, SavedPages};

    fn packed(n: i32) -> Packed {
        let pages = vec![SavedPages { group: 0, count: 1, bytes: vec![n as u8; 100], ..SavedPages::default() }];
        let part = Saved { tokens: (0..n).collect(), ends: true, pages, ..Saved::default() };
        Packed { identity: [9; 32], part, ..Packed::default() }
    }

    fn temporary(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("llmcc-folder-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn parts_are_files() {
        let path = temporary("files");
        let folder = Folder::open(&path, &[9; 32]).unwrap();
        // The second one's tokens are longer than a head.
        for n in [20, 9000] {
            let name = name_of(&packed(n));
            let bytes = folder.write(&name, &packed(n)).unwrap();
            assert_eq!(folder.read(&name).unwrap(), packed(n));
            let found = folder.list().into_iter().find(|f| f.name == name).unwrap();
            assert_eq!((found.bytes, found.packed.part.tokens.len()), (bytes, n as usize));
        }
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&folder.path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn damaged_files_are_deleted() {
        let path = temporary("damaged");
        let folder = Folder::open(&path, &[9; 32]).unwrap();
        let name = name_of(&packed(20));
        folder.write(&name, &packed(20)).unwrap();
        let file = folder.file(&name);
        let mut bytes = fs::read(&file).unwrap();
        let last = bytes.len() - 40;
        bytes[last] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert!(folder.read(&name).unwrap_err().message.contains("damaged"));
        assert!(!file.exists());
        // Files of other names or contents are no parts.
        fs::write(folder.path.join("note.txt"), "mine").unwrap();
        fs::write(folder.path.join(format!("{}.part", hex(&[1; 32]))), &bytes).unwrap();
        fs::write(folder.path.join("half.tmp"), "").unwrap();
        assert!(folder.list().is_empty());
        let mut left: Vec<_> = fs::read_dir(&folder.path).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["half.tmp", "note.txt"]);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn folders_that_cannot_be_written_are_refused() {
        let error = Folder::open(Path::new("/dev/null/cache"), &[0; 32]).err().unwrap();
        assert!(error.message.contains("/dev/null/cache"), "{error:?}");
    }
}
