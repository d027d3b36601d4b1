//! Finding the parts of an artifact from its file, without loading it.

pub use crate::descriptor::LocateError;

use crate::sealed::Sealed;
use llmcc_abi::tree::part;
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

/// Finds the parts of the artifact at `path`, and checks that both files have the right length and
/// belong together, and that headers, runtime and the table of hashes are sound, which the system's
/// loader relies on.
///
/// # Errors
/// Not readable, not an artifact, of another version, cut short, or damaged there.
pub fn locate(path: &Path) -> Result<Parts, LocateError> {
    let sealed = Sealed::open(path)?;
    sealed.check_side_file()?;
    sealed.check_loadable()?;
    let image = sealed.image;
    let part = |kind: u32, len: u64, path: PathBuf| {
        let offset = sealed.parts.iter().find(|p| p.kind == kind).map_or(0, |p| p.off);
        Part { path, offset, len }
    };
    Ok(Parts {
        code: part(part::CODE, image.code_len, path.to_owned()),
        data: part(part::TABLES, image.data_len, path.to_owned()),
        weights: part(part::WEIGHTS, image.weights_len, sealed.weights_path()),
    })
}

/// The manifest (JSON) of the artifact at `path`, from the file alone.
///
/// # Errors
/// Not readable, not an artifact, of another version, cut short, or damaged there.
pub fn manifest(path: &Path) -> Result<Vec<u8>, LocateError> {
    Sealed::open(path)?.bytes(part::MANIFEST)
}
