//! Other rates of samples, as `torchaudio.functional.resample` makes them by default (which Transformers' pipelines for
//! speech use): sinc interpolation with a Hann window of six zero crossings on either side.

use crate::error::{Error, Result};
use std::f64::consts::PI;

/// Zero crossings of the sinc on either side.
const CROSSINGS: f64 = 6.0;
/// Part of the lower rate's band that passes.
const ROLLOFF: f64 = 0.99;
/// The lowest rate that is read, in samples per second.
pub const LOWEST_RATE: u32 = 1000;
/// The highest.
pub const HIGHEST_RATE: u32 = 768_000;

/// The samples of a sound with `from` samples per second as those with `to`.
///
/// # Errors
/// `from` is below [`LOWEST_RATE`] or above [`HIGHEST_RATE`].
pub fn resampled(samples: &[f32], from: u32, to: u32) -> Result<Vec<f32>> {
    if !(LOWEST_RATE..=HIGHEST_RATE).contains(&from) {
        let what = format!("{from} samples per second; give a sound with {LOWEST_RATE} to {HIGHEST_RATE}");
        return Err(Error(what));
    }
    if from == to || samples.is_empty() {
        return Ok(samples.to_vec());
    }
    let divisor = gcd(from, to);
    let (from, to) = ((from / divisor) as usize, (to / divisor) as usize);
    let phases = Phases::new(from, to);
    let count = (samples.len() * to).div_ceil(from);
    Ok((0..count).map(|i| phases.at(samples, i)).collect())
}

/// Bytes of memory that [`resampled`] takes beside the samples it is given.
pub fn resampling_bytes(samples: usize, from: u32, to: u32) -> usize {
    let divisor = gcd(from, to).max(1);
    let (from, to) = ((from / divisor).max(1) as usize, (to / divisor) as usize);
    let weights = to.saturating_mul(16 * width(from, to) + 64);
    (samples / from).saturating_add(1).saturating_mul(to).saturating_mul(8).saturating_add(weights)
}

/// Samples on either side that a place between two of them depends on.
fn width(from: usize, to: usize) -> usize {
    libm::ceil(CROSSINGS * from as f64 / (from.min(to) as f64 * ROLLOFF)) as usize
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Weights of the samples around each place between two of them.
struct Phases {
    from: usize,
    to: usize,
    /// Samples before a place.
    width: usize,
    /// By phase: the first sample's distance from `place - width`, and weights from there on.
    weights: Vec<(usize, Vec<f64>)>,
}

impl Phases {
    fn new(from: usize, to: usize) -> Phases {
        let base = from.min(to) as f64 * ROLLOFF;
        let width = width(from, to);
        let weight = |phase: usize, i: usize| {
            // Places in time, in units of `from` samples.
            let t = base * ((i as f64 - width as f64) / from as f64 - phase as f64 / to as f64);
            let t = t.clamp(-CROSSINGS, CROSSINGS);
            let window = libm::cos(t * PI / CROSSINGS / 2.0);
            let sinc = if t == 0.0 { 1.0 } else { libm::sin(t * PI) / (t * PI) };
            sinc * window * window * base / from as f64
        };
        let weights = (0..to).map(|phase| {
            let first = phase * from / to;
            (first, (first..first + 2 * width + 2).map(|i| weight(phase, i)).collect())
        });
        Phases { from, to, width, weights: weights.collect() }
    }

    /// Sample `i` of the result.
    fn at(&self, samples: &[f32], i: usize) -> f32 {
        let (first, weights) = &self.weights[i % self.to];
        let start = i / self.to * self.from + first;
        let sample = |j: usize| {
            let at = (start + j).checked_sub(self.width)?;
            samples.get(at).map(|x| f64::from(*x))
        };
        weights.iter().enumerate().filter_map(|(j, w)| Some(w * sample(j)?)).sum::<f64>() as f32
    }
}
