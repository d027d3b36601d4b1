//! The decoder of Qwen2, and of models that add parts to it.

use crate::arch::blocks::families::dual_chunk::within_chunk;
use crate::arch::blocks::prelude::*;

/// Llama with biases on queries, keys and values, and windows in the upper layers if asked for.
pub(crate) fn decoder(f: &Fields) -> Result<Decoder, ConfigError> {
    let defaults = defaults! { kv_heads: 32, max_position: 32_768, window: Optional, ..LLAMA };
    let mut d = Decoder::read(f, &defaults)?;
    within_chunk(f, &mut d.facts)?;
    Ok(d.with_heads(|_, _, h| h.qkv_bias = true).both_ways_if_said(f))
}
