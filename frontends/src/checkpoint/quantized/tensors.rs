//! Tensors of a quantized checkpoint: their parts, and what becomes of them.

use crate::checkpoint::safetensors::{StoredType, TensorInfo};
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::Entry;
use llmcc_ir::quant::{Elem, Format, e4m3_to_f32, e8m0_to_f32, round_f16};
use llmcc_ir::ty::DType;
use std::collections::BTreeMap;
use std::ops::Range;

/// The fault, and the remedy.
pub(in crate::checkpoint) type Wrong = (String, &'static str);

pub(in crate::checkpoint) const UNQUANTIZED: &str = "use the unquantized checkpoint and compile with --w8 or --w4";

/// The tensors of a checkpoint, being replaced.
pub(in crate::checkpoint) struct Tensors<'a> {
    /// By name.
    pub index: &'a mut BTreeMap<String, Entry>,
    /// Files.
    pub shards: &'a [Shard],
    /// Notes for the user.
    pub notes: &'a mut Vec<String>,
}

impl Tensors<'_> {
    /// The names before `ending` of all tensors that end so.
    pub(super) fn stems(&self, ending: &str) -> Vec<String> {
        self.index.keys().filter_map(|name| name.strip_suffix(ending)).map(String::from).collect()
    }

    /// Takes a tensor of this type and shape away.
    pub(super) fn take(&mut self, name: &str, types: &[&str], shape: &[usize]) -> Result<Part, Wrong> {
        let entry = self.index.remove(name).ok_or_else(|| (format!("tensor `{name}` is missing"), UNQUANTIZED))?;
        if entry.layout.is_some() {
            return Err((format!("tensor `{name}` is not contiguous in the file"), UNQUANTIZED));
        }
        let TensorInfo { dtype, shape: found, bytes } = &entry.info;
        if !types.contains(&dtype.name) || found != shape {
            let wanted = types.join(" or ");
            let what = format!("tensor `{name}` is {} {found:?}, where {wanted} {shape:?} is needed", dtype.name);
            return Err((what, UNQUANTIZED));
        }
        Ok(Part { shard: entry.shard, from: bytes.start, to: bytes.end, dtype: dtype.name })
    }

    /// Takes a tensor of any type and shape away.
    pub(super) fn take_any(&mut self, name: &str) -> Result<Part, Wrong> {
        let info = self.index.get(name).map(|e| (e.info.dtype.name, e.info.shape.clone()));
        let (dtype, shape) = info.ok_or_else(|| (format!("tensor `{name}` is missing"), UNQUANTIZED))?;
        self.take(name, &[dtype], &shape)
    }

    /// The shape of a tensor of two dimensions.
    pub(super) fn matrix(&self, name: &str) -> Result<[usize; 2], Wrong> {
        match self.index.get(name).map(|e| &e.info.shape[..]) {
            Some([n, k]) => Ok([*n, *k]),
            Some(shape) => Err((format!("tensor `{name}` has shape {shape:?}; it must be a matrix"), UNQUANTIZED)),
            None => Err((format!("tensor `{name}` is missing"), UNQUANTIZED)),
        }
    }
}

/// A tensor that is part of a matrix.
#[derive(Clone, Copy, Debug)]
pub(in crate::checkpoint) struct Part {
    pub(super) shard: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) dtype: &'static str,
}

impl Part {
    pub(super) fn bytes<'a>(&self, shards: &'a [Shard]) -> &'a [u8] {
        shards.get(self.shard).and_then(|s| s.map.get(self.from..self.to)).unwrap_or_default()
    }

    /// Where it is.
    pub(super) fn place(&self) -> (usize, Range<usize>) {
        (self.shard, self.from..self.to)
    }

    /// Element `i` as a float; its type is one of F32, F16, BF16, F8_E4M3 and F8_E8M0, or U8 for this.
    /// Places are checked when the tensor is taken.
    pub(super) fn float(&self, shards: &[Shard], i: usize) -> f32 {
        float_of(self.dtype, self.bytes(shards), i)
    }

    /// The first element as a float, read by itself: models of many matrices have as many such numbers, far
    /// from each other in their files.
    pub(super) fn single(&self, shards: &[Shard]) -> f32 {
        float_of(self.dtype, &self.few::<4>(shards), 0)
    }

    /// The first bytes, read by themselves; zeros where there are none.
    fn few<const N: usize>(&self, shards: &[Shard]) -> [u8; N] {
        let mut out = [0; N];
        let len = N.min(self.to.saturating_sub(self.from));
        if let (Some(shard), Some(out)) = (shards.get(self.shard), out.get_mut(..len)) {
            shard.read(self.from, out);
        }
        out
    }

    /// Whether f16 holds the first `count` elements, or they are no numbers.
    pub(super) fn fits_f16(&self, shards: &[Shard], count: usize) -> bool {
        if self.dtype == "F16" || self.dtype == "F8_E4M3" || shards.get(self.shard).is_some_and(|s| s.blank) {
            return true;
        }
        if count == 1 {
            return is_f16(self.single(shards));
        }
        let bytes = self.bytes(shards);
        let all = |of: Range<usize>| of.into_iter().all(|i| is_f16(float_of(self.dtype, bytes, i)));
        let size = match self.dtype {
            "F32" => 4,
            "BF16" => 2,
            _ => return all(0..count),
        };
        let blocks = count.div_ceil(CHECKED);
        (0..blocks).all(|block| {
            let of = block * CHECKED..count.min((block + 1) * CHECKED);
            let own = bytes.get(of.start * size..of.end * size).unwrap_or_default();
            let plain = match size {
                4 => own.as_chunks::<4>().0.iter().fold(true, |all, b| all & plain_f32(u32::from_le_bytes(*b))),
                _ => own.as_chunks::<2>().0.iter().fold(true, |all, b| {
                    // The upper half of an f32.
                    all & plain_f32(u32::from(u16::from_le_bytes(*b)) << 16)
                }),
            };
            plain && own.len() == of.len() * size || all(of)
        })
    }

    /// Element `i`, one of the first two, of integers of 32 or 64 bits as a size; 0 where it is none.
    pub(super) fn size(&self, shards: &[Shard], i: usize) -> usize {
        integer_of(self.dtype, &self.few::<16>(shards), i)
    }

    /// Element `i` of integers of 32 or 64 bits as a size; 0 where it is none.
    pub(super) fn integer(&self, shards: &[Shard], i: usize) -> usize {
        integer_of(self.dtype, self.bytes(shards), i)
    }

    /// Element `i` of 32-bit numbers.
    pub(super) fn word(&self, shards: &[Shard], i: usize) -> u32 {
        word_of(self.bytes(shards), i)
    }
}

/// Elements that are checked without a branch for each.
const CHECKED: usize = 4096;

/// Whether a number, by its bits, is 0 or one that f16 holds and is no subnormal there. Others may be, too.
fn plain_f32(bits: u32) -> bool {
    let exponent = bits >> 23 & 255;
    (113..=142).contains(&exponent) & (bits & 0x1fff == 0) | (bits << 1 == 0)
}

/// Whether f16 holds a number, or it is none.
pub(super) fn is_f16(x: f32) -> bool {
    round_f16(x) == x || !x.is_finite()
}

/// Element `i` of a type of [`Part::float`].
fn float_of(dtype: &str, bytes: &[u8], i: usize) -> f32 {
    let two = || bytes.get(2 * i..2 * i + 2).map_or([0; 2], |b| [b[0], b[1]]);
    match dtype {
        "F16" => half::f16::from_le_bytes(two()).to_f32(),
        "BF16" => half::bf16::from_le_bytes(two()).to_f32(),
        "F8_E4M3" => bytes.get(i).map_or(0.0, |u| e4m3_to_f32(*u)),
        "F8_E8M0" | "U8" => bytes.get(i).map_or(0.0, |u| e8m0_to_f32(*u)),
        _ => f32::from_bits(word_of(bytes, i)),
    }
}

/// Element `i` of integers of 32 or 64 bits as a size; 0 where it is none.
fn integer_of(dtype: &str, bytes: &[u8], i: usize) -> usize {
    let eight = || bytes.get(8 * i..8 * i + 8)?.try_into().ok();
    let number = match dtype {
        "I64" => i64::from_le_bytes(eight().unwrap_or_default()),
        _ => i64::from(word_of(bytes, i) as i32),
    };
    usize::try_from(number).unwrap_or(0)
}

/// Element `i` of 32-bit numbers.
fn word_of(bytes: &[u8], i: usize) -> u32 {
    bytes.get(4 * i..4 * i + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// A matrix as codes: how readers describe it.
pub(super) const fn coded(name: &'static str, format: Format, bits: u64) -> StoredType {
    StoredType { name, bits, dtype: Some(DType::Coded(format)) }
}

macro_rules! groups {
    ($($name:literal $elem:expr, $bits:literal;)*) => {
        &[$(
            coded($name, Format::new($elem, 32), $bits),
            coded($name, Format::new($elem, 64), $bits),
            coded($name, Format::new($elem, 128), $bits),
        )*]
    };
}

/// Formats with groups that matrices may become.
pub(super) static GROUPED: &[StoredType] = groups! {
    "4-bit integers" Elem::W4, 4;
    "8-bit integers" Elem::W8, 8;
    "4-bit integers with minima" Elem::W4A, 4;
    "4-bit integers from zeros" Elem::named("w4z"), 4;
    "8-bit integers from zeros" Elem::named("w8z"), 8;
    "2-bit integers from zeros" Elem::named("w2z"), 2;
    "3-bit integers from zeros" Elem::named("w3z"), 3;
};

/// The description of a format with groups.
pub(super) fn grouped_type(elem: Elem, group: usize) -> Option<&'static StoredType> {
    GROUPED.iter().find(|t| t.dtype == Some(DType::Coded(Format::new(elem, group as u16))))
}

/// Columns of a group as int8 codes of such groups are stored in, and how readers describe that; `half`:
/// f16 holds all scales. `None` where no format has these groups.
pub(in crate::checkpoint) fn groups_of_int8(group: usize, half: bool) -> Option<(&'static StoredType, usize)> {
    let unit = unit(group)?;
    Some((grouped_type(if half { Elem::W8 } else { Elem::named("w8z") }, unit)?, unit))
}

/// A matrix of floats that are computed from the file.
pub(in crate::checkpoint) static COMPUTED: StoredType =
    StoredType { name: "computed F32", bits: 32, dtype: Some(DType::F32) };

/// The largest group of a format that divides the checkpoint's.
pub(super) fn unit(group: usize) -> Option<usize> {
    [128, 64, 32].into_iter().find(|unit| group.is_multiple_of(*unit))
}
