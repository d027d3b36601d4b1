//! Tensors that a model asks for, as a checkpoint has them.

use crate::arch::blocks::names::{HEAD, Kind, Names};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::safetensors::TensorInfo;
use crate::error::FrontendError;
use llmcc_ir::ty::DType;

/// The name of a tensor in the checkpoint of a model without a head, where the first part is left
/// out of names (`norm.weight` for `model.norm.weight`).
pub(crate) fn without_prefix(ckpt: &Checkpoint, name: String) -> String {
    let has = |name: &str| ckpt.info(name).is_some();
    // Parts of norms had other names in the first versions of Transformers.
    let old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    let bare = |name: &str| name.split_once('.').map_or(String::new(), |(_, rest)| rest.to_owned());
    [name.clone(), bare(&name), bare(&old), old].into_iter().find(|name| has(name)).unwrap_or(name)
}

/// The element type of a tensor that is there and has the shape.
pub(crate) fn checked(
    ckpt: &Checkpoint,
    tensor: &str,
    shape: &[usize],
    names: Names,
    class: &'static str,
) -> Result<DType, FrontendError> {
    let info = shaped(ckpt, tensor, shape, names, class)?;
    match info.dtype.dtype {
        Some(t @ (DType::F32 | DType::F16 | DType::Bf16)) => Ok(t),
        // Vectors are f32 when running.
        Some(t @ DType::Coded(_)) if shape.len() == 2 => Ok(t),
        _ => Err(ckpt.bad_dtype(tensor, info)),
    }
}

/// A tensor that is there and has the shape.
fn shaped<'a>(
    ckpt: &'a Checkpoint,
    tensor: &str,
    shape: &[usize],
    names: Names,
    class: &'static str,
) -> Result<&'a TensorInfo, FrontendError> {
    let info = ckpt.info(tensor).ok_or_else(|| missing(ckpt, tensor, shape, names, class))?;
    if info.shape != shape {
        return Err(FrontendError::TensorShape {
            file: ckpt.shard_name(tensor),
            name: tensor.to_string(),
            expected: shape.to_vec(),
            found: info.shape.clone(),
        });
    }
    Ok(info)
}

/// A tensor of whole numbers below `below`, without repetitions in a row.
///
/// # Errors
/// It is missing, or has another shape, or other values.
pub(crate) fn numbers_below(
    ckpt: &Checkpoint,
    tensor: &str,
    (shape, below): ([usize; 2], usize),
    names: Names,
    class: &'static str,
) -> Result<Vec<f32>, FrontendError> {
    let info = shaped(ckpt, tensor, &shape, names, class)?;
    let (path, wide) = (ckpt.dir().join(ckpt.shard_name(tensor)), info.dtype.dtype == Some(DType::I64));
    let wrong = |what: String| {
        let help = format!("download the checkpoint again, or write the tensor as whole numbers below {below}");
        FrontendError::NotACheckpoint {
            path: path.clone(),
            what: format!("tensor `{tensor}` {what}"),
            help: help.into(),
        }
    };
    let data = ckpt.tensor(tensor).filter(|_| wide || info.dtype.dtype == Some(DType::I32));
    let Some(data) = data.map(|t| t.data) else { return Err(wrong(format!("is stored as {}", info.dtype.name))) };
    let numbers: Vec<i64> = match wide {
        true => data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
        false => data.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect(),
    };
    for (i, row) in numbers.chunks(shape[1].max(1)).enumerate() {
        let fits = |n: &i64| usize::try_from(*n).is_ok_and(|n| n < below);
        let twice = |j: usize| row.iter().skip(j + 1).any(|n| row.get(j) == Some(n));
        if !row.iter().all(fits) || (0..row.len()).any(twice) {
            return Err(wrong(format!("has {row:?} in row {i}")));
        }
    }
    Ok(numbers.into_iter().map(|n| n as f32).collect()) // Below 2²⁴: few experts are.
}

fn missing(ckpt: &Checkpoint, tensor: &str, shape: &[usize], names: Names, class: &'static str) -> FrontendError {
    let has = |name: &str| ckpt.info(name).is_some();
    let hint = if names.tensor(HEAD, Kind::Matrix, None).is_some_and(|head| head == tensor) {
        "; if the head shares the embedding table, set `tie_word_embeddings` to true in config.json"
    } else if has(tensor.trim_start_matches("model.")) {
        "; it is there without the `model.` prefix: this is a model without a head, for embeddings: compile it with \
         --embed"
    } else if has(&format!("{}.qweight", tensor.trim_end_matches(".weight"))) {
        "; its quantized form is there: use the unquantized checkpoint and compile with --w8 or --w4"
    } else {
        "; the checkpoint is incomplete or belongs to another architecture"
    };
    FrontendError::MissingTensor {
        name: tensor.to_string(),
        arch: class,
        expected: shape.to_vec(),
        hint: hint.to_string(),
    }
}
