//! compressed-tensors (of vLLM): `weight_packed` are integers in words or FP4, `weight` with a
//! `weight_scale` beside it int8 or FP8. The kind of a matrix follows from its tensors; the
//! settings give the possible numbers of bits and sizes of blocks, and the rounding of products'
//! inputs.

use super::bytes::{self, ByteKind};
use super::nvfp4::fp4;
use super::required::missing;
use super::schemes::Schemes;
use super::words::{Sizes, WordOrder, Words, grouped};
use super::{Tensors, UNQUANTIZED, Wrong, activations, microscaling, sparse};
use crate::checkpoint::stored::Entry;
use llmcc_ir::graph::UnaryOp;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Formats that are read.
const FORMATS: &[&str] = &[
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp6-pack-quantized",
    "mxfp8-quantized",
    "mixed-precision",
    "dense",
];

/// Forms of sparse matrices that are read.
const SPARSE: &[&str] = &["dense", "sparse-24-bitmask", "sparse-bitmask"];

pub(super) fn replace(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let format = settings.get("format").and_then(Value::as_str).unwrap_or("dense");
    if !FORMATS.contains(&format) {
        return Err((format!("`format` is `{format}`; supported are {}", FORMATS.join(", ")), UNQUANTIZED));
    }
    let sparse = settings.get("sparsity_config").and_then(|s| s.get("format")?.as_str());
    if let Some(other) = sparse.filter(|s| !SPARSE.contains(s)) {
        let what = format!("its matrices are sparse (`{other}`); supported are {}", SPARSE.join(", "));
        return Err((what, UNQUANTIZED));
    }
    if let Some(place) = settings.get("transform_config").and_then(transformed) {
        let what = format!(
            "`transform_config` has a transform at `{place}`, which would be computed in every \
            step and is not supported"
        );
        return Err((what, UNQUANTIZED));
    }
    let sparse = tensors.stems(".bitmask").len();
    let none = Map::new();
    let groups = settings.get("config_groups").and_then(Value::as_object).unwrap_or(&none);
    let weights = || groups.values().filter_map(|g| g.get("weights"));
    let bits: BTreeSet<u64> = weights().filter_map(|w| w.get("num_bits")?.as_u64()).collect();
    let mut block = None;
    for w in weights() {
        block = block.or(bytes::block_size(w.get("block_structure"))?);
    }
    let schemes = Schemes::of(groups)?;
    let stems: BTreeSet<String> = [".weight_packed", ".weight_scale"].iter().flat_map(|e| tensors.stems(e)).collect();
    stems.iter().try_for_each(|stem| schemes.check(tensors, stem))?;
    stored(tensors, &bits, block)?;
    sparse::floats(tensors)?;
    if sparse > 0 {
        tensors
            .notes
            .push(format!("{sparse} matrices are sparse: they are filled with zeros and computed like others"));
    }
    activations::fixed(tensors, declared(groups))?;
    let inputs: BTreeSet<String> = groups.values().filter_map(|g| dynamic(g.get("input_activations")?)).collect();
    for input in inputs {
        tensors
            .notes
            .push(format!("products were quantized for {input}; here --act decides the rounding of activations"));
    }
    Ok(())
}

/// Every matrix, packed or with a `weight_scale` beside it: of integers of so many bits, in such blocks.
pub(super) fn stored(tensors: &mut Tensors<'_>, bits: &BTreeSet<u64>, block: Option<[usize; 2]>) -> Result<(), Wrong> {
    packed(tensors, bits)?;
    for stem in tensors.stems(".weight_scale") {
        let stored = ["weight", "compressed"].iter().find_map(|e| tensors.index.get(&format!("{stem}.{e}")));
        let stored = stored.map(|e| e.info.dtype.name);
        let kind = if stored == Some("I8") { ByteKind::Int8 } else { ByteKind::E4m3 };
        bytes::scaled(tensors, &stem, "weight_scale", (kind, block), 1.0)?;
    }
    Ok(())
}

/// Where rows are transformed while the model runs; transforms of weights are in these already.
fn transformed(transforms: &Value) -> Option<String> {
    let schemes = transforms.get("config_groups")?.as_object()?.values();
    let places = schemes.filter_map(|scheme| scheme.get("apply")?.as_array());
    let mut places = places.flatten().map(|a| a.get("location").and_then(Value::as_str).unwrap_or("an unnamed place"));
    places.find(|place| !place.starts_with("weight_")).map(String::from)
}

/// A scheme's rounding of products' inputs, where its scales are not fixed.
fn dynamic(of: &Value) -> Option<String> {
    let bits = of.get("num_bits")?.as_u64()?;
    let text = |name: &str| of.get(name).and_then(Value::as_str).unwrap_or_default();
    let fixed = matches!(of.get("dynamic"), None | Some(Value::Null | Value::Bool(false)));
    (!fixed).then(|| format!("{} activations of {bits} bits per {}", text("type"), text("strategy")))
}

/// The rounding of products' inputs by fixed scales, if it is the same in all schemes.
fn declared(groups: &Map<String, Value>) -> Option<UnaryOp> {
    let kinds: BTreeSet<UnaryOp> = groups
        .values()
        .filter_map(|g| {
            let inputs = g.get("input_activations")?;
            match (inputs.get("num_bits")?.as_u64()?, inputs.get("type")?.as_str()?) {
                (8, "int") => Some(UnaryOp::RoundI8),
                (8, "float") => Some(UnaryOp::RoundE4m3),
                _ => None,
            }
        })
        .collect();
    kinds.first().copied().filter(|_| kinds.len() == 1)
}

/// Every `STEM.weight_packed`.
fn packed(tensors: &mut Tensors<'_>, bits: &BTreeSet<u64>) -> Result<(), Wrong> {
    let stems = tensors.stems(".weight_packed");
    for stem in &stems {
        let words = tensors.index.get(&format!("{stem}.weight_packed")).map(|e| e.info.dtype.name);
        let entry = match words {
            Some("U8") if !tensors.index.contains_key(&format!("{stem}.weight_global_scale")) => {
                let scales = tensors.index.get(&format!("{stem}.weight_scale")).map(|e| e.info.dtype.name);
                if scales == Some("F8_E4M3") {
                    let name = format!("{stem}.weight_global_scale");
                    return Err(missing(&name, "which stands above scales of e4m3"));
                }
                microscaling::matrix(tensors, stem, ["weight_packed", "weight_scale"])?
            }
            Some("U8") => fp4(tensors, [stem, "weight_packed", "weight_global_scale"], |x| 1.0 / x)?,
            _ => integers(tensors, stem, bits)?,
        };
        tensors.index.insert(format!("{stem}.weight"), entry);
    }
    Ok(())
}

/// Integers in words along the inputs.
fn integers(tensors: &mut Tensors<'_>, stem: &str, bits: &BTreeSet<u64>) -> Result<Entry, Wrong> {
    let name = |ending: &str| format!("{stem}.{ending}");
    let wrong = |what: String| (format!("`{stem}`: {what}"), UNQUANTIZED);
    let [rows, across] = tensors.matrix(&name("weight_packed"))?;
    let shape = tensors.take(&name("weight_shape"), &["I64", "I32"], &[2])?;
    let [n, k] = [0, 1].map(|i| shape.size(tensors.shards, i));
    let widths = bits.iter().filter_map(|bits| usize::try_from(*bits).ok()).filter(|bits| (1..=8).contains(bits));
    let fitting: Vec<(usize, bool)> = widths.filter_map(|bits| Some((bits, packing(k, bits, across)?))).collect();
    let sizes = format!("`weight_packed` {:?} of `weight_shape` {:?}", [rows, across], [n, k]);
    if fitting.is_empty() || n != rows || n == 0 || k == 0 {
        return Err(wrong(format!("{sizes} fits none of the widths {bits:?}; supported are 1 to 8 bits")));
    }
    let codes = tensors.take(&name("weight_packed"), &["I32"], &[rows, across])?;
    let (bits, dense) = match fitting[..] {
        [found] => found,
        // Four codes in a word, whichever it is: of 7 bits they leave the uppermost four free.
        [(7, false), (8, _)] => {
            let free = (0..rows.saturating_mul(across)).all(|i| codes.word(tensors.shards, i) >> 28 == 0);
            if free { fitting[0] } else { fitting[1] }
        }
        _ => {
            let widths: Vec<usize> = fitting.iter().map(|f| f.0).collect();
            return Err(wrong(format!("{sizes} fits several of the file's widths, {widths:?}")));
        }
    };
    let scaled = tensors.index.get(&name("weight_scale")).map(|e| e.info.shape.clone()).unwrap_or_default();
    // One of the whole matrix may be a vector, or no list at all.
    let one = scaled.iter().all(|n| *n == 1) && n > 1;
    let groups = if one { 1 } else { scaled.get(1).copied().unwrap_or(1) };
    if !one && (scaled.first() != Some(&n) || scaled.len() > 2) {
        return Err(wrong(format!("scales {scaled:?} do not fit {n} rows")));
    }
    let scales = tensors.take(&name("weight_scale"), &["F16", "BF16", "F32"], &scaled)?;
    let zeros = match tensors.index.contains_key(&name("weight_zero_point")) {
        true if one => Some(tensors.take(&name("weight_zero_point"), &["I8"], &scaled)?),
        true => {
            let words = if dense { n.saturating_mul(bits).div_ceil(32) } else { n.div_ceil(32 / bits) };
            Some(tensors.take(&name("weight_zero_point"), &["I32"], &[words, groups])?)
        }
        false => None,
    };
    let index = match tensors.index.contains_key(&name("weight_g_idx")) {
        true => Some(tensors.take(&name("weight_g_idx"), &["I32"], &[k])?),
        false => None,
    };
    // None of a group: they are side by side.
    let index = index.filter(|p| (0..k).any(|i| p.word(tensors.shards, i) != u32::MAX));
    let words = Words { order: WordOrder::Columns { dense }, bits, codes, zeros, scales, one };
    grouped(tensors.shards, words, Sizes { n, k, groups, group: None }, index).map_err(wrong)
}

/// Whether so many words of a row are a stream of codes; `None` where they are neither that nor words of
/// whole codes.
fn packing(columns: usize, bits: usize, words: usize) -> Option<bool> {
    match words {
        _ if columns.checked_mul(bits)?.div_ceil(32) == words => Some(true),
        _ if columns.div_ceil(32 / bits) == words => Some(false),
        _ => None,
    }
}
