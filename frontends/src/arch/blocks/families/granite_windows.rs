//! Granite's attention with windows in most layers, sinks, and a rotation of its own in each layer.

use crate::arch::blocks::decoder::Decoder;
use crate::config::ConfigError;
use crate::config::common;
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};

/// Bases of the layers' rotations; 0: positions are not rotated.
const BASES: &str = "layer_rope_theta";

/// Fields of [`with_windows`] besides [`WINDOW`](common::WINDOW).
pub(crate) const BASE_OF_EACH: &[Field] = fields! { layer_rope_theta };

/// Gives layers sinks, windows in all but each fourth where nothing is said, and rotary tables.
pub(crate) fn with_windows(f: &Fields, mut d: Decoder) -> Result<Decoder, ConfigError> {
    let layers = d.layers.len();
    let window = f.size("sliding_window").or_null(128);
    let sliding = common::sliding_layers(f, layers)?;
    let bases = bases(f, layers)?;
    if let Some(bases) = &bases
        && let Some(rope) = d.ropes.pop()
    {
        for theta in bases.iter().copied().filter(|theta| *theta != 0.0) {
            if d.ropes.iter().all(|rope| rope.theta != theta) {
                d.ropes.push(crate::rope::RopeConfig { theta, ..rope.clone() });
            }
        }
    }
    let ropes = d.ropes.clone();
    Ok(d.with_attention(|i, a| {
        a.sinks = true;
        a.window = window.filter(|_| sliding.as_ref().map_or(i % 4 != 0, |s| s[i]));
        a.rotary = bases.as_ref().map_or(a.rotary, |bases| ropes.iter().position(|rope| rope.theta == bases[i]));
    }))
}

fn bases(f: &Fields, layers: usize) -> Result<Option<Vec<f64>>, ConfigError> {
    let Some(list) = f.numbers(BASES) else { return Ok(None) };
    let base = |x: &f64| *x == 0.0 || *x > 1.0 && (*x as f32).is_finite();
    if list.len() < layers || !list.iter().take(layers).all(base) {
        return Err(f.invalid(BASES, &list, format!("{layers} bases, 0 where positions are not rotated")));
    }
    Ok(Some(list.into_iter().take(layers).collect()))
}
