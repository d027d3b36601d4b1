//! Where output may go, and the temporary files that stand for it until it is complete.

use super::LinkError;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Links followed at most, as by the kernel.
const LINKS: usize = 40;
/// Files that an interrupted process with our number may have left, at most.
const ATTEMPTS: usize = 1000;

/// A place for an output file: no folder, device or pipe, and links followed.
pub(super) struct Place {
    target: PathBuf,
}

impl Place {
    /// The place called `path`.
    pub fn of(path: &Path) -> Result<Place, LinkError> {
        let fail = |kind, what: &str| LinkError::Io { path: path.to_owned(), source: io::Error::new(kind, what) };
        let target = follow(path).map_err(|source| LinkError::Io { path: path.to_owned(), source })?;
        match fs::metadata(&target) {
            Ok(m) if m.is_dir() => Err(fail(io::ErrorKind::IsADirectory, "it is a directory; give a file name")),
            Ok(m) if !m.is_file() => Err(fail(
                io::ErrorKind::InvalidInput,
                &format!("it is {}; give the name of a file", kind(m.file_type())),
            )),
            _ if target.file_name().is_none() => Err(fail(io::ErrorKind::InvalidInput, "it is no file name")),
            _ => Ok(Place { target }),
        }
    }

    /// The file, with links followed.
    pub fn target(&self) -> &Path {
        &self.target
    }

    fn folder(&self) -> &Path {
        match self.target.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        }
    }

    /// Has the folder's entry for the file written to disk. File systems that cannot do so with
    /// folders are left alone.
    pub fn sync_folder(&self) -> io::Result<()> {
        match File::open(self.folder()).and_then(|f| f.sync_all()) {
            Err(e)
                if !matches!(
                    e.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
                ) =>
            {
                Err(e)
            }
            _ => Ok(()),
        }
    }
}

/// Where a chain of links at `path` ends, whether or not something is there.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&at) {
            // A relative link starts at the folder it lies in; an absolute one replaces the whole
            // path.
            Ok(to) => at = at.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(at),
        }
    }
    Err(io::Error::other("its links lead in a circle"))
}

/// What a file that is not regular is, in words.
pub(crate) fn kind(t: fs::FileType) -> &'static str {
    match t {
        t if t.is_dir() => "a directory",
        t if t.is_fifo() => "a named pipe",
        t if t.is_socket() => "a socket",
        t if t.is_char_device() || t.is_block_device() => "a device",
        _ => "no regular file",
    }
}

/// The temporary files of this process, so that a signal's handler can remove them.
pub(super) struct Registry(Mutex<Vec<PathBuf>>);

/// All of them.
pub(super) static REGISTRY: Registry = Registry(Mutex::new(vec![]));

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new file beside `place`. Its short name fits wherever the final one does; one that a
    /// killed process with our number left is passed over.
    pub fn start(&self, place: &Place) -> Result<(PathBuf, File), LinkError> {
        for n in 0..ATTEMPTS {
            let tmp = place.folder().join(format!(".llmcc-{}-{n}.tmp", std::process::id()));
            match self.start_as(&tmp) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(LinkError::Io { path: place.target.clone(), source }),
                Ok(file) => return Ok((tmp, file)),
            }
        }
        let source = io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{ATTEMPTS} files .llmcc-*.tmp of interrupted runs lie there; remove them"),
        );
        Err(LinkError::Io { path: place.folder().to_owned(), source })
    }

    /// A new file at `tmp`.
    pub fn start_as(&self, tmp: &Path) -> io::Result<File> {
        let mut files = self.lock();
        let file = File::options().read(true).write(true).create_new(true).open(tmp)?;
        files.push(tmp.to_owned());
        Ok(file)
    }

    /// Gives the file at `tmp` its name.
    pub fn finish(&self, tmp: &Path, name: &Path) -> io::Result<()> {
        let mut files = self.lock();
        fs::rename(tmp, name)?;
        files.retain(|f| f != tmp);
        Ok(())
    }

    /// Removes the file at `tmp`.
    pub fn discard(&self, tmp: &Path) {
        let mut files = self.lock();
        // Nothing more can be done about a failure here; the output's name was never touched.
        let _ = fs::remove_file(tmp);
        files.retain(|f| f != tmp);
    }
}

/// Removes all unfinished files of this process and stops it from making more: for the moment
/// before it ends by a signal. Whoever would start, finish or remove one afterwards waits for ever.
pub fn remove_unfinished() {
    let mut files = REGISTRY.lock();
    for f in files.drain(..) {
        let _ = fs::remove_file(f);
    }
    std::mem::forget(files);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Pending;
    use std::os::unix::fs::symlink;

    fn written(path: &Path) -> Result<(), LinkError> {
        Pending::write_file(path, b"new")
    }

    #[test]
    fn links_are_followed_and_stay() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("there")).unwrap();
        fs::write(at("there/file"), "old").unwrap();
        symlink("there/file", at("direct")).unwrap();
        symlink(at("direct"), at("twice")).unwrap();
        symlink("there/missing", at("dangling")).unwrap();
        for (link, file) in [("twice", "there/file"), ("dangling", "there/missing")] {
            written(&at(link)).unwrap();
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink(), "{link}");
            assert_eq!(fs::read(at(file)).unwrap(), b"new", "{link}");
        }
        assert_eq!(fs::read_dir(at("there")).unwrap().count(), 2, "nothing temporary stays");
    }

    #[test]
    fn what_is_no_file_is_refused_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        symlink(at("b"), at("a")).unwrap();
        symlink(at("a"), at("b")).unwrap();
        symlink("/dev/null", at("null")).unwrap();
        let pipe = std::ffi::CString::new(at("pipe").to_str().unwrap()).unwrap();
        // SAFETY: a valid path.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (name, what) in [
            ("a", "circle"),
            ("null", "a device"),
            ("pipe", "a named pipe"),
            ("socket", "a socket"),
            ("", "directory"),
            ("..", "directory"),
        ] {
            let e = written(&at(name)).unwrap_err().to_string();
            assert!(e.contains(what), "{name}: {e}");
        }
        drop(socket);
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5);
    }

    #[test]
    fn leftovers_of_a_process_with_the_same_number_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(format!(".llmcc-{}-0.tmp", std::process::id()));
        fs::write(&left, "left").unwrap();
        written(&dir.path().join("file")).unwrap();
        assert_eq!(fs::read(left).unwrap(), b"left");
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"new");
    }

    #[test]
    fn the_longest_names_have_temporaries() {
        let dir = tempfile::tempdir().unwrap();
        written(&dir.path().join("n".repeat(255))).unwrap();
    }
}
