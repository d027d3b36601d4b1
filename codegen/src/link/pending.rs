//! Files that appear under their names only when complete, written in large aligned pieces.
//!
//! Where a piece starts and how long it is decides how the page cache holds it: a file system with
//! large folios keeps one write of whole aligned [`PIECE`]s in folios of 2 MiB, which the kernel
//! then maps as huge pages. Decoding streams the weights through one such mapping, and with 4 KiB
//! pages a single thread reaches some 20 % less of the memory's bandwidth
//! (`benches/kernels --pages`).

use super::LinkError;
use super::place::{Place, Unfinished};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes per write to the file: two huge pages.
const PIECE: u64 = 4 << 20;

/// A file being written. Dropped before [`Pending::commit`], it leaves nothing behind; nor when the
/// process ends, if the file system has files without a name. Elsewhere it has a temporary one, which
/// handlers of signals remove (see [`super::remove_unfinished`]).
pub struct Pending {
    place: Place,
    unfinished: Unfinished,
    file: File,
    /// The bytes up to `pos` that have not been written yet, never across a multiple of [`PIECE`].
    buffer: Vec<u8>,
    pos: u64,
    done: bool,
}

impl Pending {
    /// Starts `path` in its folder. A link is followed: its target is replaced, not the link.
    ///
    /// # Errors
    /// [`LinkError::Io`] when `path` is no place for a file (a folder, a device, a pipe) or the
    /// temporary file cannot be made.
    pub fn create(path: &Path) -> Result<Pending, LinkError> {
        let place = Place::of(path)?;
        let (unfinished, file) = Unfinished::start(&place)?;
        Ok(Pending::with(place, unfinished, file))
    }

    /// The same under a temporary name, beside which there may be others.
    ///
    /// # Errors
    /// As [`Pending::create`].
    pub fn create_named(path: &Path) -> Result<Pending, LinkError> {
        let place = Place::of(path)?;
        let fail = |source| LinkError::Io { path: place.target().to_owned(), source };
        let (unfinished, file) = Unfinished::start_named(&place).map_err(fail)?;
        Ok(Pending::with(place, unfinished, file))
    }

    /// Starts `path` under the name `tmp`.
    ///
    /// # Errors
    /// As [`Pending::create`], and when there is a file of that name.
    pub fn create_as(path: &Path, tmp: PathBuf) -> Result<Pending, LinkError> {
        let place = Place::of(path)?;
        let path = tmp.clone();
        let (unfinished, file) = Unfinished::start_as(tmp).map_err(|source| LinkError::Io { path, source })?;
        Ok(Pending::with(place, unfinished, file))
    }

    fn with(place: Place, unfinished: Unfinished, file: File) -> Pending {
        Pending { place, unfinished, file, buffer: Vec::with_capacity(PIECE as usize), pos: 0, done: false }
    }

    /// Writes the whole of a file, which appears when complete.
    ///
    /// # Errors
    /// As [`Pending::create`]; the file cannot be written.
    pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), LinkError> {
        let mut file = Pending::create(path)?;
        file.append(bytes)?;
        file.commit(0o644)
    }

    /// The final name, with links followed.
    pub fn path(&self) -> &Path {
        self.place.target()
    }

    /// Where this process can open it until [`Pending::commit`].
    pub fn temporary(&self) -> &Path {
        self.unfinished.path()
    }

    /// Bytes so far.
    pub fn pos(&self) -> u64 {
        self.pos
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// [`LinkError::Io`], as all below.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.write_all(bytes).map_err(|e| self.fail(e))
    }

    /// Appends zeros up to `pos`.
    ///
    /// # Errors
    /// [`LinkError::Io`].
    pub fn pad_to(&mut self, pos: u64) -> Result<(), LinkError> {
        let n = pos.saturating_sub(self.pos);
        io::copy(&mut io::Read::take(io::repeat(0), n), self).map_err(|e| self.fail(e))?;
        Ok(())
    }

    /// Continues at `pos`, forgetting the bytes behind it.
    ///
    /// # Errors
    /// [`LinkError::Io`].
    pub fn rewind(&mut self, pos: u64) -> Result<(), LinkError> {
        self.settle()?;
        self.file.set_len(pos).map_err(|e| self.fail(e))?;
        self.pos = pos;
        Ok(())
    }

    /// Overwrites bytes at `at` that have been appended before.
    ///
    /// # Errors
    /// [`LinkError::Io`].
    pub fn patch(&mut self, at: u64, bytes: &[u8]) -> Result<(), LinkError> {
        self.settle()?;
        self.file.write_all_at(bytes, at).map_err(|e| self.fail(e))
    }

    /// Writes out the buffer.
    ///
    /// # Errors
    /// [`LinkError::Io`].
    pub fn settle(&mut self) -> Result<(), LinkError> {
        self.flush().map_err(|e| self.fail(e))
    }

    /// Gives the complete file its name and these permissions. Its bytes reach the disk before its
    /// name does: after a crash the name stands for the former file or for the whole of the new
    /// one.
    ///
    /// # Errors
    /// [`LinkError::Io`].
    pub fn commit(mut self, mode: u32) -> Result<(), LinkError> {
        self.settle()?;
        let named = self.file.set_permissions(fs::Permissions::from_mode(mode)).and_then(|()| self.file.sync_all());
        named.and_then(|()| self.unfinished.finish(&self.place)).map_err(|e| self.fail(e))?;
        self.done = true;
        self.place.sync_folder().map_err(|e| self.fail(e))
    }

    /// The error of a write that failed.
    pub(super) fn fail(&self, source: io::Error) -> LinkError {
        LinkError::Io { path: self.place.target().to_owned(), source }
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
            self.unfinished.discard();
        }
    }
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
        file.commit(0o755).unwrap();
        let mut expected = bytes;
        expected[5..12].copy_from_slice(b"patched");
        expected.extend_from_slice(&[0; 10]);
        expected.extend_from_slice(b"end.");
        assert!(fs::read(&path).unwrap() == expected);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
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
