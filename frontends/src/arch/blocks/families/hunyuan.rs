//! What HunYuan's models have in common: norms of queries and keys after the rotation, frequencies
//! of a larger base.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::names::{ATTN_K_NORM, ATTN_Q_NORM, Table};
use crate::config::ConfigError;
use crate::config::fields::Fields;
use crate::config::known::Neutral;
use crate::config::rope_base;

pub(crate) const NORMS: Table = &[
    (ATTN_Q_NORM, "model.layers.{}.self_attn.query_layernorm"),
    (ATTN_K_NORM, "model.layers.{}.self_attn.key_layernorm"),
];

/// What the classes decide by themselves, or files have without using it.
pub(crate) const FIXED: &[(&str, Neutral)] = &[
    ("use_qk_norm", Neutral::On),
    ("qk_norm", Neutral::On),
    ("qk_layernorm", Neutral::On),
    // How many layers would share keys and values; whether they do is `use_cla`.
    ("cla_share_factor", Neutral::Any),
    ("org_vocab_size", Neutral::Same("vocab_size")),
];

/// The decoder, without experts; `tied` is for files that do not say it.
pub(crate) fn read(f: &Fields, tied: bool) -> Result<Decoder, ConfigError> {
    let defaults = Defaults { vocab: Some(290_943), heads: Some(32), eps: 1e-5, tied, ..Defaults::LLAMA };
    let bias = f.flag("attention_bias");
    let d = Decoder::read_with(f, &defaults, |heads, max| Ok(vec![rope_base::read_alpha(f, heads.dim, max, 1e4)?]))?;
    Ok(d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.qk_norm) = (bias, bias, Some(QkNorm::HeadAfter))))
}
