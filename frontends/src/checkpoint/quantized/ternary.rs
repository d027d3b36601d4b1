//! BitNet b1.58 (arXiv 2402.17764) as Transformers packs it: −1, 0 and 1 plus one, two bits each, four
//! rows in a byte a quarter of the matrix apart; and one number that multiplies or divides them all. Or
//! as it is trained (`online`): floats that are rounded to that in every step, which is done once here.

use super::{Part, Tensors, UNQUANTIZED, Wrong, coded, required};
use crate::checkpoint::safetensors::{StoredType, TensorInfo};
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, InputRounding, InputScale, Layout};
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::quant::{CodedRow, Elem, Format};
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

pub(in crate::checkpoint) static TERNARY: StoredType = coded("BitNet", Format::new(Elem::named("ternaryr"), 0), 2);

const DAMAGED: &str = "the checkpoint is damaged: download or convert it again";

/// How its products round their inputs (`activation_quant` of Transformers).
pub(in crate::checkpoint) const BY_TOKEN: InputRounding = InputRounding {
    number: UnaryOp::RoundI8,
    scale: InputScale::OfToken { most: 127.0, least: 1e-5 },
    zero: 0.0,
    norm: None,
};

/// The addend to the mean square of inputs, where products normalize them first.
fn norm(settings: &Map<String, Value>) -> Result<Option<f32>, Wrong> {
    match settings.get("use_rms_norm") {
        None | Some(Value::Null | Value::Bool(false)) => return Ok(None),
        Some(Value::Bool(true)) => {}
        Some(other) => return Err((format!("`use_rms_norm` is {other}; it must be true or false"), UNQUANTIZED)),
    }
    match settings.get("rms_norm_eps").map_or(Some(1e-6), Value::as_f64) {
        Some(eps) if (0.0..1.0).contains(&eps) => Ok(Some(eps as f32)),
        _ => Err((format!("`rms_norm_eps` is {}; it must be a number below 1", settings["rms_norm_eps"]), UNQUANTIZED)),
    }
}

pub(super) fn bitnet(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let text = |name: &str, default| settings.get(name).and_then(Value::as_str).unwrap_or(default);
    let norm = norm(settings)?;
    let divides = match text("linear_class", "bitlinear") {
        "bitlinear" => true,
        "autobitlinear" => false,
        other => {
            return Err((
                format!("`linear_class` is `{other}`; supported are bitlinear and autobitlinear"),
                UNQUANTIZED,
            ));
        }
    };
    let count = match text("quantization_mode", "offline") {
        // Which `BitLinear` does not know of.
        "online" if !divides => rounded(settings, tensors, norm)?,
        "offline" | "online" => scaled(tensors, divides, norm)?,
        other => {
            return Err((format!("`quantization_mode` is `{other}`; supported are offline and online"), UNQUANTIZED));
        }
    };
    if count > 0 {
        tensors.notes.push(format!(
            "the inputs of products with {count} matrices are rounded to 8 bits with a scale per token, as the \
                model was trained, whatever --act says"
        ));
    }
    Ok(())
}

/// Matrices with a number beside them: packed, or −1, 0 and 1 as floats, which Transformers saves where it
/// had unpacked them. How many they are.
fn scaled(tensors: &mut Tensors<'_>, divides: bool, norm: Option<f32>) -> Result<usize, Wrong> {
    let stems = tensors.stems(".weight_scale");
    required::alike_floats(tensors, &stems)?;
    for stem in &stems {
        let name = format!("{stem}.weight");
        let [rows, k] = tensors.matrix(&name)?;
        let part = tensors.take(&name, &["U8", "BF16", "F16", "F32"], &[rows, k])?;
        let scale = tensors.take(&format!("{stem}.weight_scale"), &["F32", "BF16", "F16"], &[1])?;
        let given = scale.float(tensors.shards, 0);
        let scale = if divides { 1.0 / given } else { given };
        // (One over infinity would be a number.)
        if !given.is_finite() || !scale.is_finite() {
            return Err((format!("tensor `{stem}.weight_scale` is {given}, which is not a valid scale"), DAMAGED));
        }
        let packed = part.dtype == "U8";
        let n = rows.checked_mul(if packed { 4 } else { 1 }).filter(|n| *n > 0 && k > 0);
        let n = n.ok_or_else(|| (format!("tensor `{name}` of {:?} has no rows", [rows, k]), UNQUANTIZED))?;
        let entry = if packed {
            let info = TensorInfo { dtype: &TERNARY, shape: vec![n, k], bytes: part.from..part.to };
            let layout = Quarters { codes: part, scale, quarter: rows, k };
            Entry { layout: Some(Arc::new(layout)), ..Entry::plain(part.shard, info) }
        } else {
            let ternary = |i| [-1.0, 0.0, 1.0].contains(&part.float(tensors.shards, i));
            if let Some(i) = (0..n * k).find(|i| !ternary(*i)) {
                let x = part.float(tensors.shards, i);
                return Err((format!("tensor `{name}` has the number {x}; it must be -1, 0 or 1"), UNQUANTIZED));
            }
            floats(part, [n, k], [1.0, scale].into())
        };
        tensors.index.insert(name, Entry { input: Some(InputRounding { norm, ..BY_TOKEN }), ..entry });
    }
    Ok(stems.len())
}

/// Matrices of floats that products round (`WeightQuant` of Transformers): to −1, 0 and 1 times the mean of
/// their magnitudes. How many they are.
fn rounded(settings: &Map<String, Value>, tensors: &mut Tensors<'_>, norm: Option<f32>) -> Result<usize, Wrong> {
    let kept = kept(settings)?;
    let float = |e: &Entry| ["BF16", "F16", "F32"].contains(&e.info.dtype.name) && e.layout.is_none();
    let matrices = tensors.index.iter().filter(|(_, e)| float(e) && e.info.shape.len() == 2);
    let names: Vec<String> = matrices.filter_map(|(name, _)| name.strip_suffix(".weight")).map(String::from).collect();
    let mut count = 0;
    if !kept.iter().any(|name| name == "lm_head") && !names.iter().any(|stem| stem == "lm_head") {
        let what = "`modules_to_not_convert` does not name the head, whose matrix is tied to the embeddings".into();
        return Err((what, "take the checkpoint with packed matrices"));
    }
    for stem in names {
        let is_kept =
            kept.iter().any(|k| stem.ends_with(k) || stem.strip_prefix(k.as_str()).is_some_and(|s| s.starts_with('.')));
        let own = stem.rsplit('.').next().unwrap_or_default();
        // Tables are no products.
        if is_kept || own.contains("embed") {
            continue;
        }
        if !own.ends_with("_proj") && own != "lm_head" {
            let what = format!("`quantization_mode` is `online`, but it is unknown whether `{stem}.weight` is rounded");
            return Err((what, "take the checkpoint with packed matrices"));
        }
        let name = format!("{stem}.weight");
        let [n, k] = tensors.matrix(&name)?;
        let part = tensors.take(&name, &["BF16", "F16", "F32"], &[n, k])?;
        let input = Some(InputRounding { norm, ..BY_TOKEN });
        tensors.index.insert(name, Entry { input, ..floats(part, [n, k], OnceLock::new()) });
        count += 1;
    }
    Ok(count)
}

/// The modules in `modules_to_not_convert`; without it, the head is kept.
fn kept(settings: &Map<String, Value>) -> Result<Vec<String>, Wrong> {
    let Some(list) = settings.get("modules_to_not_convert").filter(|v| !v.is_null()) else {
        return Ok(vec!["lm_head".into()]);
    };
    // Patterns; only plain names are supported.
    let name = |v: &Value| {
        v.as_str().filter(|s| !s.is_empty() && !s.contains(|c| "*+?[](){}|\\^$".contains(c))).map(String::from)
    };
    let names: Option<Vec<String>> = list.as_array().and_then(|list| list.iter().map(name).collect());
    names.ok_or_else(|| (format!("`modules_to_not_convert` is {list}; it must be a list of names"), UNQUANTIZED))
}

/// A matrix of floats: each times the first factor, rounded to −1, 0 or 1, times the second; by
/// default the factors are computed ([`Rounded::factors`]).
fn floats(values: Part, [n, k]: [usize; 2], factors: OnceLock<[f32; 2]>) -> Entry {
    let info = TensorInfo { dtype: &TERNARY, shape: vec![n, k], bytes: values.from..values.to };
    let layout = Rounded { values, factors, n, k };
    Entry { layout: Some(Arc::new(layout)), ..Entry::plain(values.shard, info) }
}

#[derive(Debug)]
struct Rounded {
    values: Part,
    /// Factors of values before they are rounded, and after; found when the first row is read.
    factors: OnceLock<[f32; 2]>,
    n: usize,
    k: usize,
}

impl Rounded {
    /// One over the mean of the magnitudes, and that mean.
    fn factors(&self, shards: &[Shard]) -> [f32; 2] {
        *self.factors.get_or_init(|| {
            let count = self.n * self.k;
            let sum: f64 = (0..count).map(|i| f64::from(self.values.float(shards, i).abs())).sum();
            let mean = (sum / count.max(1) as f64) as f32;
            // (`max` of NaN and a number is the number, so NaN is kept explicitly: it makes a NaN
            // scale.)
            let mean = if mean.is_finite() { mean.max(1e-5) } else { f32::NAN };
            let times = 1.0 / mean;
            [times, 1.0 / times]
        })
    }
}

impl Layout for Rounded {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.values.place()]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let [before, mut scale] = self.factors(shards);
        for (col, c) in out.codes.iter_mut().enumerate().take(self.k) {
            let x = self.values.float(shards, row * self.k + col) * before;
            if !x.is_finite() {
                scale = f32::NAN;
            }
            *c = (x.round_ties_even().clamp(-1.0, 1.0) + 1.0) as u8;
        }
        out.factors.iter_mut().for_each(|f| *f = (scale, 0.0));
    }

    // It is codes.
    fn values(&self, _: &[Shard], _: usize, _: &mut [f32]) {}
}

#[derive(Debug)]
struct Quarters {
    codes: Part,
    scale: f32,
    /// Rows of bytes.
    quarter: usize,
    k: usize,
}

impl Layout for Quarters {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.codes.place()]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let (shift, row) = (2 * (row / self.quarter), row % self.quarter);
        let bytes = self.codes.bytes(shards).get(row * self.k..).unwrap_or_default();
        out.codes.iter_mut().zip(bytes).for_each(|(c, u)| *c = u >> shift & 3);
        out.factors.iter_mut().for_each(|f| *f = (self.scale, 0.0));
    }

    // It is codes.
    fn values(&self, _: &[Shard], _: usize, _: &mut [f32]) {}
}
