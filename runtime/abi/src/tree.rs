//! The hash tree over every byte of an artifact and of its side file.
//!
//! Both files are cut into *parts* ([`PartDesc`]), consecutive and without gaps; a part is hashed
//! in blocks of [`BLOCK`] bytes (the last may be shorter), so that writing streams and checking can
//! be spread over threads. All hashes are SHA-256, each after a 16-byte tag of its level; numbers
//! are little endian:
//!
//! ```text
//! leaf    = SHA-256("llmcc leaf 1\0\0\0\0" | bytes of the block)
//! part    = SHA-256("llmcc part 1\0\0\0\0" | kind u32 | 0 u32 | len u64 | its leaves)
//! weights = SHA-256("llmcc weights 1\0"    | count u64 | the PartDesc of all weights)
//! root    = SHA-256("llmcc root 1\0\0\0\0" | count u64 | the PartDesc of all parts)
//! ```
//!
//! The table of hashes itself (all [`PartDesc`], then all leaves) is the end of the artifact,
//! behind the last part: the root covers the first, the parts' hashes cover the second. The root is
//! in [`crate::ImageRef::root`], for which [`part::IMAGE`] has zeros. SHA-256 because every current
//! processor has instructions for it (1 to 2 GB/s a thread), every language a library, and every
//! signature scheme a use for it.

use sha2::{Digest, Sha256};

/// A SHA-256.
pub type Hash = [u8; 32];

/// Bytes of a leaf.
pub const BLOCK: usize = 1 << 20;
/// First bytes of the label behind the weights in a side file; it ends with [`weights`] of the
/// parts.
pub const LABEL_MAGIC: [u8; 16] = *b"llmcc-weights\0\0\0";
/// Bytes of the label.
pub const LABEL_LEN: usize = LABEL_MAGIC.len() + size_of::<Hash>();
/// [`PartDesc::file`]: the artifact.
pub const ARTIFACT: u32 = 0;
/// [`PartDesc::file`]: the side file.
pub const SIDE: u32 = 1;

/// A part of a file, and its hash. Parts of the artifact come first, then parts of the side file;
/// each begins where the one before ends.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartDesc {
    /// See [`part`].
    pub kind: u32,
    /// [`ARTIFACT`] or [`SIDE`].
    pub file: u32,
    /// First byte in the file.
    pub off: u64,
    /// Bytes, at least one.
    pub len: u64,
    /// Hash of the part.
    pub hash: Hash,
}

impl PartDesc {
    /// Leaves of the part.
    pub const fn leaves(&self) -> u64 {
        self.len.div_ceil(BLOCK as u64)
    }

    /// As in the file.
    pub fn bytes(&self) -> [u8; size_of::<PartDesc>()] {
        let mut out = [0; size_of::<PartDesc>()];
        out[..4].copy_from_slice(&self.kind.to_le_bytes());
        out[4..8].copy_from_slice(&self.file.to_le_bytes());
        out[8..16].copy_from_slice(&self.off.to_le_bytes());
        out[16..24].copy_from_slice(&self.len.to_le_bytes());
        out[24..].copy_from_slice(&self.hash);
        out
    }

    /// From the file.
    pub fn from_bytes(b: &[u8; size_of::<PartDesc>()]) -> PartDesc {
        let number = |at: usize, n: usize| b[at..at + n].iter().rev().fold(0u64, |a, b| a << 8 | u64::from(*b));
        let mut hash = [0; 32];
        hash.copy_from_slice(&b[24..]);
        PartDesc { kind: number(0, 4) as u32, file: number(4, 4) as u32, off: number(8, 8), len: number(16, 8), hash }
    }
}

/// Kinds of parts.
pub mod part {
    /// ELF header; program headers.
    pub const HEADERS: u32 = 1;
    /// The runtime.
    pub const RUNTIME: u32 = 2;
    /// [`crate::ImageRef`], with zeros for the root.
    pub const IMAGE: u32 = 3;
    /// Generated code.
    pub const CODE: u32 = 4;
    /// Packed weights: a part for each tensor, as the manifest lists them.
    pub const WEIGHTS: u32 = 5;
    /// Tables of the data segment.
    pub const TABLES: u32 = 6;
    /// The manifest.
    pub const MANIFEST: u32 = 7;
    /// `tokenizer.json`.
    pub const TOKENIZER: u32 = 8;
    /// Special tokens and chat template.
    pub const TEXT_CONFIG: u32 = 9;
    /// Zeros between parts.
    pub const PADDING: u32 = 10;
    /// The end of the side file.
    pub const LABEL: u32 = 11;
    /// Licences of the software in the runtime.
    pub const NOTICES: u32 = 12;
    /// The module and the choices made for it, from which versions for other machines are made.
    pub const RECIPE: u32 = 13;

    /// The name of a kind in messages.
    pub const fn name(kind: u32) -> &'static str {
        match kind {
            HEADERS => "ELF headers",
            RUNTIME => "runtime",
            IMAGE => "image descriptor",
            CODE => "code",
            WEIGHTS => "weights",
            TABLES => "tables",
            MANIFEST => "manifest",
            TOKENIZER => "tokenizer",
            TEXT_CONFIG => "chat template and special tokens",
            PADDING => "padding",
            LABEL => "label of the weights",
            NOTICES => "licences",
            RECIPE => "module and choices",
            _ => "unknown part",
        }
    }
}

/// Hash of a block of at most [`BLOCK`] bytes.
pub fn leaf(block: &[u8]) -> Hash {
    let mut hash = Leaf::default();
    hash.update(block);
    hash.finish()
}

/// A [`leaf`] from pieces of its block.
#[derive(Clone)]
pub struct Leaf(Sha256);

impl Default for Leaf {
    fn default() -> Leaf {
        Leaf(Sha256::new().chain_update(b"llmcc leaf 1\0\0\0\0"))
    }
}

impl Leaf {
    /// The next bytes of the block.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash.
    pub fn finish(self) -> Hash {
        self.0.finalize().into()
    }
}

/// Hash of a part of `len` bytes with these leaves.
pub fn part_hash(kind: u32, len: u64, leaves: impl IntoIterator<Item = Hash>) -> Hash {
    let mut hash = Sha256::new().chain_update(b"llmcc part 1\0\0\0\0").chain_update(u64::from(kind).to_le_bytes());
    hash.update(len.to_le_bytes());
    leaves.into_iter().for_each(|leaf| hash.update(leaf));
    hash.finalize().into()
}

/// Hash of a part that is in memory.
pub fn part_of(kind: u32, bytes: &[u8]) -> Hash {
    part_hash(kind, bytes.len() as u64, bytes.chunks(BLOCK).map(leaf))
}

/// Hash of the weights: of the descriptors of [`part::WEIGHTS`] among `parts`.
pub fn weights(parts: &[PartDesc]) -> Hash {
    descriptors(b"llmcc weights 1\0", parts.iter().filter(|p| p.kind == part::WEIGHTS))
}

/// Hash of everything.
pub fn root(parts: &[PartDesc]) -> Hash {
    descriptors(b"llmcc root 1\0\0\0\0", parts.iter())
}

fn descriptors<'a>(tag: &[u8; 16], parts: impl Iterator<Item = &'a PartDesc> + Clone) -> Hash {
    let mut hash = Sha256::new().chain_update(tag).chain_update((parts.clone().count() as u64).to_le_bytes());
    parts.for_each(|p| hash.update(p.bytes()));
    hash.finalize().into()
}

/// Bytes of the table of hashes: the descriptors, then all leaves. `None` for sizes that no file
/// has.
pub fn table_len(parts: &[PartDesc]) -> Option<u64> {
    let leaves = parts.iter().try_fold(0u64, |n, p| n.checked_add(p.leaves()))?;
    leaves.checked_mul(size_of::<Hash>() as u64)?.checked_add(size_of_val(parts) as u64)
}

/// Whether parts cover the first `artifact` bytes of the artifact and the `side` bytes of the side
/// file, each byte once and in order.
pub fn covers(parts: &[PartDesc], artifact: u64, side: u64) -> bool {
    let mut ends = [0u64; 2];
    let mut before = ARTIFACT;
    for p in parts {
        let Some(end) = ends.get_mut(p.file as usize) else { return false };
        if p.file < before || p.off != *end || p.len == 0 {
            return false;
        }
        let Some(next) = p.off.checked_add(p.len) else { return false };
        (*end, before) = (next, p.file);
    }
    ends == [artifact, side]
}
