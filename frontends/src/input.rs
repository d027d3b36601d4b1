//! Opening the files that a user names.
//!
//! Only regular files: a named pipe would wait for a writer, `/dev/zero` never ends. If a named
//! file is missing, or of another kind, the error names its kind.

use crate::checkpoint::pytorch;
use crate::error::FrontendError;
use crate::json;
use serde_json::Value;
use std::fs::{File, FileType, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Largest file that is read as a whole (tensors are mapped). Far above any `tokenizer.json`, far
/// below a machine's memory.
pub const MOST_BYTES: u64 = 1 << 30;

/// Opens a regular file for reading.
///
/// # Errors
/// [`FrontendError::Io`]; [`FrontendError::NotAFile`] for folders, pipes, sockets and devices.
pub fn open(path: &Path) -> Result<File, FrontendError> {
    let io = |source| FrontendError::Io { path: path.to_path_buf(), action: "open", source };
    let regular = |kind: FileType| match kind.is_file() {
        true => Ok(()),
        false => Err(FrontendError::NotAFile { path: path.to_path_buf(), what: describe(kind) }),
    };
    // Before it is opened, since opening a device may do something; and after, since it may have
    // become another file.
    match std::fs::metadata(path) {
        Ok(meta) => regular(meta.file_type())?,
        Err(source) => return Err(dangling(path).unwrap_or_else(|| io(source))),
    }
    // Opening a pipe without a writer does not wait then; nothing changes for regular files.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(io)?;
    regular(file.metadata().map_err(io)?.file_type())?;
    Ok(file)
}

/// The contents of a regular file.
///
/// # Errors
/// As [`open`]; a file of more than 1 GiB.
pub fn read(path: &Path) -> Result<Vec<u8>, FrontendError> {
    read_all(open(path)?, path)
}

/// The contents of a UTF-8 text. `/dev/stdin` and `/dev/fd/N` are read to their end whatever they
/// are, since the caller redirected them.
///
/// # Errors
/// As [`read`]; [`FrontendError::NotUtf8`].
pub fn read_text(path: &Path) -> Result<String, FrontendError> {
    let redirected = path == Path::new("/dev/stdin") || path.starts_with("/dev/fd");
    let file = match redirected {
        true => {
            File::open(path).map_err(|source| FrontendError::Io { path: path.to_path_buf(), action: "open", source })?
        }
        false => open(path)?,
    };
    utf8(read_all(file, path)?, path)
}

/// The text of the bytes of a file.
///
/// # Errors
/// [`FrontendError::NotUtf8`] with the index of the first byte that is wrong.
pub fn utf8(bytes: Vec<u8>, path: &Path) -> Result<String, FrontendError> {
    String::from_utf8(bytes)
        .map_err(|e| FrontendError::NotUtf8 { path: path.to_path_buf(), at: e.utf8_error().valid_up_to() })
}

/// [`read`]; `None` where there is nothing of that name.
///
/// # Errors
/// As [`read`]; a download that is no file of a model.
pub(crate) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, FrontendError> {
    match read(path) {
        Err(FrontendError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
        Ok(bytes) => itself(path, &bytes).map(|()| Some(bytes)),
    }
}

/// Whether a file is genuine, and not a leftover of a download in its place: Git's pointer to it,
/// or the page that a server answers with.
///
/// # Errors
/// [`FrontendError::NotACheckpoint`].
pub(crate) fn itself(path: &Path, bytes: &[u8]) -> Result<(), FrontendError> {
    let first = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let begins = |with: &str| first.get(..with.len()).is_some_and(|f| f.eq_ignore_ascii_case(with.as_bytes()));
    let (what, help) = if begins("version https://git-lfs") {
        ("this is a Git LFS pointer, not the file itself", "fetch it with `git lfs pull`, or download it again")
    } else if begins("<!doctype html") || begins("<html") || begins("<?xml") {
        let help = "download it again: from its own address (on Hugging Face with `/resolve/` in place of \
                    `/blob/`), and logged in where the model asks for it";
        ("this is a web page from a server, not the file itself", help)
    } else {
        return Ok(());
    };
    Err(FrontendError::NotACheckpoint { path: path.to_path_buf(), what: what.into(), help: help.into() })
}

/// Most bytes that are looked at.
const MOST_OF_TEXT: usize = 4096;
/// Beginnings of servers' answers where a file is not given.
const ANSWERS: &[&str] =
    &["Entry not found", "Repository not found", "Invalid username or password", "Access to model"];

/// [`itself`], of a file of tensors: not empty, and no text either. Nothing of a text is repeated: a file of that
/// name may be a link to anything.
///
/// # Errors
/// [`FrontendError::NotACheckpoint`].
pub(crate) fn tensors_themselves(path: &Path, bytes: &[u8]) -> Result<(), FrontendError> {
    // (Of files of any size the beginning is looked at, and no more is read of them.)
    let first = bytes.get(..MOST_OF_TEXT).unwrap_or(bytes);
    itself(path, first)?;
    let text = || {
        let whole = first.len() == bytes.len();
        let text = match std::str::from_utf8(first) {
            Ok(text) => text,
            // The last character may be cut.
            Err(e) if !whole && e.error_len().is_none() => std::str::from_utf8(first.get(..e.valid_up_to())?).ok()?,
            Err(_) => return None,
        };
        let is = bytes.len() > 8 && !text.contains(|c: char| c.is_control() && !c.is_whitespace());
        is.then_some(text.trim())
    };
    let (what, help) = if bytes.is_empty() {
        ("the file is empty".into(), "download it again")
    } else if pytorch::is_of_protocol_0(bytes) {
        ("this is a Python pickle of protocol 0 or 1, which is not supported".into(), pytorch::SAVE)
    } else if let Some(text) = text() {
        let answer = ANSWERS.iter().find(|answer| text.starts_with(**answer));
        let said = answer.map_or_else(String::new, |answer| format!(" (a server's answer: `{answer}`)"));
        (format!("this is a text of {} bytes{said}, not a file of tensors", bytes.len()), "download it again")
    } else {
        return Ok(());
    };
    Err(FrontendError::NotACheckpoint { path: path.to_path_buf(), what, help: help.into() })
}

/// A JSON file; `None` where there is none.
///
/// # Errors
/// When it cannot be read or parsed.
pub(crate) fn read_json(path: &Path) -> Result<Option<Value>, FrontendError> {
    let parse =
        |bytes: Vec<u8>| json::parse(&bytes).map_err(|source| FrontendError::Json { path: path.to_path_buf(), source });
    read_optional(path)?.map(parse).transpose()
}

fn read_all(file: File, path: &Path) -> Result<Vec<u8>, FrontendError> {
    let mut bytes = vec![];
    let io = |source| FrontendError::Io { path: path.to_path_buf(), action: "read", source };
    if file.metadata().map_err(io)?.len() <= MOST_BYTES {
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 <= MOST_BYTES {
            return Ok(bytes);
        }
    }
    Err(FrontendError::TooLong { path: path.to_path_buf() })
}

/// The kind of a file that is not a regular one.
fn describe(kind: FileType) -> String {
    let kinds = [
        (kind.is_dir(), "a folder"),
        (kind.is_fifo(), "a named pipe"),
        (kind.is_char_device() || kind.is_block_device(), "a device"),
        (kind.is_socket(), "a socket"),
    ];
    kinds.into_iter().find(|(is, _)| *is).map_or("no regular file", |(_, name)| name).into()
}

/// The error for a link to a file that is not there.
fn dangling(path: &Path) -> Option<FrontendError> {
    let target = std::fs::read_link(path).ok()?;
    Some(FrontendError::NotAFile {
        path: path.to_path_buf(),
        what: format!("a link to {}, which does not exist", target.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    /// None of these may wait; a pipe without a writer would for ever.
    #[test]
    fn only_regular_files() {
        let folder = Folder::new();
        let at = |name: &str| folder.0.join(name);
        folder.write("text", "a");
        symlink("text", at("link")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let _socket = UnixListener::bind(at("socket")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        let say = |name: &str| {
            let text = read(&at(name)).map_or_else(|e| e.to_string(), |bytes| format!("{} bytes", bytes.len()));
            text.replace(&*folder.0.to_string_lossy(), "DIR")
        };
        assert_eq!((say("text"), say("link")), ("1 bytes".into(), "1 bytes".into()));
        assert_eq!(say("absent"), "DIR/absent: cannot open: No such file or directory (os error 2)");
        for (name, what) in [
            ("zero", "a device"),
            ("pipe", "a named pipe"),
            ("socket", "a socket"),
            ("folder", "a folder"),
            ("dangling", "a link to nowhere, which does not exist"),
        ] {
            assert_eq!(say(name), format!("DIR/{name}: it is {what}; a regular file is needed here"));
        }
        assert!(read_optional(&at("absent")).unwrap().is_none());
        assert!(read_optional(&at("dangling")).is_err());
    }

    /// Leftovers of downloads in place of files of any kind.
    #[test]
    fn what_is_not_the_file_itself() {
        let folder = Folder::new();
        let path = folder.0.join("f");
        let page = "this is a web page from a server, not the file itself; download it again";
        for (text, found) in [
            ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "this is a Git LFS pointer"),
            ("\u{feff}\n<!DOCTYPE html>", page),
            ("<HTML lang=\"en\">", page),
            ("<?xml version=\"1.0\"?><Error/>", page),
        ] {
            folder.write("f", text);
            let errors = [read_json(&path).unwrap_err(), tensors_themselves(&path, text.as_bytes()).unwrap_err()];
            for e in errors {
                assert!(e.to_string().contains(&format!("f: {found}")), "{e}");
            }
        }
        for (text, found) in [
            ("", "the file is empty"),
            (
                "Entry not found",
                "this is a text of 15 bytes (a server's answer: `Entry not found`), not a file of tensors",
            ),
            // Whatever it says, the file may be a link to anything.
            ("{\"secret\":1}\nmore", "this is a text of 17 bytes, not a file of tensors"),
            (&"root:x:0:0\n".repeat(1000), "this is a text of 11000 bytes, not a file of tensors"),
            (&"a\u{e9}".repeat(3000), "this is a text of 9000 bytes, not a file of tensors"),
        ] {
            let e = tensors_themselves(&path, text.as_bytes()).unwrap_err();
            assert!(e.to_string().ends_with(&format!("f: {found}; download it again")), "{e}");
        }
        for old in ["(dp0\nS'weight'\np1\nF1.0\ns.", "L119547037146038801333356L\n.I1001\n."] {
            let e = tensors_themselves(&path, old.as_bytes()).unwrap_err().to_string();
            assert!(e.contains("f: this is a Python pickle of protocol 0 or 1") && !e.contains("weight'"), "{e}");
        }
        for file in [&b"\x02\0\0\0\0\0\0\0{}"[..], b"GGUF\x03\0\0\0", b"\x80\x02}q\0."] {
            tensors_themselves(&path, file).unwrap();
        }
        // A sparse file, as long as none is: the beginning is enough.
        let sparse = File::create(&path).and_then(|f| f.set_len(1 << 36).and_then(|()| File::open(&path)));
        // SAFETY: nobody else writes the file.
        let map = unsafe { memmap2::Mmap::map(&sparse.unwrap()) }.unwrap();
        tensors_themselves(&path, &map).unwrap();
    }

    #[test]
    fn files_that_are_too_long_or_no_text() {
        let folder = Folder::new();
        let path = folder.0.join("sparse");
        File::create(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("longer than 1 GiB"));
        folder.write("text", b"ab\xff");
        assert!(read_text(&folder.0.join("text")).unwrap_err().to_string().contains("byte 2 "));
    }
}
