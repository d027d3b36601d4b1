//! A rotary embedding whose base and frequencies are scaled by a fixed factor.

use super::error::ConfigError;
use super::fields::{Accepts, Field, Fields};
use super::known;
use super::rope::{ROPE, base, kind, object, part_of_head, read_object};
use crate::rope::{RopeConfig, RopeScaling};

/// What a base and frequencies that are scaled by a fixed factor are read from.
const NTK: &[Field] = &[Field::new("factor", Accepts::Number), Field::new("mixed_b", Accepts::Number)];

/// As [`read`](super::rope::read) of GTE's files, in which `ntk` means frequencies `(factor·θ)^(-2j/d) / factor^(2/d)`
/// (kexue.fm/archives/9706), whatever the length.
pub(crate) fn read_ntk(
    f: &Fields,
    head_dim: usize,
    max_position: usize,
    theta: f64,
) -> Result<RopeConfig, ConfigError> {
    let (at, map) = object(f)?;
    if kind(&f.inside(map, at, &[ROPE])?)? != "ntk" {
        return read_object(f, at, map, head_dim, max_position, theta);
    }
    let r = f.inside(map, at, &[ROPE, NTK])?;
    f.leave(known::unread_rope(map, at, |name| r.reads(name)));
    if let Some(b) = r.number("mixed_b") {
        return Err(r.unsupported("mixed_b", b.to_string(), "all frequencies are scaled alike: leave it out".into()));
    }
    let factor = r.factor("factor", 1.0)?;
    let dim = part_of_head(f, head_dim, 1.0)?;
    let theta = base(f, &r, at, theta)? * factor;
    if !(theta as f32).is_finite() {
        return Err(r.invalid("factor", &factor, "such that the base is a finite number".into()));
    }
    Ok(RopeConfig { theta, dim, scaling: RopeScaling::Linear { factor: libm::pow(factor, 2.0 / dim as f64) } })
}
