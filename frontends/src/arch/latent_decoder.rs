//! Decoders with latent attention, by their configuration.

use super::decoder::{Decoder, Defaults};
use super::latent::Latent;
use crate::config::fields::Fields;
use crate::config::{ConfigError, rope};

/// A decoder whose layers have latent attention. What `default` says of heads is for absent fields;
/// the width of `default`'s heads is taken from `latent`.
pub(super) fn decoder(f: &Fields, default: Defaults, latent: Latent) -> Result<Decoder, ConfigError> {
    let rotated = f.size("qk_rope_head_dim").or(latent.rope);
    if let Some(n) = f.size("head_dim").value().filter(|n| *n != rotated) {
        let help = format!("this architecture has `qk_rope_head_dim` ({rotated}) there, or nothing");
        return Err(f.unsupported("head_dim", n.to_string(), help));
    }
    let heads = default.heads;
    let theta = default.theta;
    let default = Defaults { head_dim: Some(rotated), kv_heads: None, ..default };
    let d = Decoder::read_with(f, &default, |_, max| Ok(vec![rope::read(f, rotated, max, theta)?]))?;
    let (latent, heads) = Latent::read(f, f.size_or("num_attention_heads", heads)?, latent)?;
    let scale = (rope::score_scale(f)? / (heads.dim as f64).sqrt()) as f32;
    Ok(d.with_attention(|_, a| (a.heads, a.scale, a.latent) = (heads, scale, Some(latent))))
}
