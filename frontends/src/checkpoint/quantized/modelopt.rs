//! NVIDIA's ModelOpt, and AMD's Quark, which names its tensors alike: the kind of a matrix follows
//! from the types of its `weight` and `weight_scale`, and whether a `weight_scale_2` stands above
//! its scales. AWQ and SmoothQuant leave beside some matrices a `pre_quant_scale` `[in]` that
//! multiplies the input of their products, where no layer before takes it.

use super::bytes::{self, ByteKind};
use super::nvfp4::fp4;
use super::{COMPUTED, Part, Tensors, UNQUANTIZED, Wrong, activations, microscaling, pairs, required, turned};
use crate::checkpoint::safetensors::TensorInfo;
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout, Rows};
use llmcc_ir::quant::{CodedRow, StoredRows};
use llmcc_ir::ty::DType;
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::Arc;

/// Factor of the input of products.
const BEFORE: &str = ".pre_quant_scale";

/// The name of the method where settings name none, and ModelOpt as their author.
pub(super) fn unnamed(settings: &Map<String, Value>) -> Option<&'static str> {
    (settings.get("producer")?.get("name")?.as_str()? == "modelopt").then_some("modelopt")
}

pub(super) fn modelopt(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    if let Some(stem) = tensors.stems(".svdquant_lora_a").first() {
        let what = format!("tensor `{stem}.svdquant_lora_a` is added to a product, which is not supported");
        return Err((what, UNQUANTIZED));
    }
    if required::flag(settings, "has_zero_point")? == Some(true) {
        return Err((
            "`has_zero_point` is true, but zeros of ModelOpt's matrices are not supported".into(),
            UNQUANTIZED,
        ));
    }
    if required::flag(settings, "pre_quant_scale")? == Some(true) && tensors.stems(BEFORE).is_empty() {
        let what = format!("`pre_quant_scale` is true, but no tensor's name ends in `{BEFORE}`");
        return Err((what, "download the checkpoint again, all files of one revision"));
    }
    // Products in FP8 whose input has a scale that was fixed.
    let fixed = |settings: &Value| settings.get("quant_algo").and_then(Value::as_str) == Some("FP8");
    let by_layer = settings.get("quantized_layers").and_then(Value::as_object);
    let all = settings.get("quant_algo").and_then(Value::as_str) == Some("FP8");
    for stem in tensors.stems(".weight_scale") {
        let eight = tensors.index.get(&format!("{stem}.weight")).is_some_and(|e| e.info.dtype.name == "F8_E4M3");
        if eight && by_layer.map_or(all, |layers| layers.get(&stem).is_some_and(fixed)) {
            required::input_scale(tensors, &stem, "and `quant_algo` is FP8")?;
        }
    }
    turned::stacks(tensors)?;
    matrices(tensors)
}

/// Quark's FP8, int8 and microscaling formats.
pub(super) fn quark(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let by_layer = settings.get("layer_quant_config").and_then(Value::as_object).is_some_and(|of| !of.is_empty());
    let inputs = settings.get("global_quant_config").and_then(|of| of.get("input_tensors"));
    let text = |name: &str| inputs.and_then(|of| of.get(name)?.as_str()).unwrap_or_default();
    let eight = text("dtype").starts_with("fp8") || text("dtype").starts_with("int8");
    let is_fixed = eight && inputs.is_some_and(|of| of.get("is_dynamic") == Some(&Value::Bool(false)));
    for stem in tensors.stems(".weight_scale").iter().filter(|_| is_fixed && !by_layer) {
        required::input_scale(tensors, stem, "and `input_tensors` says that its scale is fixed")?;
    }
    for stem in tensors.stems(".weight_scale") {
        if tensors.index.get(&format!("{stem}.weight")).is_some_and(|e| e.info.dtype.name == "I32") {
            let what = format!(
                "`{stem}.weight` is Quark's with fewer than 8 bits in words of 32; supported are FP8, int8 and MXFP4"
            );
            return Err((what, UNQUANTIZED));
        }
    }
    matrices(tensors)
}

fn matrices(tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    for stem in tensors.stems(".weight_scale") {
        let dtype = |ending: &str| tensors.index.get(&format!("{stem}.{ending}")).map(|e| e.info.dtype.name);
        let entry = match [dtype("weight"), dtype("weight_scale"), dtype("weight_scale_2")] {
            [Some("U8"), Some("F8_E4M3"), Some(_)] => fp4(tensors, [&stem, "weight", "weight_scale_2"], |x| x)?,
            [Some("U8"), Some("U8" | "F8_E8M0"), None] => {
                microscaling::matrix(tensors, &stem, ["weight", "weight_scale"])?
            }
            [Some("U8"), Some("F8_E4M3"), None] => {
                return Err(required::missing(&format!("{stem}.weight_scale_2"), "which stands above scales of e4m3"));
            }
            [Some("U8"), _, above] => {
                if above.is_some() {
                    // The scale of products in FP8, in `W4A8_AWQ`; the other scales do not need it.
                    tensors.index.remove(&format!("{stem}.weight_scale_2"));
                }
                pairs::matrix(tensors, &stem)?
            }
            [weight, ..] => {
                let kind = if weight == Some("I8") { ByteKind::Int8 } else { ByteKind::E4m3 };
                bytes::scaled(tensors, &stem, "weight_scale", (kind, None), 1.0)?;
                continue;
            }
        };
        tensors.index.insert(format!("{stem}.weight"), entry);
    }
    before(tensors)?;
    activations::fixed(tensors, None)
}

/// Moves factors of inputs into the columns of the matrices, which are decoded.
fn before(tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let stems = tensors.stems(BEFORE);
    for stem in &stems {
        let (name, weight) = (format!("{stem}{BEFORE}"), format!("{stem}.weight"));
        let wrong = || (format!("tensor `{name}` multiplies the input of no matrix"), UNQUANTIZED);
        let matrix = tensors.index.remove(&weight).ok_or_else(wrong)?;
        let (Some(layout), Some(dtype), [n, k]) = (&matrix.layout, matrix.info.dtype.dtype, &matrix.info.shape[..])
        else {
            return Err(wrong());
        };
        let factors = tensors.take(&name, &["BF16", "F16", "F32"], &[*k])?;
        let info = TensorInfo { dtype: &COMPUTED, shape: vec![*n, *k], bytes: matrix.info.bytes.clone() };
        let layout = ScaledColumns { matrix: Arc::clone(layout), dtype, factors, k: *k };
        tensors.index.insert(weight, Entry { layout: Some(Arc::new(layout)), ..Entry::plain(matrix.shard, info) });
    }
    if !stems.is_empty() {
        tensors.notes.push(format!(
            "{} matrices absorb the factors of their inputs (`pre_quant_scale`): they are decoded",
            stems.len()
        ));
    }
    Ok(())
}

/// A matrix whose columns are multiplied.
#[derive(Debug)]
struct ScaledColumns {
    matrix: Arc<dyn Layout>,
    /// Type of the matrix.
    dtype: DType,
    factors: Part,
    k: usize,
}

impl Layout for ScaledColumns {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        self.matrix.parts()
    }

    // It is floats.
    fn codes(&self, _: &[Shard], _: usize, _: &mut CodedRow) {}

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        Rows { layout: &*self.matrix, shards, dtype: self.dtype, columns: self.k }.values(row, out);
        out.iter_mut().enumerate().for_each(|(col, v)| *v *= self.factors.float(shards, col));
    }
}
