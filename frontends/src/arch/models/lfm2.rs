//! LFM2 (arXiv 2511.23404): gated convolutions over three tokens in most layers, attention with
//! norms of queries and keys in the others.

use crate::arch::blocks::families::lfm2_layers::{self, NAMES, convolved_layers};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "lfm2",
    class: "Lfm2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, OWN],
    fixed: &[],
    goldens: &["lfm2"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let (d, conv) = (lfm2_layers::read(f)?, lfm2_layers::conv(f, 3)?);
        let layers = convolved_layers(f, d.facts.layers)?;
        let d = lfm2_layers::with_convolutions(d, conv, &layers);
        let ffn = d.layers.first().map_or(0, |l| l.mlp.ffn);
        let ffn = ffn_width(f, ffn)?;
        Ok(Box::new(d.with_mlp(|m| m.ffn = ffn)))
    },
};

const OWN: &[Field] = fields! {
    intermediate_size | block_ff_dim, norm_eps, conv_bias, conv_L_cache, block_auto_adjust_ff_dim,
    block_ffn_dim_multiplier, block_multiple_of, full_attn_idxs, layer_types: Accepts::ListOf(lfm2_layers::LAYER_TYPES),
};

/// The width of the MLPs, which `intermediate_size` is adjusted to.
fn ffn_width(f: &Fields, given: usize) -> Result<usize, ConfigError> {
    if !f.flag_or("block_auto_adjust_ff_dim", true) {
        return Ok(given);
    }
    let times = f.factor_or("block_ffn_dim_multiplier", 1.0)?;
    let wide = (times * (2 * given / 3) as f64) as usize;
    let multiple = f.size("block_multiple_of").or(256);
    match wide.div_ceil(multiple).checked_mul(multiple).filter(|n| (1..=1 << 20).contains(n)) {
        Some(n) => Ok(n),
        None => {
            let help = format!("this architecture supports MLPs of 1 to {} columns", 1 << 20);
            Err(f.unsupported("block_ffn_dim_multiplier", times.to_string(), help))
        }
    }
}
