//! `llmcc frontier`: divergences of mixtures of several sizes, and of uniform formats, as measured.

use super::measure::{Meter, Part};
use super::sensitivity::{self, Group};
use super::trials::{Job, Trials};
use super::{measured_target, trials};
use crate::measured::Domain;
use crate::{Error, reference};
use llmcc_ir::quant::Format;
use llmcc_passes::damage::{Aim, Damage};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// An artifact, measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The format of all matrices; `None`: a mixture.
    pub uniform: Option<String>,
    /// The most bytes that the mixture was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Bytes of the matrices whose forms are chosen, but for rows that fill up the last block.
    pub bytes: f64,
    /// The same by weight.
    pub bits: f64,
    /// Bytes of the matrices by format.
    pub by_format: BTreeMap<String, f64>,
    /// Predicted tokens per second, one sequence at a time.
    pub predicted: f64,
    /// The same as measured, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    /// Measurements on text kept aside, a domain each.
    pub domains: Vec<Domain>,
    /// For mixtures: the divergence as a share of that of the best uniform format of at most as many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_best_uniform: Option<f64>,
}

/// Measures an artifact's speed.
pub type Speed<'a> = dyn Fn(&Path) -> Result<f64, Error> + 'a;

/// Measures mixtures of `points` sizes and all uniform formats, by ascending bytes. With `speed`, also how fast they
/// are.
///
/// # Errors
/// As [`super::choose`].
pub fn frontier(job: &Job<'_>, points: usize, speed: Option<&Speed<'_>>) -> Result<Vec<Point>, Error> {
    let target = measured_target(job.options)?;
    (job.say)("frontier: compiling the reference");
    let reference = reference::compile(&reference::options_of(job.options)?, job.out)?;
    let meter = Meter { program: job.program, reference: reference.path(), threads: 0 };
    let mut sizes = Sizes { trials: Trials::start(job, meter, target)?, speed };
    sizes.trials.measure_groups()?;
    let uniform = sizes.uniform()?;
    let mut all = sizes.mixtures(points, &uniform)?;
    all.extend(uniform);
    all.sort_by(|a, b| a.bytes.total_cmp(&b.bytes));
    Ok(all)
}

struct Sizes<'a, 'b> {
    trials: Trials<'a>,
    speed: Option<&'b Speed<'b>>,
}

impl Sizes<'_, '_> {
    /// All matrices in one format, for each of the formats. Matrices that cannot have it keep their own.
    fn uniform(&mut self) -> Result<Vec<Point>, Error> {
        let mut formats: Vec<Format> = vec![];
        let offered = self.trials.offers.iter().flat_map(|o| &o.forms).map(|(format, _)| *format);
        offered.filter(|f| f.is_quantized()).for_each(|f| {
            if !formats.iter().any(|known| known.has_codes_of(f)) {
                formats.push(f);
            }
        });
        let groups = self.trials.groups();
        let mut points = vec![];
        for format in formats {
            let able = groups.iter().filter(|g| self.trials.is_offered(g, format));
            let all: Group = able.flatten().copied().collect();
            let none = Damage { most: 0.0, weights: sensitivity::all_count(&groups), ..self.trials.damage.clone() };
            (self.trials.job.say)(&format!("frontier: {format}"));
            self.trials.compile(&sensitivity::trial(none, &all, format))?;
            points.push(self.point(Some(format), None)?);
        }
        Ok(points)
    }

    /// The least damage within each of several numbers of bytes, in equal ratios from the smallest forms to the largest
    /// uniform format.
    fn mixtures(&mut self, points: usize, uniform: &[Point]) -> Result<Vec<Point>, Error> {
        let most = f64::INFINITY;
        self.trials.compile(&Damage { most, aim: Aim::Smallest, ..self.trials.damage.clone() })?;
        let smallest = self.trials.chosen_bytes();
        let largest = uniform.iter().map(|p| p.bytes).fold(smallest, f64::max);
        let mut all = vec![];
        for i in 0..points {
            let share = i as f64 / (points.max(2) - 1) as f64;
            let bytes = smallest * (largest / smallest).powf(share) * (1.0 + trials::ROUNDING);
            (self.trials.job.say)(&format!("frontier: mixture {} of {points}", i + 1));
            self.trials.compile(&Damage { most, aim: Aim::LeastDamage { bytes }, ..self.trials.damage.clone() })?;
            let point = self.point(None, Some(bytes))?;
            let within = uniform.iter().filter(|p| p.bytes <= bytes).map(Point::kl).reduce(f64::min);
            let to_best_uniform = within.filter(|kl| *kl > 0.0).map(|kl| point.kl() / kl);
            all.push(Point { to_best_uniform, ..point });
        }
        Ok(all)
    }

    /// Measures the model that was compiled last.
    fn point(&mut self, uniform: Option<Format>, budget: Option<f64>) -> Result<Point, Error> {
        let made = self.trials.pack()?;
        let trials = &self.trials;
        let mut by_format: BTreeMap<String, f64> = BTreeMap::new();
        let mut elements = 0.0;
        for (offer, format) in trials.stored().iter().filter_map(|s| sensitivity::offered(&trials.offers, s)) {
            *by_format.entry(format.to_string()).or_default() += offer.bytes(format);
            elements += offer.elements;
        }
        let bytes: f64 = by_format.values().sum();
        Ok(Point {
            uniform: uniform.map(|f| f.to_string()),
            budget,
            bytes,
            bits: 8.0 * bytes / f64::max(elements, 1.0),
            by_format,
            predicted: 1.0 / trials.lowered.preferred().compiled.predicted_decode_seconds(),
            measured: self.speed.map(|speed| speed(made.path())).transpose()?,
            domains: trials.meter.domains(made.path(), trials.job.texts, Part::Kept)?,
            to_best_uniform: None,
        })
    }
}

impl Point {
    /// The mean divergence over domains, nats for a token.
    pub fn kl(&self) -> f64 {
        trials::mean_kl(&self.domains)
    }
}
