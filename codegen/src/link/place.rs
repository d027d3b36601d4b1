//! Where output may go, and the temporary files that stand for it until it is complete.

use super::LinkError;
use std::ffi::{CStr, CString, c_char};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

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
            _ if target.file_name().is_none() => {
                Err(fail(io::ErrorKind::InvalidInput, "it is not a file name; give one"))
            }
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

    /// A name beside it.
    fn temporary_name(&self) -> PathBuf {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let n = NUMBER.fetch_add(1, SeqCst);
        self.folder().join(format!(".llmcc-{}-{n}.tmp", std::process::id()))
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

/// The kind of a file that is not regular, in words.
pub(crate) fn kind(t: fs::FileType) -> &'static str {
    match t {
        t if t.is_dir() => "a directory",
        t if t.is_fifo() => "a named pipe",
        t if t.is_socket() => "a socket",
        t if t.is_char_device() || t.is_block_device() => "a device",
        _ => "no regular file",
    }
}

/// A file without its name yet.
pub(super) enum Unfinished {
    /// It has none at all, and goes with the process: where it can be opened as long as this process
    /// has it open.
    Unnamed(PathBuf),
    /// A temporary one.
    Named(PathBuf),
}

impl Unfinished {
    /// A new file for `place`: one without a name where the system and the file system have such,
    /// else one beside the place.
    pub fn start(place: &Place) -> Result<(Unfinished, File), LinkError> {
        let fail = |source| LinkError::Io { path: place.target.clone(), source };
        match unnamed(place.folder()) {
            Some((path, file)) => Ok((Unfinished::Unnamed(path), file)),
            None => Unfinished::start_named(place).map_err(fail),
        }
    }

    /// A new file with a temporary name beside `place`. Its short name fits wherever the final one
    /// does; one that a killed process with our number left is passed over.
    pub fn start_named(place: &Place) -> io::Result<(Unfinished, File)> {
        for _ in 0..ATTEMPTS {
            let tmp = place.temporary_name();
            match Unfinished::start_as(tmp) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other,
            }
        }
        let what = format!("{ATTEMPTS} files .llmcc-*.tmp of interrupted runs lie in the folder; remove them");
        Err(io::Error::new(io::ErrorKind::AlreadyExists, what))
    }

    /// A new file called `tmp`.
    pub fn start_as(tmp: PathBuf) -> io::Result<(Unfinished, File)> {
        // Known to handlers of signals before it is there.
        REGISTRY.add(&tmp);
        match File::options().read(true).write(true).create_new(true).open(&tmp) {
            Ok(file) => Ok((Unfinished::Named(tmp), file)),
            Err(e) => {
                REGISTRY.remove(&tmp);
                Err(e)
            }
        }
    }

    /// Where it can be opened.
    pub fn path(&self) -> &Path {
        match self {
            Unfinished::Unnamed(path) | Unfinished::Named(path) => path,
        }
    }

    /// Gives the file its name.
    pub fn finish(&self, place: &Place) -> io::Result<()> {
        let Unfinished::Unnamed(path) = self else { return rename(self.path(), place) };
        match link(path, &place.target) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other,
        }
        // A name that stands for another file is taken by renaming only.
        for _ in 0..ATTEMPTS {
            let tmp = place.temporary_name();
            REGISTRY.add(&tmp);
            match link(path, &tmp) {
                Ok(()) => return rename(&tmp, place).inspect_err(|_| discard(&tmp)),
                Err(e) => {
                    REGISTRY.remove(&tmp);
                    if e.kind() != io::ErrorKind::AlreadyExists {
                        return Err(e);
                    }
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Removes it.
    pub fn discard(&self) {
        if let Unfinished::Named(tmp) = self {
            discard(tmp);
        }
    }
}

/// A file in a folder that has no name: `None` where there are no such, or no way to open and name
/// them.
fn unnamed(folder: &Path) -> Option<(PathBuf, File)> {
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(0o600)
        .open(folder)
        .ok()
        .filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // Without `/proc` neither.
    let there = fs::metadata(&path).ok()?;
    let same = file.metadata().is_ok_and(|m| (m.dev(), m.ino()) == (there.dev(), there.ino()));
    same.then_some((path, file))
}

/// Gives the file that can be opened at `path` a further name.
fn link(path: &Path, name: &Path) -> io::Result<()> {
    let c = |p: &Path| CString::new(p.as_os_str().as_bytes()).map_err(io::Error::other);
    let (path, name) = (c(path)?, c(name)?);
    // SAFETY: both are C strings.
    let done =
        unsafe { libc::linkat(libc::AT_FDCWD, path.as_ptr(), libc::AT_FDCWD, name.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn rename(tmp: &Path, place: &Place) -> io::Result<()> {
    fs::rename(tmp, &place.target)?;
    REGISTRY.remove(tmp);
    Ok(())
}

fn discard(tmp: &Path) {
    // Nothing more can be done about a failure here; the output's name was never touched.
    let _ = fs::remove_file(tmp);
    REGISTRY.remove(tmp);
}

/// Most temporary names at a time: an artifact, its weights and a few texts.
const NAMES: usize = 16;

/// The temporary names of this process, for handlers of signals, which may take no locks and free
/// nothing.
struct Registry([AtomicPtr<c_char>; NAMES]);

static REGISTRY: Registry = Registry([const { AtomicPtr::new(ptr::null_mut()) }; NAMES]);

impl Registry {
    fn add(&self, tmp: &Path) {
        let Ok(name) = CString::new(tmp.as_os_str().as_bytes()) else { return };
        let name = name.into_raw();
        let free = |slot: &AtomicPtr<c_char>| slot.compare_exchange(ptr::null_mut(), name, SeqCst, SeqCst).is_ok();
        // (More than are expected would stay after a signal.)
        let _ = self.0.iter().any(free);
    }

    fn remove(&self, tmp: &Path) {
        for slot in &self.0 {
            let name = slot.load(SeqCst);
            // SAFETY: names are never freed, since a handler may be reading them: they are few and short.
            if !name.is_null() && unsafe { CStr::from_ptr(name) }.to_bytes() == tmp.as_os_str().as_bytes() {
                let _ = slot.compare_exchange(name, ptr::null_mut(), SeqCst, SeqCst);
            }
        }
    }
}

/// Removes all unfinished files of this process: for the moment before it ends by a signal. A
/// handler may call it.
pub fn remove_unfinished() {
    for slot in &REGISTRY.0 {
        let name = slot.load(SeqCst);
        if !name.is_null() {
            // SAFETY: a C string that is never freed.
            unsafe { libc::unlink(name) };
        }
    }
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
        let pipe = CString::new(at("pipe").to_str().unwrap()).unwrap();
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

    /// A file whose file system has no unnamed ones.
    fn named(place: &Place) -> Unfinished {
        Unfinished::start_named(place).unwrap().0
    }

    #[test]
    fn leftovers_of_a_process_with_the_same_number_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(&dir.path().join("file")).unwrap();
        let first = named(&place);
        let (_, n) = first.path().to_str().unwrap().rsplit_once('-').unwrap();
        let n: usize = n.strip_suffix(".tmp").unwrap().parse().unwrap();
        let left: Vec<PathBuf> = (1..50)
            .map(|i| dir.path().join(format!(".llmcc-{}-{}.tmp", std::process::id(), n + i)))
            .inspect(|path| fs::write(path, "left").unwrap())
            .collect();
        named(&place).finish(&place).unwrap();
        assert!(left.iter().all(|path| fs::read(path).unwrap() == b"left"));
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"");
        first.discard();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 50);
    }

    /// A signal that cannot be handled leaves nothing, where files need no name.
    #[test]
    fn files_without_a_name_take_theirs_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("file");
        let place = Place::of(&at).unwrap();
        for text in ["first", "second"] {
            let (unfinished, mut file) = Unfinished::start(&place).unwrap();
            io::Write::write_all(&mut file, text.as_bytes()).unwrap();
            assert_eq!(fs::read(unfinished.path()).unwrap(), text.as_bytes());
            if matches!(unfinished, Unfinished::Unnamed(_)) {
                assert_eq!(fs::read_dir(dir.path()).unwrap().count(), usize::from(at.exists()));
            } else {
                println!("skipped: {} has no files without a name", dir.path().display());
            }
            unfinished.finish(&place).unwrap();
            assert_eq!(fs::read_to_string(&at).unwrap(), text);
        }
        // One that is given up.
        let (unfinished, _) = Unfinished::start(&place).unwrap();
        unfinished.discard();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_longest_names_have_temporaries() {
        let dir = tempfile::tempdir().unwrap();
        written(&dir.path().join("n".repeat(255))).unwrap();
    }
}
