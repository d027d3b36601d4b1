//! Common parts of the dense GLM-4 models: rotation of neighbours in half of each head, biases on
//! Q, K and V, gate and up in one matrix.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::defaults::defaults;
use crate::arch::blocks::mlp::Joined;
use crate::config::ConfigError;
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, PARTIAL_ROTARY};
use crate::config::fields::{Field, Fields, IDENTITY};

/// The fields that [`read`] reads.
pub(crate) const FIELDS: &[&[Field]] = &[IDENTITY, MODEL, ATTENTION, MLP, PARTIAL_ROTARY, ATTENTION_BIAS];

/// Defaults of most configuration classes.
pub(crate) const DEFAULTS: Defaults = defaults! {
    vocab: 151_552, heads: 32, kv_heads: 2, head_dim: 128, max_position: 131_072, eps: 1.5625e-7, partial: 0.5, ..LLAMA
};

/// The decoder, with norms before the blocks.
pub(crate) fn read(f: &Fields, defaults: &Defaults, bias: bool) -> Result<Decoder, ConfigError> {
    let d = Decoder::read(f, defaults)?;
    let rotated = d.ropes.first().map_or(0, |rope| rope.dim);
    let d = d.with_heads(|_, _, h| (h.qkv_bias, h.neighbours) = (bias, rotated));
    Ok(d.with_mlp(|m| m.joined = Some(Joined::GateUp)))
}
