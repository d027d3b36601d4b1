//! Common parts of the LFM2 models: names, norms of queries and keys, and convolutions.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::defaults::defaults;
use crate::arch::blocks::names::{
    ATTN_K_NORM, ATTN_NORM, ATTN_OUT, ATTN_Q_NORM, MLP_DOWN, MLP_GATE, MLP_NORM, MLP_UP, NORM, Table, names,
};
use crate::arch::blocks::recurrent::{SSM_CONV, SSM_IN, SSM_OUT, ShortConv};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::config::ConfigError;
use crate::config::common;
use crate::config::fields::Fields;

/// The last is refused with a word of its own.
pub(crate) const LAYER_TYPES: &[&str] = &["conv", "full_attention", "sliding_attention"];

/// Names of the tensors.
pub(crate) const NAMES: Table = names! {
    "" { NORM => "model.embedding_norm" }
    "model.layers.{}." {
        ATTN_NORM => "operator_norm", ATTN_Q_NORM => "self_attn.q_layernorm", ATTN_K_NORM => "self_attn.k_layernorm",
        ATTN_OUT => "self_attn.out_proj", SSM_IN => "conv.in_proj", SSM_CONV => "conv.conv",
        SSM_OUT => "conv.out_proj", MLP_NORM => "ffn_norm", MLP_GATE => "feed_forward.w1",
        MLP_UP => "feed_forward.w3", MLP_DOWN => "feed_forward.w2",
    }
};

/// The decoder, before any of its layers have convolutions.
pub(crate) fn read(f: &Fields) -> Result<Decoder, ConfigError> {
    let defaults = defaults! {
        vocab: 65_536, heads: 32, kv_heads: 8, max_position: 128_000, tied: true, eps(norm_eps): 1e-5, theta: 1e6,
        ..LLAMA
    };
    Ok(Decoder::read(f, &defaults)?.with_heads(|_, _, h| h.qk_norm = Some(QkNorm::Head)))
}

/// The convolution; of so many tokens where nothing is said.
pub(crate) fn conv(f: &Fields, width: usize) -> Result<ShortConv, ConfigError> {
    Ok(ShortConv { width: common::conv_width(f, "conv_L_cache", width)?, bias: f.flag("conv_bias") })
}

/// `d` with it in place of attention in these layers.
pub(crate) fn with_convolutions(d: Decoder, conv: ShortConv, layers: &[bool]) -> Decoder {
    d.with_mixers(|i| layers.get(i).copied().unwrap_or(false).then_some(Mixer::ShortConv(conv)))
}

/// Which layers have convolutions.
pub(crate) fn convolved_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let Some(types) = common::layer_types(f, layers)? else {
        let attend = f.numbers("full_attn_idxs");
        let attends = |i: usize| attend.as_ref().is_none_or(|list| list.contains(&(i as f64)));
        return Ok((0..layers).map(|i| !attends(i)).collect());
    };
    if types.contains(&"sliding_attention") {
        let help = "this architecture supports convolutions and full attention".to_string();
        return Err(f.unsupported("layer_types", "\"sliding_attention\"".into(), help));
    }
    Ok(types.into_iter().map(|t| t == "conv").collect())
}
