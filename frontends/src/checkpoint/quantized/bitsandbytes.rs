//! bitsandbytes. 4 bits (QLoRA, arXiv 2305.14314): NF4 or FP4 codes of a flattened matrix, two in a
//! byte, the first in its high bits; a magnitude for each block of codes, which may itself be a code
//! of 8 bits ("double quantization"). 8 bits: LLM.int8().

use super::bytes::{self, ByteKind};
use super::{COMPUTED, Part, Tensors, UNQUANTIZED, Wrong, coded};
use crate::checkpoint::safetensors::{StoredType, TensorInfo};
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use llmcc_ir::quant::{CodedRow, Elem, Format};
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::Arc;

/// Columns of a group of both formats.
const GROUP: usize = 64;

/// As bitsandbytes multiplies, in f32.
const ONE_OF_127: f32 = 7.874_016e-3;

static NF4: StoredType = coded("NF4", Format::new(Elem::named("nf4"), GROUP as u16), 4);
static FP4: StoredType = coded("FP4", Format::new(Elem::named("fp4"), GROUP as u16), 4);

pub(super) fn replace(_: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    for (ending, ty) in [(".quant_state.bitsandbytes__nf4", &NF4), (".quant_state.bitsandbytes__fp4", &FP4)] {
        for name in tensors.stems(ending) {
            let entry = matrix(tensors, &name, ending, ty)?;
            tensors.index.insert(name, entry);
        }
    }
    int8(tensors)
}

/// LLM.int8() (arXiv 2208.07339): integers in units of a 127th of each row's largest magnitude.
fn int8(tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let stems = tensors.stems(".SCB");
    for stem in &stems {
        let format = format!("{stem}.weight_format");
        if tensors.index.contains_key(&format) {
            let row = tensors.take(&format, &["U8"], &[])?;
            if row.bytes(tensors.shards) != [0] {
                return Err((format!("tensor `{format}` says that rows are not in order"), UNQUANTIZED));
            }
        }
        bytes::scaled(tensors, stem, "SCB", (ByteKind::Int8, None), ONE_OF_127)?;
    }
    if !stems.is_empty() {
        tensors.notes.push(
            "LLM.int8() multiplies columns whose input exceeds a threshold in 16 bits; here all columns are \
                multiplied alike: activations of 8 bits (--act int8) have a scale per group of columns instead"
                .into(),
        );
    }
    Ok(())
}

/// The numbers of `quant_state`.
struct State {
    shape: [usize; 2],
    block: usize,
    /// Block and offset of magnitudes that are codes.
    nested: Option<(usize, f32)>,
}

fn state(name: &str, json: &[u8]) -> Result<State, Wrong> {
    let wrong = |what: &str| (format!("the `quant_state` of tensor `{name}` {what}"), UNQUANTIZED);
    let json: Value = serde_json::from_slice(json).map_err(|e| wrong(&format!("is not JSON: {e}")))?;
    let size = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    let shape: Option<Vec<usize>> = json["shape"].as_array().and_then(|s| s.iter().map(size).collect());
    let [n, k] = shape.as_deref().unwrap_or_default() else {
        return Err(wrong("does not have a shape of two sizes"));
    };
    // Only powers of two are written: of others as many blocks may be there.
    let power = |v: &Value| size(v).filter(|n| n.is_power_of_two());
    let block = power(&json["blocksize"]).ok_or_else(|| wrong("has a blocksize that is not a power of two"))?;
    let nested = match &json["nested_blocksize"] {
        Value::Null => None,
        given => Some(power(given).ok_or_else(|| wrong("has a nested_blocksize that is not a power of two"))?),
    };
    let nested = match nested {
        None => None,
        Some(of) => {
            let offset = json["nested_offset"].as_f64().ok_or_else(|| wrong("has no nested_offset"))?;
            Some((of, offset as f32))
        }
    };
    Ok(State { shape: [*n, *k], block, nested })
}

fn matrix(tensors: &mut Tensors<'_>, name: &str, ending: &str, ty: &'static StoredType) -> Result<Entry, Wrong> {
    let json = tensors.index.get(&format!("{name}{ending}")).map_or(0, |e| e.info.bytes.len());
    let json = tensors.take(&format!("{name}{ending}"), &["U8"], &[json])?;
    let State { shape, block, nested } = state(name, json.bytes(tensors.shards))?;
    let too_large = || (format!("tensor `{name}` of {shape:?} is too large"), UNQUANTIZED);
    let elements = shape[0].checked_mul(shape[1]).ok_or_else(too_large)?;
    // Whatever type the bytes were stored as (`bnb_4bit_quant_storage`).
    let codes = tensors.take_any(name)?;
    if codes.to - codes.from != elements.div_ceil(2) {
        let what = format!("tensor `{name}` has {} bytes, which do not fit codes of {shape:?}", codes.to - codes.from);
        return Err((what, UNQUANTIZED));
    }
    let (map, table) = (tensors.take(&format!("{name}.quant_map"), &["F32"], &[16])?, ty.dtype.and_then(|t| t.coded()));
    let known = table.map(|f| f.encoding());
    if known.is_none_or(|e| (0..16u8).any(|u| map.float(tensors.shards, u.into()) != e.number(u))) {
        return Err((format!("tensor `{name}.quant_map` is not the table of {}", ty.name), UNQUANTIZED));
    }
    let blocks = elements.div_ceil(block);
    let scales = match nested {
        None => Scales::Plain(tensors.take(&format!("{name}.absmax"), &["F32"], &[blocks])?),
        Some((of, offset)) => Scales::Nested {
            codes: tensors.take(&format!("{name}.absmax"), &["U8"], &[blocks])?,
            map: tensors.take(&format!("{name}.nested_quant_map"), &["F32"], &[256])?,
            above: tensors.take(&format!("{name}.nested_absmax"), &["F32"], &[blocks.div_ceil(of)])?,
            of,
            offset,
        },
    };
    let whole = block.is_multiple_of(GROUP) && shape[1].is_multiple_of(block);
    let info =
        TensorInfo { dtype: if whole { ty } else { &COMPUTED }, shape: shape.to_vec(), bytes: codes.from..codes.to };
    let layout = Nibbles { codes, map, scales, columns: shape[1], block };
    Ok(Entry { layout: Some(Arc::new(layout)), ..Entry::plain(codes.shard, info) })
}

#[derive(Debug)]
enum Scales {
    Plain(Part),
    /// `map[code]·above + offset`, in f32.
    Nested {
        codes: Part,
        map: Part,
        above: Part,
        of: usize,
        offset: f32,
    },
}

impl Scales {
    fn get(&self, shards: &[Shard], block: usize) -> f32 {
        match self {
            Scales::Plain(part) => part.float(shards, block),
            Scales::Nested { codes, map, above, of, offset } => {
                let code = codes.bytes(shards).get(block).copied().unwrap_or(0);
                map.float(shards, code.into()) * above.float(shards, block / of) + offset
            }
        }
    }
}

#[derive(Debug)]
struct Nibbles {
    codes: Part,
    /// The numbers of codes.
    map: Part,
    scales: Scales,
    columns: usize,
    /// Elements that share a scale.
    block: usize,
}

impl Layout for Nibbles {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.codes.place()]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let first = row * self.columns;
        let bytes = self.codes.bytes(shards).get(first / 2..).unwrap_or_default();
        let pairs = bytes.iter().flat_map(|u| [u >> 4, u & 15]);
        out.codes.iter_mut().zip(pairs).for_each(|(c, u)| *c = u);
        for (g, f) in out.factors.iter_mut().enumerate() {
            *f = (self.scales.get(shards, (first + g * GROUP) / self.block), 0.0);
        }
    }

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        let bytes = self.codes.bytes(shards);
        for (at, v) in (row * self.columns..).zip(out) {
            let byte = bytes.get(at / 2).copied().unwrap_or(0);
            let code = if at.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
            *v = self.map.float(shards, code.into()) * self.scales.get(shards, at / self.block);
        }
    }
}
