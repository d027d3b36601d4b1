//! Frequencies of the rotary embedding (RoFormer, arXiv 2104.09864) and their rescalings for long
//! contexts.
//!
//! Computed as Transformers does, in f32 and in the same order of operations, because a position
//! multiplies the rounding error of a frequency. Powers are taken in f64 by `libm` and rounded, so
//! they are the same on every machine.

use llmcc_ir::graph::{AXES, F32, Op};
use std::f64::consts::TAU;

/// Parameters of the rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the geometric sequence of wavelengths.
    pub theta: f64,
    /// Rotated elements per head; even, at most `head_dim`.
    pub dim: usize,
    /// Change of the frequencies for long contexts.
    pub scaling: RopeScaling,
}

/// Rewriting of the rotary frequencies; names and meaning as in Transformers' `rope_parameters`.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// None.
    Default,
    /// All frequencies divided by `factor`.
    Linear {
        /// Divisor.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths divided, short ones kept, linear between.
    Llama3 {
        /// Divisor of long wavelengths.
        factor: f64,
        /// Wavelengths above `original / low` are divided.
        low: f64,
        /// Wavelengths below `original / high` are kept. (Llama 4 Scout has nothing between.)
        high: f64,
        /// Context of pretraining.
        original: f64,
    },
    /// YaRN (arXiv 2309.00071).
    Yarn {
        /// Context extension.
        factor: f64,
        /// Multiplies sines and cosines.
        attention_factor: f64,
        /// Rotations over the original context above which a frequency is kept.
        beta_fast: f64,
        /// Rotations below which it is divided.
        beta_slow: f64,
        /// Context of pretraining.
        original: f64,
        /// Round the correction range to whole dimensions.
        truncate: bool,
    },
    /// The first of the pairs of the whole head turn, the others stand still.
    Proportional {
        /// How much of the head turns.
        part: f64,
        /// Divisor.
        factor: f64,
    },
    /// LongRoPE (arXiv 2402.13753): each frequency divided by a factor of its own. Sequences longer than
    /// the context of pretraining have other factors than shorter ones, for all of their positions.
    LongRope {
        /// Factors for sequences of at most `original` tokens.
        short: LongRopeFactors,
        /// Factors for longer ones.
        long: LongRopeFactors,
        /// Context of pretraining.
        original: usize,
    },
}

/// One of the two sets of numbers of LongRoPE.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRopeFactors {
    /// Divisors of the frequencies, one per pair.
    pub divisors: Vec<f64>,
    /// Multiplies sines and cosines.
    pub attention_factor: f64,
}

/// Frequencies of a rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians per position of each pair `(j, j + dim/2)`: `[dim/2]`.
    pub inv_freq: Vec<f32>,
    /// Multiplies sines and cosines.
    pub scale: f32,
}

/// Which pairs of a rotary embedding turn along which axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sections {
    /// Pairs of each axis.
    pub sizes: [usize; AXES],
    /// Axes take turns, as long as each has pairs left, and the first has the rest; else the pairs of an axis stand
    /// together.
    pub interleaved: bool,
}

impl Sections {
    /// The axis of a pair.
    pub fn axis(&self, pair: usize) -> usize {
        if self.interleaved {
            let axis = pair % AXES;
            return if pair < AXES * self.sizes[axis] { axis } else { 0 };
        }
        let ends = self.sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        });
        ends.take(AXES - 1).filter(|end| *end <= pair).count()
    }

    /// Frequencies of each axis, one after the other: the axis's own pairs have theirs, the others zeros.
    pub fn spread(&self, inv_freq: &[f32]) -> Vec<f32> {
        let of = |axis: usize| {
            let own = move |(j, f): (usize, &f32)| if self.axis(j) == axis { *f } else { 0.0 };
            inv_freq.iter().enumerate().map(own)
        };
        (0..AXES).flat_map(of).collect()
    }
}

impl Rope {
    /// The operation that makes the table of them.
    pub fn table(&self) -> Op {
        Op::RopeTable { scale: F32::new(self.scale), border: 0, most: 0 }
    }

    /// The operation that makes a table by positions along axes.
    pub fn table_of_axes(&self) -> Op {
        Op::RopeAxes { scale: F32::new(self.scale) }
    }
}

/// The frequencies that a configuration describes, for sequences of up to `max_context` tokens.
///
/// LongRoPE's depend on it. Keys in a cache are rotated already when a sequence outgrows the context of
/// pretraining, so the longest sequence decides for all, as in vLLM and llama.cpp.
pub fn frequencies(c: &RopeConfig, max_context: usize) -> Rope {
    let wavelengths = powers(c);
    let plain = wavelengths.iter().map(|w| 1.0 / w);
    let same = |inv_freq, scale| Rope { inv_freq, scale };
    match c.scaling {
        RopeScaling::Default => same(plain.collect(), 1.0),
        RopeScaling::Linear { factor } => same(plain.map(|f| f / factor as f32).collect(), 1.0),
        RopeScaling::Proportional { part, factor } => {
            let turning = (part * c.dim as f64) as usize / 2;
            let kept = plain.enumerate().map(|(j, f)| if j < turning { f / factor as f32 } else { 0.0 });
            same(kept.collect(), 1.0)
        }
        RopeScaling::Llama3 { factor, low, high, original } => {
            same(plain.map(|f| llama3(f, factor, low, high, original)).collect(), 1.0)
        }
        RopeScaling::Yarn { attention_factor, .. } => same(yarn(c, &wavelengths), attention_factor as f32),
        RopeScaling::LongRope { ref short, ref long, original } => {
            let LongRopeFactors { divisors, attention_factor } = if max_context > original { long } else { short };
            let divided = wavelengths.iter().zip(divisors).map(|(w, by)| 1.0 / (*by as f32 * w));
            same(divided.collect(), *attention_factor as f32)
        }
    }
}

/// `theta^(2j/dim)` for each pair.
fn powers(c: &RopeConfig) -> Vec<f32> {
    let base = f64::from(c.theta as f32);
    (0..c.dim / 2).map(|j| libm::pow(base, f64::from(2.0 * j as f32 / c.dim as f32)) as f32).collect()
}

/// Llama 3.1: divides low frequencies by `factor`, keeps high ones, interpolates between.
fn llama3(f: f32, factor: f64, low: f64, high: f64, original: f64) -> f32 {
    let wavelength = (1.0 / f) * TAU as f32;
    let scaled = f / factor as f32;
    if wavelength > (original / low) as f32 {
        return scaled;
    }
    if wavelength < (original / high) as f32 || low == high {
        return f;
    }
    let smooth = ((1.0 / wavelength) * original as f32 - low as f32) / (high - low) as f32;
    (1.0 - smooth) * f / factor as f32 + smooth * f
}

/// YaRN, "NTK by parts": dimensions that turn often keep their frequency, those that turn rarely
/// are interpolated.
fn yarn(c: &RopeConfig, wavelengths: &[f32]) -> Vec<f32> {
    let RopeScaling::Yarn { factor, beta_fast, beta_slow, original, truncate, .. } = c.scaling else {
        unreachable!("called for YaRN only")
    };
    let dim = c.dim as f64;
    // The dimension that makes `rotations` turns over the original context.
    let correction = |rotations: f64| dim * libm::log(original / (rotations * TAU)) / (2.0 * libm::log(c.theta));
    let (mut low, mut high) = (correction(beta_fast), correction(beta_slow));
    if truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(dim - 1.0));
    if low == high {
        high += 0.001;
    }
    let ramp = |j: usize| ((j as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
    wavelengths
        .iter()
        .enumerate()
        .map(|(j, w)| {
            let keep = 1.0 - ramp(j);
            let (kept, divided) = (1.0 / w, 1.0 / (factor as f32 * w));
            divided * (1.0 - keep) + kept * keep
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Model;
    use crate::testing::{config, with};
    use serde_json::{Value, json};

    /// The graph's embedding for a configuration.
    fn rope(json: &Value) -> Rope {
        let (module, _) = Model::parse(json).unwrap().imagined().unwrap();
        let inv_freq = module.weights.iter().find(|w| w.name == "$rope.inv_freq").unwrap().data.clone().unwrap();
        let table = |op: &Op| match op {
            Op::RopeTable { scale, border: 0, most: 0 } => Some(scale.get()),
            _ => None,
        };
        let scale = module.funcs[0].nodes.iter().find_map(|n| table(&n.op)).unwrap();
        Rope { inv_freq, scale }
    }

    /// Against Transformers. Its power function is not always correctly rounded (1 in 200 values
    /// here is off by one unit), ours is; through two more roundings that may become two units.
    #[test]
    fn frequencies_equal_transformers() {
        let goldens: Vec<Value> = serde_json::from_str(include_str!("../tests/rope_goldens.json")).unwrap();
        let (mut total, mut differing) = (0, 0);
        for case in &goldens {
            let mut changes = case.clone();
            changes
                .as_object_mut()
                .unwrap()
                .retain(|k, _| ["head_dim", "max_position_embeddings", "rope_parameters"].contains(&k.as_str()));
            let base = with(config("llama"), json!({ "rope_theta": "absent" }));
            let rope = rope(&with(base, changes));
            assert_eq!(rope.scale, case["scale"].as_f64().unwrap() as f32, "{}", case["name"]);
            let bits: Vec<i64> =
                case["inv_freq_bits"].as_array().unwrap().iter().map(|b| b.as_i64().unwrap()).collect();
            assert_eq!(rope.inv_freq.len(), bits.len());
            for (j, (ours, theirs)) in rope.inv_freq.iter().zip(bits).enumerate() {
                let ulps = (i64::from(ours.to_bits()) - theirs).abs();
                assert!(ulps <= 2, "{} [{j}]: {ours} is off by {ulps} units", case["name"]);
                total += 1;
                differing += usize::from(ulps > 0);
            }
        }
        assert!(total > 400 && differing * 100 <= total, "{differing} of {total} frequencies differ");
    }

    /// Transformers' `freq.split(sections)` and `apply_interleaved_mrope`.
    #[test]
    fn sections_share_pairs_among_axes() {
        let axes = |sizes, interleaved, pairs| {
            let sections = Sections { sizes, interleaved };
            (0..pairs).map(|pair| sections.axis(pair)).collect::<Vec<_>>()
        };
        assert_eq!(axes([2, 3, 3], false, 8), [0, 0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(axes([0, 1, 1], false, 2), [1, 2]);
        assert_eq!(axes([2, 3, 3], true, 8), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(axes([4, 2, 2], true, 8), [0, 1, 2, 0, 1, 2, 0, 0]);
        let sections = Sections { sizes: [1, 2, 1], interleaved: false };
        let spread = [[1.0, 0.0, 0.0, 0.0], [0.0, 2.0, 3.0, 0.0], [0.0, 0.0, 0.0, 4.0]].concat();
        assert_eq!(sections.spread(&[1.0, 2.0, 3.0, 4.0]), spread);
    }

    #[test]
    fn extreme_parameters_stay_finite() {
        let yarn = json!({ "rope_type": "yarn", "factor": 1e6, "original_max_position_embeddings": 1 });
        let llama3 =
            json!({ "rope_type": "llama3", "factor": 1e30, "low_freq_factor": 1e-30, "high_freq_factor": 1e30 });
        // As Llama 4 Scout has it.
        let nothing_between = json!({
            "rope_type": "llama3", "factor": 16, "low_freq_factor": 1, "high_freq_factor": 1,
            "original_max_position_embeddings": 64
        });
        for scaling in [yarn, llama3, nothing_between, json!(null)] {
            for theta in [1.0000001, 1e38] {
                let json =
                    with(config("llama"), json!({ "rope_theta": theta, "rope_scaling": scaling, "head_dim": 128 }));
                let rope = rope(&json);
                assert!(rope.inv_freq.iter().all(|f| f.is_finite() && *f >= 0.0), "{json}: {rope:?}");
            }
        }
    }
}
