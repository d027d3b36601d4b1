//! Decoders with latent attention, by their configuration.

use crate::arch::blocks::attention::Form;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::latent_attention::Latent;
use crate::config::fields::Fields;
use crate::config::{ConfigError, rope};

/// A decoder whose layers have latent attention. `default` gives heads for absent fields; the width
/// of `default`'s heads is taken from `latent`.
pub(crate) fn decoder(f: &Fields, default: Defaults, latent: Latent) -> Result<Decoder, ConfigError> {
    let [rotated, whole] = widths(f, &latent);
    // The classes overwrite it; files have one of these or their sum there.
    let rest = whole - rotated;
    if let Some(n) = f.size("head_dim").value().filter(|n| ![rotated, rest, whole].contains(n)) {
        let help = format!(
            "this architecture expects `qk_rope_head_dim` ({rotated}), or `qk_nope_head_dim` ({rest}), or both together"
        );
        return Err(f.unsupported("head_dim", n.to_string(), help));
    }
    of_parts(f, default, latent)
}

/// The rotated width of a head of queries, and its whole width, which newer files have in
/// `head_dim`, too.
fn widths(f: &Fields, latent: &Latent) -> [usize; 2] {
    let rotated = f.size("qk_rope_head_dim").or(latent.rope);
    [rotated, rotated.saturating_add(f.size("qk_nope_head_dim").or(latent.nope))]
}

/// The same where `head_dim` says something else.
pub(crate) fn of_parts(f: &Fields, default: Defaults, latent: Latent) -> Result<Decoder, ConfigError> {
    let [rotated, whole] = widths(f, &latent);
    let heads = default.heads;
    let theta = default.theta;
    let default = Defaults { head_dim: Some(rotated), kv_heads: None, ..default };
    // A part is one of the whole head.
    let of = if rope::says_part(f)? { whole } else { rotated };
    let d = Decoder::read_with(f, &default, |_, max| Ok(vec![rope::read(f, of, max, theta)?]))?;
    if let Some(part) = d.ropes.first().map(|r| r.dim).filter(|n| *n != rotated) {
        let help = format!("this architecture expects `qk_rope_head_dim` ({rotated}) of {whole} elements");
        return Err(f.unsupported("partial_rotary_factor", format!("{part} of {whole}"), help));
    }
    let (latent, heads) = Latent::read(f, f.size_or("num_attention_heads", heads)?, latent)?;
    let scale = (rope::score_scale(f)? / (heads.dim as f64).sqrt()) as f32;
    Ok(d.with_attention(|_, a| (a.heads, a.scale, a.form) = (heads, scale, Form::Latent(latent))))
}
