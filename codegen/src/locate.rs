//! Finding the parts of an artifact from its file, without loading it.

use llmcc_abi::{ABI_VERSION, FLAG_EXTERNAL_WEIGHTS, IMAGE_MAGIC, ImageRef, MODEL_MAGIC, ModelDesc, Span};
use object::elf::{FileHeader64, PT_LOAD, ProgramHeader64};
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader, ProgramHeader};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::offset_of;
use std::path::{Path, PathBuf};

/// A byte range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The file.
    pub path: PathBuf,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The parts of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Generated code.
    pub code: Part,
    /// Tables and texts.
    pub data: Part,
    /// Packed weights, perhaps in the side file.
    pub weights: Part,
}

/// Why a file is not a usable artifact.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// Not readable.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// Something else.
    #[error("{}: {what}", path.display())]
    NotAnArtifact {
        /// File.
        path: PathBuf,
        /// What is wrong and what to do.
        what: String,
    },
}

/// The largest runtime object we look into for the descriptor.
const RUNTIME_LIMIT: u64 = 64 << 20;

/// Finds the parts of the artifact at `path` and checks that the files are as long as they must be.
///
/// # Errors
/// Not readable, not an artifact, of another version, or cut short.
pub fn locate(path: &Path) -> Result<Parts, LocateError> {
    let io = |path: &Path, source| LocateError::Io { path: path.to_owned(), source };
    let not = |what: &str| LocateError::NotAnArtifact { path: path.to_owned(), what: what.to_owned() };
    let file = File::open(path).map_err(|e| io(path, e))?;
    let file_len = file.metadata().map_err(|e| io(path, e))?.len();
    let mut head = vec![];
    file.take(RUNTIME_LIMIT).read_to_end(&mut head).map_err(|e| io(path, e))?;
    let image = find_image(&head).ok_or_else(|| not("not an artifact of llmcc (make one with `llmcc compile`)"))?;
    if image.version != ABI_VERSION {
        return Err(not(&format!(
            "made by another version of llmcc (format {}, this one reads {ABI_VERSION}); compile it again",
            image.version
        )));
    }
    if file_len < image.file_len {
        return Err(not(&format!(
            "it has {file_len} bytes but should have {}: cut short, or stripped; copy or compile it again",
            image.file_len
        )));
    }
    let headers = program_headers(path, &head).ok_or_else(|| not("its program headers are damaged; compile it again"))?;
    let part = |addr: u64, len: u64| -> Result<Part, LocateError> {
        // Every number comes from the file, so none may overflow or point outside it.
        let place = |h: &ProgramHeader64<LE>| {
            let skip = addr.checked_sub(h.p_vaddr(LE))?;
            let in_segment = skip.checked_add(len)? <= h.p_filesz(LE);
            let offset = skip.checked_add(h.p_offset(LE))?;
            (h.p_type(LE) == PT_LOAD && in_segment && offset.checked_add(len)? <= file_len).then_some(offset)
        };
        let offset = headers.iter().find_map(place).ok_or_else(|| not("a segment is missing or cut short; compile it again"))?;
        Ok(Part { path: path.to_owned(), offset, len })
    };
    let weights = if image.flags & FLAG_EXTERNAL_WEIGHTS != 0 {
        external(path, image.weights_len)?
    } else if image.weights_len == 0 {
        Part { path: path.to_owned(), offset: 0, len: 0 }
    } else {
        part(image.weights_addr, image.weights_len)?
    };
    Ok(Parts { code: part(image.code_addr, image.code_len)?, data: part(image.data_addr, image.data_len)?, weights })
}

/// The manifest (JSON) of the artifact at `path`, from the file alone.
///
/// # Errors
/// As [`locate`]; tables that are damaged.
pub fn manifest(path: &Path) -> Result<Vec<u8>, LocateError> {
    let data = locate(path)?.data;
    let damaged = || LocateError::NotAnArtifact { path: path.to_owned(), what: "its tables are damaged; copy or compile it again".into() };
    let mut file = File::open(path).map_err(|source| LocateError::Io { path: path.to_owned(), source })?;
    let mut read = |offset: u64, len: u64| -> Result<Vec<u8>, LocateError> {
        // Numbers of the file: within the data, so that no memory is asked for that is not in it.
        if offset.checked_add(len).is_none_or(|end| end > data.len) {
            return Err(damaged());
        }
        let mut bytes = vec![0; len as usize];
        let done = file.seek(SeekFrom::Start(data.offset + offset)).and_then(|_| file.read_exact(&mut bytes));
        done.map(|()| bytes).map_err(|source| LocateError::Io { path: path.to_owned(), source })
    };
    let head = read(0, size_of::<ModelDesc>() as u64)?;
    let number = |at: usize| head[at..at + 8].iter().rev().fold(0u64, |a, b| a << 8 | u64::from(*b));
    if head[..8] != MODEL_MAGIC {
        return Err(damaged());
    }
    let span = offset_of!(ModelDesc, manifest);
    read(number(span + offset_of!(Span, off)), number(span + offset_of!(Span, len)))
}

fn external(path: &Path, len: u64) -> Result<Part, LocateError> {
    let side = crate::link::weights_path(path);
    let found = std::fs::metadata(&side).map_err(|source| LocateError::Io { path: side.clone(), source })?.len();
    if found != len {
        let what = format!("it has {found} bytes but the artifact was made with {len}; keep the two files together");
        return Err(LocateError::NotAnArtifact { path: side, what });
    }
    Ok(Part { path: side, offset: 0, len })
}

/// The patched descriptor: the first occurrence of the magic that is followed by a plausible version and code.
fn find_image(bytes: &[u8]) -> Option<ImageRef> {
    let size = size_of::<ImageRef>();
    for (i, w) in bytes.windows(IMAGE_MAGIC.len()).enumerate() {
        if w != IMAGE_MAGIC {
            continue;
        }
        let raw = bytes.get(i..i + size)?;
        let u32_at = |o: usize| raw[o..o + 4].iter().rev().fold(0u32, |a, b| a << 8 | u32::from(*b));
        let u64_at = |o: usize| raw[o..o + 8].iter().rev().fold(0u64, |a, b| a << 8 | u64::from(*b));
        let image = ImageRef {
            magic: IMAGE_MAGIC,
            version: u32_at(16),
            flags: u32_at(20),
            code_addr: u64_at(24),
            code_len: u64_at(32),
            data_addr: u64_at(40),
            data_len: u64_at(48),
            weights_addr: u64_at(56),
            weights_len: u64_at(64),
            file_len: u64_at(72),
        };
        if (1..1 << 16).contains(&image.version) && image.data_len > 0 && image.file_len > 0 {
            return Some(image);
        }
    }
    None
}

/// The program headers, which lie behind the weights.
fn program_headers(path: &Path, head: &[u8]) -> Option<Vec<ProgramHeader64<LE>>> {
    let header = FileHeader64::<LE>::parse(head).ok()?;
    let count = usize::from(header.e_phnum.get(LE));
    let mut raw = vec![0u8; count * size_of::<ProgramHeader64<LE>>()];
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(header.e_phoff.get(LE))).ok()?;
    file.read_exact(&mut raw).ok()?;
    let (headers, _) = object::pod::slice_from_bytes::<ProgramHeader64<LE>>(&raw, count).ok()?;
    Some(headers.to_vec())
}
