//! Scales of activations that were fixed when a checkpoint was quantized: `STEM.input_scale` beside
//! `STEM.weight` (compressed-tensors, ModelOpt; `activation_scale` in Transformers' own FP8, `qscale_act` in
//! Mistral's), one number for the input of its products, and `STEM.input_zero_point`.

use super::{COMPUTED, Part, Tensors, UNQUANTIZED, Wrong};
use crate::checkpoint::stored::{InputRounding, InputScale};
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::quant::Code;

/// Names of the scale of an input.
const SCALES: [&str; 3] = ["input_scale", "activation_scale", "qscale_act"];
/// Unused tensors: bounds of scales that are found for each token, scales above the groups' scales,
/// scales of caches and of attention.
const OTHERS: [&str; 10] = [
    "input_scale_ub",
    "input_global_scale",
    "k_scale",
    "v_scale",
    "q_scale",
    "kv_scale",
    "k_zero_point",
    "v_zero_point",
    "prob_scale",
    "output_scale",
];

/// Takes the scales of activations away: scales of the inputs of products are kept with their
/// matrices, whose input is rounded by them; the others are reported as unused. `declared`: the
/// rounding of inputs of matrices of fewer bits.
pub(super) fn fixed(tensors: &mut Tensors<'_>, declared: Option<UnaryOp>) -> Result<(), Wrong> {
    let (mut used, mut unused) = (0, 0);
    for ending in SCALES {
        for stem in tensors.stems(&format!(".{ending}")) {
            let name = format!("{stem}.{ending}");
            match number(tensors, &stem, declared) {
                Some(number) => {
                    let how = rounding(tensors, &stem, &name, number)?;
                    if let Some(matrix) = tensors.index.get_mut(&format!("{stem}.weight")) {
                        matrix.input = Some(how);
                    }
                    used += 1;
                }
                None => {
                    tensors.index.remove(&name);
                    tensors.index.remove(&format!("{stem}.input_zero_point"));
                    unused += 1;
                }
            }
        }
    }
    // Names for stacks of experts.
    let stacked = ["_activation_scale", "_input_scale"].map(String::from);
    for ending in OTHERS.iter().map(|e| format!(".{e}")).chain(stacked) {
        for stem in tensors.stems(&ending) {
            tensors.index.remove(&format!("{stem}{ending}"));
            unused += 1;
        }
    }
    if used > 0 {
        tensors.notes.push(format!(
            "the inputs of products with {used} matrices are rounded to 8 bits by scales fixed at quantization; \
                CPUs multiply integers directly, and floats in f32 unless --act rounds them once more with a \
                scale per token"
        ));
    }
    if unused > 0 {
        tensors.notes.push(format!(
            "{unused} scales of activations and caches that were fixed at quantization are not used: those \
                values are rounded, if at all (--act, --kv), with a scale per token, which loses less"
        ));
    }
    Ok(())
}

/// The rounding of the input of products with `STEM.weight`; `None` where there is none.
fn number(tensors: &Tensors<'_>, stem: &str, declared: Option<UnaryOp>) -> Option<UnaryOp> {
    let matrix = tensors.index.get(&format!("{stem}.weight"))?;
    // A matrix that no format holds was decoded: its numbers do not tell their former kind.
    if std::ptr::eq(matrix.info.dtype, &COMPUTED) {
        return declared;
    }
    match matrix.info.dtype.dtype?.coded()?.encoding().code {
        Code::Float(_) => Some(UnaryOp::RoundE4m3),
        Code::Int { bits: 8, .. } | Code::Signed { .. } => declared.or(Some(UnaryOp::RoundI8)),
        Code::Int { .. } => declared,
        Code::Table { .. } | Code::Trellis(_) | Code::Pairs => None,
    }
}

/// Takes the numbers of an input.
pub(super) fn rounding(
    tensors: &mut Tensors<'_>,
    stem: &str,
    name: &str,
    number: UnaryOp,
) -> Result<InputRounding, Wrong> {
    let scale = one(tensors, name, &["F32", "BF16", "F16"])?.single(tensors.shards);
    if !scale.is_finite() || scale <= 0.0 {
        return Err((format!("tensor `{name}` is {scale}, which is not a valid scale"), UNQUANTIZED));
    }
    let zero = format!("{stem}.input_zero_point");
    let zero = match tensors.index.contains_key(&zero) {
        true => zero_of(tensors, &zero)?,
        false => 0.0,
    };
    if !zero.is_finite() {
        return Err((
            format!("tensor `{stem}.input_zero_point` is {zero}, which is not a valid zero point"),
            UNQUANTIZED,
        ));
    }
    if zero != 0.0 && number != UnaryOp::RoundI8 {
        return Err((
            format!("`{stem}`: its input has a zero point of {zero}, but is not rounded to integers"),
            UNQUANTIZED,
        ));
    }
    Ok(InputRounding { number, scale: InputScale::Fixed(scale), zero, norm: None })
}

fn zero_of(tensors: &mut Tensors<'_>, name: &str) -> Result<f32, Wrong> {
    let part = one(tensors, name, &["I8", "I32", "I64", "F8_E4M3"])?;
    Ok(match part.dtype {
        "F8_E4M3" => part.float(tensors.shards, 0),
        // Integers are of 8 bits, whatever holds them.
        _ => part.bytes(tensors.shards).first().map_or(0.0, |u| f32::from(*u as i8)),
    })
}

/// Takes a tensor of one number away.
fn one(tensors: &mut Tensors<'_>, name: &str, types: &[&str]) -> Result<Part, Wrong> {
    let shape = tensors.index.get(name).map(|e| e.info.shape.clone()).unwrap_or_default();
    if shape.len() > 2 || shape.iter().any(|n| *n != 1) {
        let what = format!("tensor `{name}` is {shape:?}; only one scale for the input of a product is supported");
        return Err((what, UNQUANTIZED));
    }
    tensors.take(name, types, &shape)
}
