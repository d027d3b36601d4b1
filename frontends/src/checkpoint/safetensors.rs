//! The header of a safetensors file, read without trusting it.
//!
//! Format: `u64` little-endian length `N`, `N` bytes of JSON, tensor data. The JSON maps each
//! tensor to its element type, shape and byte range in the data; ranges must cover the data exactly
//! (no holes, no overlaps). See <https://github.com/huggingface/safetensors#format>.

use llmcc_ir::ty::DType;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Longest header accepted, as in the reference implementation.
pub const MAX_HEADER: u64 = 100_000_000;
/// Most dimensions of a tensor. Real ones have at most 5.
pub(super) const MAX_RANK: usize = 16;

/// An element type of the format.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredType {
    /// Name in the file.
    pub name: &'static str,
    /// Bits of one element.
    pub bits: u64,
    /// The IR's type, where it has one.
    pub dtype: Option<DType>,
}

impl StoredType {
    /// Whether elements are codes of a storage format.
    pub fn is_coded(&self) -> bool {
        self.dtype.is_some_and(|t| t.coded().is_some())
    }
}

/// Every element type of the format.
static TYPES: &[StoredType] = &[
    StoredType { name: "F64", bits: 64, dtype: Some(DType::F64) },
    StoredType { name: "F32", bits: 32, dtype: Some(DType::F32) },
    StoredType { name: "F16", bits: 16, dtype: Some(DType::F16) },
    StoredType { name: "BF16", bits: 16, dtype: Some(DType::Bf16) },
    StoredType { name: "I64", bits: 64, dtype: Some(DType::I64) },
    StoredType { name: "I32", bits: 32, dtype: Some(DType::I32) },
    StoredType { name: "I8", bits: 8, dtype: Some(DType::I8) },
    StoredType { name: "U8", bits: 8, dtype: Some(DType::U8) },
    StoredType { name: "U64", bits: 64, dtype: None },
    StoredType { name: "U32", bits: 32, dtype: None },
    StoredType { name: "U16", bits: 16, dtype: None },
    StoredType { name: "I16", bits: 16, dtype: None },
    StoredType { name: "BOOL", bits: 8, dtype: None },
    StoredType { name: "C64", bits: 64, dtype: None },
    StoredType { name: "F8_E4M3", bits: 8, dtype: None },
    StoredType { name: "F8_E5M2", bits: 8, dtype: None },
    StoredType { name: "F8_E4M3FNUZ", bits: 8, dtype: None },
    StoredType { name: "F8_E5M2FNUZ", bits: 8, dtype: None },
    StoredType { name: "F8_E8M0", bits: 8, dtype: None },
    StoredType { name: "F6_E2M3", bits: 6, dtype: None },
    StoredType { name: "F6_E3M2", bits: 6, dtype: None },
    StoredType { name: "F4", bits: 4, dtype: None },
];

/// The element type of a name.
pub(crate) fn stored_type(name: &str) -> Option<&'static StoredType> {
    TYPES.iter().find(|t| t.name == name)
}

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Element type.
    pub dtype: &'static StoredType,
    /// Dimensions, outermost first; `[]` is a scalar.
    pub shape: Vec<usize>,
    /// Bytes in the file.
    pub bytes: Range<usize>,
}

/// Why a file is not a valid safetensors file. Offsets count from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer than 8 bytes.
    #[error("the file has {len} bytes, too few for a safetensors header; it is empty or truncated: download it again")]
    TooShort {
        /// Bytes of the file.
        len: u64,
    },
    /// A header length beyond [`MAX_HEADER`].
    #[error(
        "its first 8 bytes give a header longer than the allowed {MAX_HEADER} bytes; this is not a safetensors \
            file, or it is corrupt"
    )]
    TooLarge {
        /// Claimed length.
        len: u64,
    },
    /// The header runs past the end of the file.
    #[error("the header claims {header} bytes, but only {left} follow; the file is truncated: download it again")]
    Truncated {
        /// Claimed length.
        header: u64,
        /// Bytes after the length field.
        left: u64,
    },
    /// The header is not UTF-8.
    #[error("byte {at} of the file, in the header, is not UTF-8; this is not a safetensors file, or it is corrupt")]
    NotUtf8 {
        /// Offset.
        at: u64,
    },
    /// The header is not JSON of the right form.
    #[error("the header is not valid: {detail}; this is not a safetensors file, or it is corrupt")]
    NotJson {
        /// Parser's words.
        detail: String,
    },
    /// Two tensors of one name.
    #[error("tensor `{name}` appears twice in the header; write the file again")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// An element type outside the format.
    #[error("tensor `{name}` has unknown element type `{dtype}`; write it as F32, F16 or BF16")]
    UnknownType {
        /// The tensor.
        name: String,
        /// As written.
        dtype: String,
    },
    /// A shape with absurdly many dimensions.
    #[error("tensor `{name}` has {rank} dimensions (at most {MAX_RANK} are supported); the file is corrupt")]
    Rank {
        /// The tensor.
        name: String,
        /// Dimensions.
        rank: usize,
    },
    /// Shape times element size overflows, or is not a whole number of bytes.
    #[error("tensor `{name}`: {dtype} {shape:?} is too large or not a whole number of bytes; the file is corrupt")]
    Overflow {
        /// The tensor.
        name: String,
        /// Element type.
        dtype: &'static str,
        /// Shape.
        shape: Vec<u64>,
    },
    /// The byte range does not have the size of the tensor.
    #[error(
        "tensor `{name}`: {dtype} {shape:?} takes {expected} bytes, but its range {begin}..{end} has another length; the file is corrupt"
    )]
    Size {
        /// The tensor.
        name: String,
        /// Element type.
        dtype: &'static str,
        /// Shape.
        shape: Vec<u64>,
        /// Bytes by shape and type.
        expected: u64,
        /// Range in the data section.
        begin: u64,
        /// Range in the data section.
        end: u64,
    },
    /// A range that ends after the file.
    #[error(
        "tensor `{name}` ends at byte {end} of the file, which has only {len}; the file is truncated: download it again"
    )]
    OutOfRange {
        /// The tensor.
        name: String,
        /// Offset of its end.
        end: u64,
        /// Bytes of the file.
        len: u64,
    },
    /// Two tensors share bytes.
    #[error("tensors `{first}` and `{second}` overlap at byte {at} of the file; the file is corrupt")]
    Overlap {
        /// The tensor that starts first.
        first: String,
        /// The other.
        second: String,
        /// Offset of the first shared byte.
        at: u64,
    },
    /// Bytes that belong to no tensor.
    #[error("bytes {begin}..{end} of the file belong to no tensor; the file is corrupt")]
    Hole {
        /// Offset.
        begin: u64,
        /// Offset.
        end: u64,
    },
}

/// Reads the header of a whole file and checks every tensor against the file's length.
///
/// # Errors
/// See [`HeaderError`].
pub fn parse(file: &[u8]) -> Result<BTreeMap<String, TensorInfo>, HeaderError> {
    let len = file.len() as u64;
    let (prefix, rest) = file.split_first_chunk::<8>().ok_or(HeaderError::TooShort { len })?;
    let header = u64::from_le_bytes(*prefix);
    if header > MAX_HEADER {
        return Err(HeaderError::TooLarge { len: header });
    }
    let left = rest.len() as u64;
    let json = rest.get(..header as usize).ok_or(HeaderError::Truncated { header, left })?;
    let json = std::str::from_utf8(json).map_err(|e| HeaderError::NotUtf8 { at: 8 + e.valid_up_to() as u64 })?;
    let entries: Entries =
        serde_json::from_str(json).map_err(|e| HeaderError::NotJson { detail: without_values(&e.to_string()) })?;
    let mut tensors = BTreeMap::new();
    for (name, raw) in entries.0 {
        let info = check(&name, &raw, 8 + header, len)?;
        if tensors.contains_key(&name) {
            return Err(HeaderError::Duplicate { name });
        }
        tensors.insert(name, info);
    }
    check_cover(&tensors, 8 + header, len)?;
    Ok(tensors)
}

/// A parser's message without the value that it quotes: the file may be a link to any other.
fn without_values(message: &str) -> String {
    let quoted = ["invalid type: ", "invalid value: "].iter().find_map(|kind| Some(message.find(kind)? + kind.len()));
    match quoted.zip(message.rfind(", expected")).filter(|(from, to)| from <= to) {
        Some((from, to)) => {
            let kind = message[from..to].split([' ', '`']).next().unwrap_or_default();
            format!("{}{kind}{}", &message[..from], &message[to..])
        }
        None => message.to_string(),
    }
}

/// Type, shape and range of one tensor; `data` is the offset of the data section.
fn check(name: &str, raw: &RawInfo, data: u64, len: u64) -> Result<TensorInfo, HeaderError> {
    let name = name.to_string();
    let Some(dtype) = stored_type(&raw.dtype) else {
        return Err(HeaderError::UnknownType { name, dtype: raw.dtype.clone() });
    };
    if raw.shape.len() > MAX_RANK {
        return Err(HeaderError::Rank { name, rank: raw.shape.len() });
    }
    let [begin, end] = raw.data_offsets;
    let Some(expected) = byte_size(dtype, &raw.shape) else {
        return Err(HeaderError::Overflow { name, dtype: dtype.name, shape: raw.shape.clone() });
    };
    if end.checked_sub(begin) != Some(expected) {
        let shape = raw.shape.clone();
        return Err(HeaderError::Size { name, dtype: dtype.name, shape, expected, begin, end });
    }
    let file_end = data.saturating_add(end);
    if file_end > len {
        return Err(HeaderError::OutOfRange { name, end: file_end, len });
    }
    // The range lies in the file and the size in its range, so every number from here on fits
    // `usize`.
    let shape = raw.shape.iter().map(|d| *d as usize).collect();
    Ok(TensorInfo { dtype, shape, bytes: (data + begin) as usize..(data + end) as usize })
}

/// Bytes of a tensor; `None` when not a representable whole number. A zero dimension does not
/// excuse absurd ones beside it.
fn byte_size(dtype: &StoredType, shape: &[u64]) -> Option<u64> {
    let elements = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d))?;
    let bits = elements.checked_mul(dtype.bits)?;
    let fits = shape.iter().all(|d| *d <= isize::MAX as u64);
    (bits.is_multiple_of(8) && fits).then_some(bits / 8)
}

/// The tensors must cover the data section exactly.
fn check_cover(tensors: &BTreeMap<String, TensorInfo>, data: u64, len: u64) -> Result<(), HeaderError> {
    let mut order: Vec<_> = tensors.iter().collect();
    order.sort_by_key(|(_, t)| (t.bytes.start, t.bytes.end));
    let mut covered = data;
    let mut before = "";
    for (name, t) in order {
        let (begin, end) = (t.bytes.start as u64, t.bytes.end as u64);
        if begin < covered {
            return Err(HeaderError::Overlap { first: before.into(), second: name.clone(), at: begin });
        }
        if begin > covered {
            return Err(HeaderError::Hole { begin: covered, end: begin });
        }
        covered = end;
        before = name;
    }
    if covered == len { Ok(()) } else { Err(HeaderError::Hole { begin: covered, end: len }) }
}

/// A tensor as written.
#[derive(serde::Deserialize)]
struct RawInfo {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// All tensors in file order, duplicates included (a map would hide them).
struct Entries(Vec<(String, RawInfo)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Entries, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = vec![];
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let info = map.next_value().map_err(|e| A::Error::custom(format!("tensor `{name}`: {e}")))?;
                    entries.push((name, info));
                }
                Ok(Entries(entries))
            }
        }
        d.deserialize_map(V)
    }
}
