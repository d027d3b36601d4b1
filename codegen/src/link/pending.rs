//! Files that appear under their names only when complete, written in large aligned pieces.
//!
//! Where a piece starts and how long it is decides how the page cache holds it: a file system with large folios keeps one write of whole aligned
//! [`PIECE`]s in folios of 2 MiB, which the kernel then maps as huge pages. Decoding streams the weights through one such mapping, and with
//! 4 KiB pages a single thread reaches some 20 % less of the memory's bandwidth (`benches/kernels --pages`).

use super::LinkError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes per write to the file: two huge pages.
const PIECE: u64 = 4 << 20;

/// A file being written. Dropped before [`Pending::commit`], it leaves nothing behind.
pub(super) struct Pending {
    path: PathBuf,
    tmp: PathBuf,
    file: File,
    /// What has not been written yet: the bytes up to `pos`, never across a multiple of [`PIECE`].
    buffer: Vec<u8>,
    pos: u64,
    done: bool,
}

impl Pending {
    /// Starts `path` under a temporary name beside it.
    pub fn create(path: &Path) -> Result<Pending, LinkError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".tmp{}", std::process::id()));
        Pending::create_as(path, path.with_file_name(name))
    }

    /// Starts `path` under the name `tmp`.
    pub fn create_as(path: &Path, tmp: PathBuf) -> Result<Pending, LinkError> {
        let fail = |source| LinkError::Io { path: path.to_owned(), source };
        if path.is_dir() {
            return Err(fail(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory; give a file name")));
        }
        let file = File::options().write(true).create_new(true).open(&tmp).map_err(fail)?;
        Ok(Pending { path: path.to_owned(), tmp, file, buffer: Vec::with_capacity(PIECE as usize), pos: 0, done: false })
    }

    /// The final name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name until [`Pending::commit`].
    pub fn temporary(&self) -> &Path {
        &self.tmp
    }

    /// Bytes so far.
    pub fn pos(&self) -> u64 {
        self.pos
    }

    /// Appends `bytes`.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.write_all(bytes).map_err(|e| self.fail(e))
    }

    /// Appends zeros up to `pos`.
    pub fn pad_to(&mut self, pos: u64) -> Result<(), LinkError> {
        let n = pos.saturating_sub(self.pos);
        io::copy(&mut io::Read::take(io::repeat(0), n), self).map_err(|e| self.fail(e))?;
        Ok(())
    }

    /// Continues at `pos`, forgetting what lies behind it.
    pub fn rewind(&mut self, pos: u64) -> Result<(), LinkError> {
        self.settle()?;
        self.file.set_len(pos).map_err(|e| self.fail(e))?;
        self.pos = pos;
        Ok(())
    }

    /// Overwrites bytes at `at`, all of which have been appended before.
    pub fn patch(&mut self, at: u64, bytes: &[u8]) -> Result<(), LinkError> {
        self.settle()?;
        self.file.write_all_at(bytes, at).map_err(|e| self.fail(e))
    }

    /// Writes out what is buffered.
    pub fn settle(&mut self) -> Result<(), LinkError> {
        self.flush().map_err(|e| self.fail(e))
    }

    /// Gives the complete file its name, executable. Its bytes reach the disk before the name does, so that a crash of the machine leaves the former file or this one.
    pub fn commit(mut self) -> Result<(), LinkError> {
        self.settle()?;
        let written = set_executable(&self.file).and_then(|()| self.file.sync_all());
        written.and_then(|()| fs::rename(&self.tmp, &self.path)).map_err(|e| self.fail(e))?;
        self.done = true;
        sync_folder(&self.path).map_err(|e| self.fail(e))
    }

    fn fail(&self, source: io::Error) -> LinkError {
        LinkError::Io { path: self.path.clone(), source }
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = (PIECE - self.pos % PIECE) as usize;
        let n = room.min(bytes.len());
        self.buffer.extend_from_slice(&bytes[..n]);
        self.pos += n as u64;
        if n == room {
            self.flush()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.pos - self.buffer.len() as u64)?;
        self.buffer.clear();
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.done {
            // Nothing more can be done about a failure here; the name itself was never touched.
            let _ = fs::remove_file(&self.tmp);
        }
    }
}

/// Brings the names in the folder of `path` to the disk. A file system that has no such call does without.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(folder).and_then(|f| f.sync_all()) {
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => Ok(()),
        done => done,
    }
}

fn set_executable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_rewinds_and_patches_give_the_bytes_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..2 * PIECE as usize + 12_345).map(|i| (i * 7 / 3) as u8).collect();
        let mut file = Pending::create(&path).unwrap();
        file.append(&bytes[..100]).unwrap();
        file.append(&bytes[100..]).unwrap();
        file.append(b"forgotten").unwrap();
        file.rewind(bytes.len() as u64).unwrap();
        file.pad_to(bytes.len() as u64 + 10).unwrap();
        file.append(b"end").unwrap();
        file.patch(5, b"patched").unwrap();
        file.append(b".").unwrap();
        assert!(!path.exists());
        file.commit().unwrap();
        let mut expected = bytes;
        expected[5..12].copy_from_slice(b"patched");
        expected.extend_from_slice(&[0; 10]);
        expected.extend_from_slice(b"end.");
        assert!(fs::read(&path).unwrap() == expected);
    }

    #[test]
    fn an_unfinished_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = Pending::create(&folder.path().join("file")).unwrap();
        file.append(&[1; 100]).unwrap();
        file.settle().unwrap();
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
