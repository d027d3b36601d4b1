//! Quanto's matrices, beside which `quanto_qmap.json` stands: of bytes, `weight._data` and a
//! `weight._scale` for each row. Where activations are rounded too, `input_scale` and
//! `output_scale` are other numbers than 1; they are not used. Matrices of 4 and 2 bits are
//! reshaped, which is not supported.

use super::bytes::{ByteKind, scaled};
use super::{Tensors, UNQUANTIZED, Wrong};
use serde_json::{Map, Value, json};

/// The codes of a matrix.
const CODES: &str = ".weight._data";

/// Says so where a configuration does not, and none of Quanto's does.
pub(super) fn declare(config: &mut Value, tensors: &Tensors<'_>) {
    let Some(all) = config.as_object_mut().filter(|all| all.get("quantization_config").is_none_or(Value::is_null))
    else {
        return;
    };
    if tensors.index.keys().any(|name| name.ends_with(CODES)) {
        all.insert("quantization_config".into(), json!({ "quant_method": "quanto" }));
    }
}

pub(super) fn quanto(_: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let mut unused = 0;
    for stem in tensors.stems(CODES) {
        let kind = match tensors.index.get(&format!("{stem}{CODES}")).map(|e| e.info.dtype.name) {
            Some("I8") => ByteKind::Int8,
            Some("F8_E4M3") => ByteKind::E4m3,
            other => {
                let what = format!(
                    "`{stem}.weight` is Quanto's of {}; those of I8 and F8_E4M3 are read",
                    other.unwrap_or("no type")
                );
                return Err((what, UNQUANTIZED));
            }
        };
        for (from, to) in [(CODES, ".weight"), (".weight._scale", ".weight_scale")] {
            if let Some(entry) = tensors.index.remove(&format!("{stem}{from}")) {
                tensors.index.insert(format!("{stem}{to}"), entry);
            }
        }
        scaled(tensors, &stem, "weight_scale", (kind, None), 1.0)?;
        for spare in ["input_scale", "output_scale"] {
            let name = format!("{stem}.{spare}");
            if tensors.index.contains_key(&name) {
                // 1 where nothing was measured.
                let part = tensors.take_any(&name)?;
                unused += usize::from(part.float(tensors.shards, 0) != 1.0);
            }
        }
    }
    if unused > 0 {
        let what = "scales of inputs and outputs of products are not used: here activations are as --act says";
        tensors.notes.push(format!("{unused} {what}"));
    }
    Ok(())
}
