//! What the models of LFM2 have in common: names, and which layers have convolutions.

use super::names::{ATTN_K_NORM, ATTN_NORM, ATTN_OUT, ATTN_Q_NORM, MLP_DOWN, MLP_GATE, MLP_NORM, MLP_UP, NORM, Table};
use super::recurrent::{SSM_CONV, SSM_IN, SSM_OUT};
use crate::config::ConfigError;
use crate::config::common;
use crate::config::fields::Fields;

/// The last is refused with a word of its own.
pub(super) const LAYER_TYPES: &[&str] = &["conv", "full_attention", "sliding_attention"];

/// Names of the tensors.
pub(super) const NAMES: Table = &[
    (NORM, "model.embedding_norm"),
    (ATTN_NORM, "model.layers.{}.operator_norm"),
    (ATTN_Q_NORM, "model.layers.{}.self_attn.q_layernorm"),
    (ATTN_K_NORM, "model.layers.{}.self_attn.k_layernorm"),
    (ATTN_OUT, "model.layers.{}.self_attn.out_proj"),
    (SSM_IN, "model.layers.{}.conv.in_proj"),
    (SSM_CONV, "model.layers.{}.conv.conv"),
    (SSM_OUT, "model.layers.{}.conv.out_proj"),
    (MLP_NORM, "model.layers.{}.ffn_norm"),
    (MLP_GATE, "model.layers.{}.feed_forward.w1"),
    (MLP_UP, "model.layers.{}.feed_forward.w3"),
    (MLP_DOWN, "model.layers.{}.feed_forward.w2"),
];

/// Which layers have convolutions.
pub(super) fn convolved_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let Some(types) = common::layer_types(f, layers)? else {
        let attend = f.numbers("full_attn_idxs");
        let attends = |i: usize| attend.as_ref().is_none_or(|list| list.contains(&(i as f64)));
        return Ok((0..layers).map(|i| !attends(i)).collect());
    };
    if types.contains(&"sliding_attention") {
        let help = "this architecture has convolutions and full attention".to_string();
        return Err(f.unsupported("layer_types", "\"sliding_attention\"".into(), help));
    }
    Ok(types.into_iter().map(|t| t == "conv").collect())
}
