//! Configurations of linear attention with a gate, and decoders of such layers.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::defaults::defaults;
use crate::arch::blocks::gated_linear_attention::{Decay, GatedLinear};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use crate::config::known::{Neutral, fixed};
use crate::config::{ConfigError, rope as read_rope};
use llmcc_ir::graph::UnaryOp;

/// Defaults of the configuration classes.
pub(crate) struct Absent {
    /// `num_heads`.
    pub heads: usize,
    /// `expand_k` and `expand_v`.
    pub expand: [f64; 2],
    /// `hidden_ratio`.
    pub ratio: usize,
}

/// Fields common to both configurations.
pub(crate) const FIELDS: &[Field] = fields! {
    num_attention_heads | num_heads, num_key_value_heads | num_kv_heads, intermediate_size, hidden_ratio, norm_eps,
    expand_k, expand_v,
};

/// Fields that both classes decide by themselves: details of computation, and features that no
/// published model has.
pub(crate) const FIXED: &[(&str, Neutral)] = fixed! {
    Any => attn_mode fuse_norm fuse_swiglu fuse_cross_entropy fuse_linear_cross_entropy use_l2warp conv_size;
    On => elementwise_affine use_output_gate use_gk;
    Off => use_gv clamp_min feature_map attn;
    Words(&["swish", "silu"]) => hidden_act;
    // Read by one of them only; the other has no convolutions.
    Off => use_short_conv;
};

/// A decoder of such layers; `conv` is how many tokens their convolutions see.
pub(crate) fn read(f: &Fields, decay: Decay, conv: Option<usize>, absent: &Absent) -> Result<Decoder, ConfigError> {
    let heads = f.size("num_attention_heads").or(absent.heads);
    let hidden = f.required_size("hidden_size")?;
    let width = |field: &str, default: f64| {
        let times = f.factor_or(field, default)?;
        let width = (hidden as f64 * times) as usize;
        let whole = width.is_multiple_of(heads) && (1..=1 << 20).contains(&width);
        let expected = || format!("a factor that gives each of {heads} heads as many columns");
        whole.then_some(width).ok_or_else(|| f.invalid(field, &times, expected()))
    };
    let [keys, values] = [width("expand_k", absent.expand[0])?, width("expand_v", absent.expand[1])?];
    let (key_dim, rotates) = (keys / heads, decay == Decay::OfHeads);
    if rotates && !key_dim.is_multiple_of(2) {
        let times = f.factor_or("expand_k", absent.expand[0])?;
        return Err(f.invalid("expand_k", &times, "a factor that gives each head an even number of columns".into()));
    }
    let defaults = defaults! {
        vocab: 32_000, heads: absent.heads, head_dim: key_dim, eps(norm_eps): 1e-6, ffn: 1, ..LLAMA
    };
    let d = Decoder::read_with(f, &defaults, |heads, max_position| match rotates {
        true => Ok(vec![read_rope::read(f, heads.dim, max_position, defaults.theta)?]),
        false => Ok(vec![]),
    })?;
    let ffn = match f.size("intermediate_size").value() {
        Some(n) => n,
        None => ffn(f, hidden, absent.ratio)?,
    };
    let kv = d.layers.first().map_or(heads, |l| l.attention.heads.kv);
    let mixer = GatedLinear { heads, kv, keys, values, conv, decay };
    let d = d.with_attention(|_, a| a.rotary = rotates.then_some(0)).with_mixers(|_| Some(Mixer::GatedLinear(mixer)));
    Ok(d.with_mlp(|m| (m.ffn, m.act) = (ffn, UnaryOp::Silu)))
}

/// The width of MLPs where none is given: two thirds of the ratio, in whole 256.
fn ffn(f: &Fields, hidden: usize, ratio: usize) -> Result<usize, ConfigError> {
    let ratio = f.size("hidden_ratio").or(ratio);
    let wide = hidden.saturating_mul(ratio).saturating_mul(2) / 3;
    let width = wide.checked_next_multiple_of(256).filter(|n| (1..=1 << 20).contains(n));
    let expected = || format!("a ratio that makes MLPs of 1 to {} columns", 1 << 20);
    width.ok_or_else(|| f.invalid("hidden_ratio", &ratio, expected()))
}
