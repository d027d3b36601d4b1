//! The certificate of a choice.

use super::measure::Part;
use super::search::{Found, out_of_reach, value};
use super::sensitivity;
use super::trials::Trials;
use crate::Error;
use crate::bounds::Bound;
use crate::measured::{Decision, Domain, Held, Measured};
use crate::options::CompileOptions;
use crate::session::Lowered;
use llmcc_ir::target::TargetSpec;
use llmcc_passes::Stored;
use std::collections::BTreeMap;

/// A choice that keeps the bounds.
pub struct Chosen {
    /// The options that make it, with its measurements.
    pub options: CompileOptions,
    /// The model, compiled with them.
    pub lowered: Lowered,
}

/// The reference, in words.
const REFERENCE: &str = "the checkpoint in its own types, with f32 activations and cache";

/// Compiles the choice for all targets, measures it on the text kept aside, and records everything.
pub(super) fn certify(mut trials: Trials<'_>, found: Found, target: &TargetSpec) -> Result<Chosen, Error> {
    let damage = sensitivity::forced(&trials.lowered.module, &trials.damage, &found.stored);
    let job = trials.job;
    trials.options = CompileOptions { damage: Some(damage), weights: None, ..job.options.clone() };
    let made = trials.make_all(&trials.options.clone())?;
    (job.say)("budget: measuring the artifact on the text that was kept aside");
    let kept = trials.meter.domains(made.path(), job.texts, Part::Kept)?;
    let bounds = held(&trials, &kept)?;
    let decisions = found.stored.iter().map(|s| decision(&trials, s)).collect();
    let versions = trials.lowered.versions.iter().map(|v| v.target.name);
    let measured = Measured {
        bounds,
        reference: REFERENCE.into(),
        target: target.name.into(),
        not_measured: versions.filter(|name| *name != target.name).map(str::to_owned).collect(),
        domains: kept,
        chosen_by: found.domains,
        decisions,
        rounds: found.rounds,
        rewrites: rewrites(&trials.lowered),
        hashes: Some(made.hashes),
    };
    let options = CompileOptions { measured: Some(measured), ..trials.options };
    Ok(Chosen { options, lowered: trials.lowered })
}

/// Each bound with the artifact's value.
///
/// # Errors
/// A bound that the whole interval of its value exceeds, or whose value does.
fn held(trials: &Trials<'_>, kept: &[Domain]) -> Result<Vec<Held>, Error> {
    let one = |bound: &Bound| {
        let means = || kept.iter().filter_map(|d| value(*bound, d));
        let found = means().map(|m| m.mean).reduce(f64::max).unwrap_or_else(|| trials.resource(*bound));
        let least = means().map(|m| m.least()).reduce(f64::max).unwrap_or(found);
        if bound.load(least) <= 1.0 {
            return Ok(Held { bound: bound.to_string(), value: found, measured: bound.is_measured() });
        }
        Err(Error::Failed(match bound.is_measured() {
            true => format!(
                "--budget {bound}: it holds on the text by which the forms were chosen, but on the text kept aside \
                 the artifact has {}, beyond the interval of the measurement: give a longer text of its kind \
                 (--budget-text FILE), or a smaller bound; nothing was written",
                bound.words(found)
            ),
            false => out_of_reach(*bound, found, "with all versions"),
        }))
    };
    trials.job.bounds.iter().map(one).collect()
}

fn decision(trials: &Trials<'_>, s: &Stored) -> Decision {
    Decision {
        what: s.subject.clone(),
        form: s.form.clone(),
        relative_rms_error: s.error,
        predicted_kl: sensitivity::damage_of(&trials.damage, &trials.offers, s),
    }
}

/// The rewrites that were applied to a model's functions, with how often.
fn rewrites(l: &Lowered) -> Vec<String> {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, n) in l.preferred().compiled.stats.iter().flat_map(|f| &f.applied) {
        *all.entry(name).or_default() += n;
    }
    all.into_iter().map(|(name, n)| format!("{name} {n}")).collect()
}
