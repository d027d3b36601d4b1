//! BitNet b1.58 (arXiv 2402.17764) as Transformers packs it: −1, 0 and 1 plus one, two bits each, four
//! rows in a byte a quarter of the matrix apart; and one number that multiplies or divides them all.

use super::{Part, Tensors, UNQUANTIZED, Wrong, coded};
use crate::checkpoint::safetensors::{StoredType, TensorInfo};
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use llmcc_ir::quant::{CodedRow, Elem, Format};
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::Arc;

static TERNARY: StoredType = coded("BitNet", Format::new(Elem::named("ternaryr"), 0), 2);

pub(super) fn bitnet(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let text = |name: &str, default| settings.get(name).and_then(Value::as_str).unwrap_or(default);
    if text("quantization_mode", "offline") != "offline" {
        let what = "`quantization_mode` is `online`: matrices are floats that are rounded in every step".into();
        return Err((what, "take the checkpoint with packed matrices"));
    }
    if settings.get("use_rms_norm").and_then(Value::as_bool) == Some(true) {
        return Err(("`use_rms_norm`: products normalize their input, which is not read".into(), UNQUANTIZED));
    }
    let divides = match text("linear_class", "bitlinear") {
        "bitlinear" => true,
        "autobitlinear" => false,
        other => {
            return Err((format!("`linear_class` is `{other}`; bitlinear and autobitlinear are read"), UNQUANTIZED));
        }
    };
    let stems = tensors.stems(".weight_scale");
    for stem in &stems {
        let name = format!("{stem}.weight");
        let [quarter, k] = tensors.matrix(&name)?;
        let codes = tensors.take(&name, &["U8"], &[quarter, k])?;
        let scale = tensors.take(&format!("{stem}.weight_scale"), &["F32", "BF16", "F16"], &[1])?;
        let scale = scale.float(tensors.shards, 0);
        let scale = if divides { 1.0 / scale } else { scale };
        let n = quarter.checked_mul(4).filter(|n| *n > 0 && k > 0);
        let n = n.ok_or_else(|| (format!("tensor `{name}` of {:?} has no rows", [quarter, k]), UNQUANTIZED))?;
        let info = TensorInfo { dtype: &TERNARY, shape: vec![n, k], bytes: codes.from..codes.to };
        let layout = Quarters { codes, scale, quarter, k };
        tensors.index.insert(name, Entry { layout: Some(Arc::new(layout)), ..Entry::plain(codes.shard, info) });
    }
    if !stems.is_empty() {
        tensors.notes.push(
            "its products were trained with activations of 8 bits, a scale per token; here these are as --act says"
                .into(),
        );
    }
    Ok(())
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
