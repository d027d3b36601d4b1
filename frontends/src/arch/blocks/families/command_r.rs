//! Common parts of the generations of Cohere's Command models.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::defaults::defaults;
use crate::config::ConfigError;
use crate::config::common::{self, Heads};
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use crate::config::rope;
use crate::rope::RopeConfig;

pub(crate) const LOGIT_SCALE: &[Field] = fields! { logit_scale };

/// Defaults of both generations.
pub(crate) const DEFAULTS: Defaults = defaults! {
    vocab: 256_000, heads: 64, max_position: 8192, tied: true, eps(layer_norm_eps): 1e-5, ..LLAMA
};

/// Reads the fields common to both generations.
pub(crate) fn read(f: &Fields, defaults: &Defaults) -> Result<Decoder, ConfigError> {
    read_with(f, defaults, |heads, max| Ok(vec![rope::read(f, heads.dim, max, defaults.theta)?]))
}

/// The same with other rotary tables.
pub(crate) fn read_with(
    f: &Fields,
    defaults: &Defaults,
    ropes: impl FnOnce(Heads, usize) -> Result<Vec<RopeConfig>, ConfigError>,
) -> Result<Decoder, ConfigError> {
    let bias = f.flag("attention_bias");
    let mut d = Decoder::read_with(f, defaults, ropes)?;
    (d.norm, d.norms) = (Norm { bias: false, ..Norm::layer(d.norm.eps) }, Norms::Parallel { own: false });
    d.scales.logits = if f.number("logit_scale").is_some() { common::factor(f, "logit_scale")? } else { Some(0.0625) };
    Ok(d.with_heads(|_, a, h| (h.qkv_bias, h.out_bias, h.neighbours) = (bias, bias, a.heads.dim)))
}
