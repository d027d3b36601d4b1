//! Longformer (arXiv 2004.05150): RoBERTa whose tokens see so many on either side. Tokens that see all others and
//! are seen by all, which the class for classes makes of the first one, are not compiled.

use crate::arch::blocks::encoder::{Defaults, Encoder, FIELDS, FILL};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POSITIONS, TABLE,
    TABLE_NORM, TYPES, Table,
};
use crate::config::ConfigError;
use crate::config::common::MODEL;
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use serde_json::Value;

pub(crate) const ARCH: Arch = Arch {
    model_type: "longformer",
    class: "LongformerModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL, OWN],
    fixed: &[
        ("position_embedding_type", Neutral::Words(&["absolute"])),
        // What files say besides, and nothing reads.
        ("attention_mode", Neutral::Any),
        ("ignore_attention_mask", Neutral::Any),
        ("onnx_export", Neutral::Any),
    ],
    goldens: &["longformer"],
    names: Names(&[NAMES]),
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

const OWN: &[Field] = &[Field::new("attention_window", Accepts::Any)];

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
        let help = "this architecture has a layer for each number of `attention_window`";
        return Err(f.unsupported("num_hidden_layers", layers.to_string(), help.into()));
    }
    Ok(windows)
}

const NAMES: Table = &[
    (TABLE, "longformer.embeddings.word_embeddings"),
    (POSITIONS, "longformer.embeddings.position_embeddings"),
    (TYPES, "longformer.embeddings.token_type_embeddings"),
    (TABLE_NORM, "longformer.embeddings.LayerNorm"),
    (ATTN_Q, "longformer.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "longformer.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "longformer.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "longformer.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "longformer.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "longformer.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "longformer.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "longformer.encoder.layer.{}.output.LayerNorm"),
];
