//! Rotary embeddings whose base a factor multiplies, whatever the length.

use super::error::ConfigError;
use super::fields::{Field, Fields};
use super::rope::{ROPE, base, kind, object, part_of_head, read_object};
use crate::config::dictionary::fields;
use crate::rope::{RopeConfig, RopeScaling};

/// Fields of a larger base. The others are in files of this scaling, but have no effect.
const ALPHA: &[Field] = fields! { alpha, factor, beta_fast, beta_slow, mscale, mscale_all_dim };

/// Fields of a base and of frequencies that are scaled by a fixed factor.
const NTK: &[Field] = fields! { factor, mixed_b };

/// A kind of scaling by a factor.
struct ByFactor<'a> {
    kinds: &'a [&'a str],
    fields: &'static [Field],
    /// The factor.
    field: &'static str,
}

/// As [`read`](super::rope::read) of HunYuan's models, which call a larger base "dynamic": `alpha` to the power
/// of `d/(d − 2)` multiplies it.
pub(crate) fn read_alpha(
    f: &Fields,
    head_dim: usize,
    max_position: usize,
    theta: f64,
) -> Result<RopeConfig, ConfigError> {
    // Models that see images call it "xdrope", after the sections of their positions.
    let by = ByFactor { kinds: &["dynamic", "xdrope"], fields: ALPHA, field: "alpha" };
    by.read(f, (head_dim, max_position, theta), |_, alpha, dim| {
        if dim == 2 {
            return Err(f.invalid("head_dim", &head_dim, "above 2, as the base is scaled by its power".into()));
        }
        Ok((libm::pow(alpha, dim as f64 / (dim as f64 - 2.0)), RopeScaling::Default))
    })
}

/// As [`read`](super::rope::read) of GTE's files, in which `ntk` means frequencies `(factor·θ)^(-2j/d) / factor^(2/d)`
/// (kexue.fm/archives/9706).
pub(crate) fn read_ntk(
    f: &Fields,
    head_dim: usize,
    max_position: usize,
    theta: f64,
) -> Result<RopeConfig, ConfigError> {
    let by = ByFactor { kinds: &["ntk"], fields: NTK, field: "factor" };
    by.read(f, (head_dim, max_position, theta), |r, factor, dim| {
        if let Some(b) = r.number("mixed_b") {
            let help = "all frequencies are scaled alike: leave it out".into();
            return Err(r.unsupported("mixed_b", b.to_string(), help));
        }
        Ok((factor, RopeScaling::Linear { factor: libm::pow(factor, 2.0 / dim as f64) }))
    })
}

impl ByFactor<'_> {
    /// `scaled` gives the factor of the base, and the further scaling of frequencies, by the factor
    /// and the rotated elements. Other kinds are read as usual.
    fn read(
        &self,
        f: &Fields,
        (head_dim, max_position, theta): (usize, usize, f64),
        scaled: impl FnOnce(&Fields, f64, usize) -> Result<(f64, RopeScaling), ConfigError>,
    ) -> Result<RopeConfig, ConfigError> {
        let (at, map) = object(f)?;
        if !self.kinds.contains(&kind(&f.inside(map, at, &[ROPE])?)?) {
            return read_object(f, at, map, head_dim, max_position, theta);
        }
        let tables = [ROPE, self.fields];
        let r = f.inside_rope(map, at, &tables)?;
        let factor = r.factor(self.field, 1.0)?;
        let dim = part_of_head(f, head_dim, 1.0)?;
        let (times, scaling) = scaled(&r, factor, dim)?;
        let theta = base(f, &r, at, theta)? * times;
        if !(theta as f32).is_finite() {
            return Err(r.invalid(self.field, &factor, "such that the base is a finite number".into()));
        }
        Ok(RopeConfig { theta, dim, scaling })
    }
}
