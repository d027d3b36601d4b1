//! The header of a file: metadata and tensors.

use super::blocks;
use crate::checkpoint::safetensors::TensorInfo;
use std::collections::BTreeMap;

/// Most entries of metadata, and most tensors. Real files have some thousands.
const MOST_ENTRIES: u64 = 1 << 17;

/// Most dimensions of a tensor, as in the format.
const MAX_RANK: u32 = 4;

/// Alignment of the data where nothing is said.
const ALIGNMENT: u64 = 32;

/// Why a file is not a valid GGUF file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at} of the file: {what}; {help}")]
pub struct GgufError {
    /// Offset in the file.
    pub at: u64,
    /// The fault.
    pub what: String,
    /// The remedy.
    pub help: &'static str,
}

pub(in crate::checkpoint) const AGAIN: &str = "the file is truncated or corrupt: download it again";

const CONVERT: &str = "convert the model again with a current llama.cpp (`convert_hf_to_gguf.py`)";

/// A value of the metadata. Numbers of all widths are one of three.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned number.
    Unsigned(u64),
    /// A negative number.
    Signed(i64),
    /// A float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text.
    Text(String),
    /// Several of one type.
    List(Vec<Value>),
}

impl Value {
    /// A number that is not negative.
    pub fn unsigned(&self) -> Option<u64> {
        if let Value::Unsigned(n) = self { Some(*n) } else { None }
    }

    /// A number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Unsigned(n) => Some(*n as f64),
            Value::Signed(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            Value::Bool(_) | Value::Text(_) | Value::List(_) => None,
        }
    }

    /// A text.
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(s) = self { Some(s) } else { None }
    }

    /// A truth value.
    pub fn flag(&self) -> Option<bool> {
        if let Value::Bool(b) = self { Some(*b) } else { None }
    }

    /// Several values.
    pub fn list(&self) -> Option<&[Value]> {
        if let Value::List(list) = self { Some(list) } else { None }
    }

    /// In JSON, where lists are only counted.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Unsigned(n) => (*n).into(),
            Value::Signed(n) => (*n).into(),
            Value::Float(x) => (*x).into(),
            Value::Bool(b) => (*b).into(),
            Value::Text(s) => s.as_str().into(),
            Value::List(list) => format!("a list of {}", list.len()).into(),
        }
    }
}

/// Metadata by key.
pub type Metadata = BTreeMap<String, Value>;

/// A header.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Metadata.
    pub metadata: Metadata,
    /// Tensors by the names in the file; shapes outermost first, places in the file.
    pub tensors: BTreeMap<String, TensorInfo>,
}

/// Reads the header of a whole file and checks every tensor against the file's length.
///
/// # Errors
/// The fault, and its place.
pub fn parse(file: &[u8]) -> Result<Header, GgufError> {
    let mut r = Reader { file, at: 0 };
    if r.take(4, "the first four bytes")? != b"GGUF" {
        return Err(r.error_at(0, "this is not a GGUF file", "name a GGUF or safetensors file"));
    }
    let version = r.u32("the version")?;
    if !(2..=3).contains(&version) {
        let swapped = (2..=3).contains(&version.swap_bytes());
        let what = match swapped {
            true => "the file is big-endian".to_string(),
            false => format!("version {version} of GGUF is unknown; 2 and 3 are supported"),
        };
        return Err(r.error_at(4, what, CONVERT));
    }
    let tensors = r.count("tensors", 24)?;
    let entries = r.count("entries of metadata", 13)?;
    let mut metadata = Metadata::new();
    for _ in 0..entries {
        let at = r.at;
        let key = r.text("a key")?;
        let value = r.value(&key)?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err(r.error_at(at, format!("key `{key}` appears twice"), CONVERT));
        }
    }
    let raw = (0..tensors).map(|_| Raw::read(&mut r)).collect::<Result<Vec<_>, _>>()?;
    let alignment = alignment(&metadata).map_err(|what| r.error_at(24, what, CONVERT))?;
    let data = (r.at as u64).next_multiple_of(alignment);
    let mut out = BTreeMap::new();
    for raw in raw {
        let info = raw.check(&r, data, alignment)?;
        if out.insert(raw.name.clone(), info).is_some() {
            return Err(r.error_at(raw.at, format!("tensor `{}` appears twice", raw.name), CONVERT));
        }
    }
    check_overlap(&r, &out)?;
    Ok(Header { metadata, tensors: out })
}

/// Whether the architecture with a `model_type` declares a field of `config.json`.
pub(crate) type Declares = fn(model_type: &str, field: &str) -> bool;

fn alignment(metadata: &Metadata) -> Result<u64, String> {
    match metadata.get("general.alignment") {
        None => Ok(ALIGNMENT),
        Some(Value::Unsigned(n)) if n.is_power_of_two() && *n <= 1 << 20 => Ok(*n),
        Some(other) => Err(format!("`general.alignment` is {}; it must be a power of two up to 2^20", other.to_json())),
    }
}

fn check_overlap(r: &Reader<'_>, tensors: &BTreeMap<String, TensorInfo>) -> Result<(), GgufError> {
    let mut order: Vec<_> = tensors.iter().filter(|(_, t)| !t.bytes.is_empty()).collect();
    order.sort_by_key(|(_, t)| (t.bytes.start, t.bytes.end));
    for pair in order.windows(2) {
        let [(first, a), (second, b)] = pair else { continue };
        if b.bytes.start < a.bytes.end {
            return Err(r.error_at(b.bytes.start, format!("tensors `{first}` and `{second}` overlap"), AGAIN));
        }
    }
    Ok(())
}

/// A tensor as written.
struct Raw {
    at: usize,
    name: String,
    /// Columns first.
    dims: Vec<u64>,
    kind: u32,
    offset: u64,
}

impl Raw {
    fn read(r: &mut Reader<'_>) -> Result<Raw, GgufError> {
        let at = r.at;
        let name = r.text("the name of a tensor")?;
        let rank = r.u32("a number of dimensions")?;
        if rank > MAX_RANK {
            return Err(r.error_at(at, format!("tensor `{name}` has {rank} dimensions (at most {MAX_RANK})"), AGAIN));
        }
        let dims = (0..rank).map(|_| r.u64("a dimension")).collect::<Result<_, _>>()?;
        Ok(Raw { at, name, dims, kind: r.u32("the type of a tensor")?, offset: r.u64("the offset of a tensor")? })
    }

    fn check(&self, r: &Reader<'_>, data: u64, alignment: u64) -> Result<TensorInfo, GgufError> {
        let name = &self.name;
        let error = |what: String, help| Err(r.error_at(self.at, what, help));
        let Some(ty) = blocks::by_number(self.kind) else {
            return error(format!("tensor `{name}` is of type {}", blocks::unknown(self.kind)), blocks::OTHER_TYPE);
        };
        let Some(bytes) = self.bytes(ty) else {
            return error(
                format!(
                    "tensor `{name}`: {} {:?} is not a whole number of blocks, or too large for a file",
                    ty.name, self.dims
                ),
                AGAIN,
            );
        };
        if !self.offset.is_multiple_of(alignment) {
            return error(
                format!("tensor `{name}` starts at {}, which is not a multiple of {alignment}", self.offset),
                CONVERT,
            );
        }
        let begin = data.checked_add(self.offset);
        let end = begin.and_then(|begin| begin.checked_add(bytes)).filter(|end| *end <= r.file.len() as u64);
        let (Some(begin), Some(end)) = (begin, end) else {
            return error(
                format!("tensor `{name}` of {bytes} bytes ends beyond the file, which has {}", r.file.len()),
                AGAIN,
            );
        };
        // All of it lies in the file, so that it fits `usize`; dimensions do too unless one is 0.
        let shape: Option<Vec<usize>> = self.dims.iter().rev().map(|d| usize::try_from(*d).ok()).collect();
        let Some(shape) = shape else { return error(format!("tensor `{name}` is too large"), AGAIN) };
        Ok(TensorInfo { dtype: &ty.stored, shape, bytes: begin as usize..end as usize })
    }

    /// Bytes of the whole tensor; `None` unless rows are whole blocks.
    fn bytes(&self, ty: &blocks::BlockType) -> Option<u64> {
        let columns = self.dims.first().copied().unwrap_or(1);
        if !columns.is_multiple_of(ty.columns as u64) || self.dims.iter().any(|d| *d > isize::MAX as u64) {
            return None;
        }
        let rows = self.dims.iter().skip(1).try_fold(1u64, |n, d| n.checked_mul(*d))?;
        (columns / ty.columns as u64).checked_mul(ty.bytes as u64)?.checked_mul(rows)
    }
}

/// Where reading stands.
struct Reader<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn error_at(&self, at: usize, what: impl Into<String>, help: &'static str) -> GgufError {
        GgufError { at: at as u64, what: what.into(), help }
    }

    fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8], GgufError> {
        let rest = self.file.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..n) else {
            let what = format!("the file ends after {} bytes, within {what}", self.file.len());
            return Err(self.error_at(self.at, what, AGAIN));
        };
        self.at += n;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A number of things that take `least` bytes each.
    fn count(&mut self, what: &str, least: u64) -> Result<u64, GgufError> {
        let at = self.at;
        let n = self.u64(what)?;
        let left = (self.file.len() - self.at) as u64;
        if n > MOST_ENTRIES || n.saturating_mul(least) > left {
            return Err(self.error_at(at, format!("the file claims {n} {what}, with {left} bytes left"), AGAIN));
        }
        Ok(n)
    }

    fn text(&mut self, what: &str) -> Result<String, GgufError> {
        let at = self.at;
        let len = self.u64(what)?;
        let left = (self.file.len() - self.at) as u64;
        if len > left {
            let what = format!("{what} claims {len} bytes, but only {left} follow");
            return Err(self.error_at(at, what, AGAIN));
        }
        let bytes = self.take(len as usize, what)?;
        // Vocabularies of some files have pieces that are no text; they stand for nothing else.
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    fn value(&mut self, key: &str) -> Result<Value, GgufError> {
        let kind = self.u32("the type of a value")?;
        if kind != LIST {
            return self.scalar(kind, key);
        }
        let at = self.at;
        let kind = self.u32("the type of a list")?;
        let least = match kind {
            LIST => return Err(self.error_at(at, format!("`{key}` is a list of lists"), CONVERT)),
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            _ => 8,
        };
        let (at, n) = (self.at, self.u64("the length of a list")?);
        let left = (self.file.len() - self.at) as u64;
        if n.saturating_mul(least) > left {
            return Err(self.error_at(at, format!("`{key}` claims {n} elements, with {left} bytes left"), AGAIN));
        }
        (0..n).map(|_| self.scalar(kind, key)).collect::<Result<_, _>>().map(Value::List)
    }

    fn scalar(&mut self, kind: u32, key: &str) -> Result<Value, GgufError> {
        let what = "a value";
        let signed = |n: i64| u64::try_from(n).map_or(Value::Signed(n), Value::Unsigned);
        Ok(match kind {
            0 => Value::Unsigned(u8::from_le_bytes(self.array(what)?).into()),
            1 => signed(i8::from_le_bytes(self.array(what)?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.array(what)?).into()),
            3 => signed(i16::from_le_bytes(self.array(what)?).into()),
            4 => Value::Unsigned(self.u32(what)?.into()),
            5 => signed(i32::from_le_bytes(self.array(what)?).into()),
            6 => Value::Float(f32::from_le_bytes(self.array(what)?).into()),
            7 => Value::Bool(self.array::<1>(what)? != [0]),
            8 => Value::Text(self.text("a text")?),
            10 => Value::Unsigned(self.u64(what)?),
            11 => signed(i64::from_le_bytes(self.array(what)?)),
            12 => Value::Float(f64::from_le_bytes(self.array(what)?)),
            _ => return Err(self.error_at(self.at, format!("`{key}` has the unknown type {kind}"), AGAIN)),
        })
    }
}

/// The number of lists among types of values.
const LIST: u32 = 9;
