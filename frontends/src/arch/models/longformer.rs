//! Longformer (arXiv 2004.05150): RoBERTa whose tokens see so many on either side. Tokens that see all others and
//! are seen by all, which the class for classes makes of the first one, are not compiled.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FILL};
use crate::arch::blocks::prelude::*;
use serde_json::Value;

pub(crate) const ARCH: Arch = Arch {
    model_type: "longformer",
    class: "LongformerModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL, fields! { attention_window }],
    fixed: fixed! {
        Words(&["absolute"]) => position_embedding_type;
        // Further fields of files, which nothing reads.
        Any => attention_mode;
        Any => ignore_attention_mask onnx_export;
    },
    goldens: &["longformer"],
    names: Names(&[bert_names!("longformer.")]),
    read: |f| {
        let class = f.get("architectures").value().and_then(|list| list.get(0)).and_then(Value::as_str);
        if let Some(class) = class.filter(|class| class.ends_with("ForSequenceClassification")) {
            let help = "its first token sees all others and is seen by all, which is not compiled; embeddings are";
            return Err(f.unsupported("architectures", format!("\"{class}\""), help.into()));
        }
        let mut e = Encoder::read(f, &Defaults { spare: SPARE, ..Defaults::ROBERTA })?;
        let windows = windows(f, e.layers.len())?;
        for (layer, window) in e.layers.iter_mut().zip(windows) {
            // So many tokens on either side, and the token itself.
            layer.attention.window = Some(window / 2 + 1);
        }
        e.passes = &[".self.query_global.", ".self.key_global.", ".self.value_global."];
        Ok(Box::new(e))
    },
};

const SPARE: &[&str] = &["longformer.pooler.", "pooler.", "lm_head."];

/// The windows of the layers: a number for all, or a list.
fn windows(f: &Fields, layers: usize) -> Result<Vec<usize>, ConfigError> {
    let Some(given) = f.get("attention_window").value() else { return Ok(vec![512; layers]) };
    let width = |v: &Value| v.as_u64().filter(|n| *n >= 2 && n.is_multiple_of(2)).and_then(|n| usize::try_from(n).ok());
    let windows = match given.as_array() {
        Some(list) => list.iter().map(width).collect::<Option<Vec<usize>>>(),
        None => width(given).map(|n| vec![n; layers]),
    };
    let expected = || "an even number from 2 on, or a list of one for each layer".into();
    let windows = windows.ok_or_else(|| f.invalid_value("attention_window", given, expected()))?;
    if windows.len() != layers {
        let help = "this architecture expects a layer for each number of `attention_window`";
        return Err(f.unsupported("num_hidden_layers", layers.to_string(), help.into()));
    }
    Ok(windows)
}
