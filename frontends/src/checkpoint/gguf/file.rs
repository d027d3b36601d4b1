//! A GGUF file's description of a model, as the table of families reads it.

use super::names::numbered;
use super::{Declares, Metadata, Value};
use crate::checkpoint::safetensors::TensorInfo;
use serde_json::{Map, json};
use std::collections::BTreeMap;

/// The fault, and the remedy.
pub(super) type Wrong = (String, &'static str);

pub(super) const CONVERT_AGAIN: &str = "convert the model again with a current llama.cpp (`convert_hf_to_gguf.py`)";
pub(super) const OTHER_MODEL: &str = "take the model's safetensors checkpoint, or another model";

/// A `config.json` in the making.
pub(super) type Config = Map<String, serde_json::Value>;

/// Tensors by their names, with the number of the part that holds each.
pub(super) type Tensors = BTreeMap<String, (usize, TensorInfo)>;

/// The metadata of an architecture and the names of tensors.
pub(super) struct File<'a> {
    /// `general.architecture`, the prefix of its keys.
    pub name: &'a str,
    pub metadata: &'a Metadata,
    pub tensors: &'a Tensors,
    /// Contents of a tensor.
    pub bytes: &'a dyn Fn(usize, &TensorInfo) -> Vec<u8>,
    pub declares: Declares,
}

impl<'a> File<'a> {
    /// The value of a key of the architecture.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.metadata.get(&format!("{}.{key}", self.name))
    }

    /// A whole number; of a list the first that is not 0.
    pub fn size(&self, key: &str) -> Option<u64> {
        let value = self.get(key)?;
        value.unsigned().or_else(|| value.list()?.iter().filter_map(Value::unsigned).find(|n| *n > 0))
    }

    /// A number.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.number()
    }

    /// A whole number that must be there.
    pub fn required(&self, key: &str) -> Result<u64, Wrong> {
        self.size(key).ok_or_else(|| (format!("`{}.{key}` is missing", self.name), OTHER_MODEL))
    }

    /// Layers of the model itself, without those after them that predict further tokens.
    pub fn own_layers(&self) -> Result<usize, Wrong> {
        let own = self.required("block_count")?.saturating_sub(self.size("nextn_predict_layers").unwrap_or(0));
        Ok(usize::try_from(own).map_or(MOST_LAYERS, |n| n.min(MOST_LAYERS)))
    }

    /// Whether a number of each layer is not 0, or a truth value true; one for all layers, where
    /// there is no list. For [`File::own_layers`].
    pub fn layers(&self, key: &str) -> Vec<bool> {
        let count = self.own_layers().unwrap_or(0);
        match self.get(key) {
            Some(Value::List(list)) => {
                let set = |v: &Value| v.flag().or_else(|| Some(v.number()? != 0.0)).unwrap_or(false);
                list.iter().take(count).map(set).collect()
            }
            Some(one) => vec![one.number().is_some_and(|x| x != 0.0); count],
            None => vec![false; count],
        }
    }

    /// Whether there is a tensor of a layer.
    pub fn has_layer(&self, layer: usize) -> bool {
        let start = format!("blk.{layer}.");
        self.tensors.range(start.clone()..).next().is_some_and(|(name, _)| name.starts_with(&start))
    }

    /// A name of the first layer's tensors as one of the first layer that there is: files of draft heads alone have
    /// only those after the model's.
    fn of_first(&self, tensor: &str) -> String {
        let first = |rest: &str| -> Option<String> {
            let number = |name: &String| name.strip_prefix("blk.")?.split_once('.')?.0.parse::<u32>().ok();
            Some(format!("blk.{}.{rest}", self.tensors.keys().filter_map(number).min()?))
        };
        let rest = tensor.strip_prefix("blk.0.").filter(|_| !self.has_layer(0));
        rest.and_then(first).unwrap_or_else(|| tensor.to_string())
    }

    /// The first dimension of a tensor, as Transformers orders them.
    pub fn rows(&self, tensor: &str) -> Option<usize> {
        let (_, info) = self.tensors.get(&self.of_first(tensor))?;
        info.shape.first().copied()
    }

    /// Whether there is a tensor; `{}` is the number of any layer.
    pub fn has(&self, tensor: &str) -> bool {
        match tensor.split_once("{}") {
            None => self.tensors.contains_key(&self.of_first(tensor)),
            Some((before, after)) => self.tensors.keys().any(|name| {
                let number = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                number.is_some_and(|n| n.parse::<u32>().is_ok())
            }),
        }
    }

    /// The same, where the biases of queries may be joined with the biases of keys and values.
    pub fn has_or_fused(&self, tensor: &str) -> bool {
        self.has(tensor) || self.has(&tensor.replace("attn_q.bias", "attn_qkv.bias"))
    }

    /// Columns of a head by the rows of queries, where a file does not say them and a class has a default.
    pub fn own_width(&self, model_type: &str) -> Option<u64> {
        if WITHOUT_WIDTH.contains(&model_type) {
            return None;
        }
        let heads = self.size("attention.head_count")?;
        let of_keys = self.size("attention.head_count_kv").unwrap_or(heads);
        let of = |name: &str| {
            let (_, (_, info)) = self.tensors.iter().find(|(tensor, _)| numbered(tensor, name).is_some())?;
            Some(*info.shape.first()? as u64)
        };
        let whole = || Some((of("blk.{}.attn_qkv.weight")?, of_keys.checked_mul(2)?.checked_add(heads)?));
        let (rows, heads) = of("blk.{}.attn_q.weight").map(|rows| (rows, heads)).or_else(whole)?;
        let dim = rows.checked_div(heads).filter(|dim| dim * heads == rows)?;
        self.get("attention.key_length").is_none().then_some(dim)
    }

    /// The numbers of a small tensor of f32.
    pub fn floats(&self, tensor: &str) -> Option<Vec<f64>> {
        let (shard, info) = self.tensors.get(tensor).filter(|(_, info)| info.dtype.name == "F32")?;
        let bytes = (self.bytes)(*shard, info);
        Some(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect())
    }

    /// An error about an unsupported feature.
    pub fn refused<T>(&self, what: impl std::fmt::Display) -> Result<T, Wrong> {
        Err((format!("this `{}` {what}", self.name), OTHER_MODEL))
    }
}

/// Classes whose configurations have no `head_dim`: heads are as wide as the rows allow. The others have it,
/// and often a default that is not that of GGUF files. (A test compares them with the architectures' fields.)
pub(super) const WITHOUT_WIDTH: &[&str] = &[
    "bert",
    "bloom",
    "dbrx",
    "distilbert",
    "falcon",
    "falcon_mamba",
    "glm5_next_text",
    "gpt_bigcode",
    "gpt_neox",
    "jina_bert",
    "jina_embeddings_v3",
    "kimi_k3_text",
    "kimi_linear",
    "mamba",
    "modernbert",
    "mpt",
    "neobert",
    "rwkv6",
    "stablelm",
    "t5",
    "umt5",
];

/// The most layers of a model.
pub(super) const MOST_LAYERS: usize = 4096;

/// A number of heads of a configuration, or of their columns; none is larger than this one may be.
pub(super) fn size(config: &Config, field: &str) -> usize {
    config.get(field).and_then(serde_json::Value::as_u64).map_or(0, |n| n.min(1 << 16) as usize)
}

/// Columns of a head.
pub(super) fn head_dim(config: &Config) -> Option<usize> {
    let size = |name: &str| config.get(name)?.as_u64();
    let dim = size("head_dim").or_else(|| size("hidden_size")?.checked_div(size("num_attention_heads")?))?;
    usize::try_from(dim).ok()
}

/// Leaves out fields that an architecture has no use for.
pub(super) fn without(config: &mut Config, fields: &[&str]) -> Result<(), Wrong> {
    fields.iter().for_each(|field| drop(config.remove(*field)));
    Ok(())
}

/// Sets `layer_types` by which layers are of the first of two kinds.
pub(super) fn set_layer_types(config: &mut Config, layers: &[bool], [yes, no]: [&str; 2]) {
    let kinds: Vec<&str> = layers.iter().map(|is| if *is { yes } else { no }).collect();
    config.insert("layer_types".into(), json!(kinds));
}
