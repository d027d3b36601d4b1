//! Common parts of HunYuan's models: norms of queries and keys after the rotation, frequencies of a
//! larger base.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::defaults::defaults;
use crate::arch::blocks::names::{ATTN_K_NORM, ATTN_Q_NORM, Table, names};
use crate::config::ConfigError;
use crate::config::fields::Fields;
use crate::config::known::{Neutral, fixed};
use crate::config::rope_base;

pub(crate) const NORMS: Table = names! {
    "model.layers.{}." { ATTN_Q_NORM => "self_attn.query_layernorm", ATTN_K_NORM => "self_attn.key_layernorm" }
};

/// Fields that the classes decide by themselves, or that files have without using them.
pub(crate) const FIXED: &[(&str, Neutral)] = fixed! {
    On => use_qk_norm qk_norm qk_layernorm;
    // How many layers would share keys and values; whether they do is `use_cla`.
    Any => cla_share_factor;
    Same("vocab_size") => org_vocab_size;
};

/// The decoder, without experts; `tied` is for files that do not say it.
pub(crate) fn read(f: &Fields, tied: bool) -> Result<Decoder, ConfigError> {
    let defaults = defaults! { vocab: 290_943, heads: 32, eps: 1e-5, tied, ..LLAMA };
    let bias = f.flag("attention_bias");
    let d = Decoder::read_with(f, &defaults, |heads, max| Ok(vec![rope_base::read_alpha(f, heads.dim, max, 1e4)?]))?;
    Ok(d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::HeadAfter))))
}
