//! The search for forms that keep the bounds as measured: the fastest ones, or the smallest.

use super::measure::Part;
use super::trials::{ROUNDING, Trials};
use crate::Error;
use crate::bounds::Bound;
use crate::divergence::Mean;
use crate::measured::Domain;
use llmcc_passes::Stored;
use llmcc_passes::damage::{Aim, Damage};
use std::collections::BTreeMap;

/// Artifacts measured at most.
const ROUNDS: usize = 6;
/// Share of a bound that is enough: a choice that takes more of it is not improved.
const ENOUGH: f64 = 0.8;
/// Share of a bound that a correction aims at.
const AIM: f64 = 0.92;
/// Choices compiled at most where a bound of damage is bisected.
const STEPS: i32 = 16;
/// Choices compiled at most for a bound of bytes.
const CORRECTIONS: usize = 4;

/// A choice that keeps the bounds.
pub struct Found {
    /// Its forms.
    pub stored: Vec<Stored>,
    /// Measurements on the part that the choice was made by.
    pub domains: Vec<Domain>,
    /// Artifacts that were measured.
    pub rounds: usize,
}

/// The measured value of a bound; `None` where it is not measured.
pub fn value(bound: Bound, domain: &Domain) -> Option<Mean> {
    let grown = |m: Mean| Mean { mean: m.mean.exp_m1(), low: m.low.map(f64::exp_m1), high: m.high.map(f64::exp_m1) };
    match bound {
        Bound::Kl(_) => Some(domain.found.kl.mean),
        Bound::Perplexity(_) => Some(grown(domain.found.nll_difference)),
        Bound::Bytes(_) | Bound::Memory(..) | Bound::Speed(_) => None,
    }
}

/// The message about a bound that no choice keeps, `best` being the nearest value.
pub fn out_of_reach(bound: Bound, best: f64, with: &str) -> String {
    format!("--budget {bound} cannot be kept: {with}, the artifact has {}; nothing was written", bound.words(best))
}

/// The largest share of the measured bounds that domains take, by the upper ends of their intervals.
fn load(bounds: &[Bound], domains: &[Domain]) -> f64 {
    let of = |bound: Bound| domains.iter().filter_map(move |d| Some(bound.load(value(bound, d)?.most())));
    bounds.iter().copied().flat_map(of).fold(0.0, f64::max)
}

/// Finds the fastest choice within the measured bounds, or the smallest one where the fastest is too large; without
/// measured bounds, the choice of the least damage within the others.
pub(super) fn search(trials: &mut Trials<'_>) -> Result<Found, Error> {
    let bounds = trials.job.bounds.to_vec();
    if !bounds.iter().any(|b| b.is_measured()) {
        return least_damage(trials);
    }
    let found = best(trials, &bounds)?;
    match keeps_resources(trials, &found) {
        Ok(()) => Ok(found.choice),
        Err(e) if !bounds.iter().any(|b| b.is_size()) => Err(e),
        Err(_) => {
            (trials.job.say)("budget: the fastest choice is too large; searching the smallest one");
            trials.damage.aim = Aim::Smallest;
            let found = best(trials, &bounds)?;
            keeps_resources(trials, &found)?;
            Ok(found.choice)
        }
    }
}

/// A choice that was measured.
struct Tried {
    choice: Found,
    /// The bound of predicted damage that it keeps.
    most: f64,
    /// Its share of the measured bounds.
    load: f64,
}

/// The part of the bounds that damages may add up to: in nats, as a growth of perplexity is.
fn allowed(bounds: &[Bound], base: &[Domain]) -> f64 {
    let nats = |b: &Bound| match *b {
        Bound::Kl(most) => Some(most),
        Bound::Perplexity(most) => Some(most.ln_1p()),
        Bound::Bytes(_) | Bound::Memory(..) | Bound::Speed(_) => None,
    };
    let least = bounds.iter().filter_map(nats).fold(f64::INFINITY, f64::min);
    let before = base.iter().map(|d| d.found.kl.mean.mean).fold(0.0, f64::max);
    (least - before).max(0.0)
}

/// The fastest choice whose measured damage keeps the bounds, or the smallest.
fn best(trials: &mut Trials<'_>, bounds: &[Bound]) -> Result<Tried, Error> {
    let mut most = allowed(bounds, &trials.base);
    let (mut good, mut nearest): (Option<Tried>, f64) = (None, f64::INFINITY);
    // Bounds of predicted damage that are known to be small enough, and too large.
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut rounds = 0;
    while rounds < ROUNDS {
        let made = trials.make(&Damage { most, ..trials.damage.clone() })?;
        let (stored, predicted) = (trials.stored().to_vec(), trials.predicted());
        if good.as_ref().is_some_and(|g| g.choice.stored == stored) {
            break;
        }
        rounds += 1;
        let domains = trials.meter.domains(made.path(), trials.job.texts, Part::Choice)?;
        let load = load(bounds, &domains);
        (trials.job.say)(&format!("budget: round {rounds} takes {:.0} % of the bound", load * 100.0));
        let next = if load <= 1.0 {
            (good, low) = (Some(Tried { choice: Found { stored, domains, rounds }, most, load }), most);
            if load > ENOUGH {
                break;
            }
            most * (AIM / load).clamp(1.0, 8.0)
        } else {
            (high, nearest) = (high.min(predicted), nearest.min(load));
            predicted * AIM / load
        };
        most = if next > low && next < high { next } else { (low + high) / 2.0 };
        if good.is_none() && rounds + 1 == ROUNDS {
            most = 0.0;
        }
        if !most.is_finite() || most >= high || good.is_some() && most <= low {
            break;
        }
    }
    match good {
        Some(mut tried) => {
            tried.choice.rounds = rounds;
            Ok(tried)
        }
        None => Err(broken(bounds, nearest, rounds)),
    }
}

/// The error where no round kept the measured bounds.
fn broken(bounds: &[Bound], nearest: f64, rounds: usize) -> Error {
    let names: Vec<String> = bounds.iter().filter(|b| b.is_measured()).map(ToString::to_string).collect();
    Error::Failed(format!(
        "--budget {} cannot be kept: the nearest of {rounds} measured artifacts takes {:.2} times as much (by the \
         upper end of its interval); give a larger bound, a longer text (--budget-text FILE), or --kv f32 and \
         --act f32; nothing was written",
        names.join(" --budget "),
        nearest
    ))
}

/// The first bound that is not measured and that the model compiled last breaks, with its value.
fn first_broken(trials: &Trials<'_>) -> Option<(Bound, f64)> {
    let of = |b: &Bound| (*b, trials.resource(*b));
    trials.job.bounds.iter().filter(|b| !b.is_measured()).map(of).find(|(b, value)| b.load(*value) > 1.0)
}

/// Checks, before groups are measured, that the smallest or the fastest forms keep the bounds that need no measurement.
pub(super) fn check_resources(trials: &mut Trials<'_>) -> Result<(), Error> {
    let damage = Damage { most: f64::INFINITY, weights: BTreeMap::new(), ..trials.damage.clone() };
    let aims = aims(trials);
    if first_that_keeps(trials, &damage, &aims)?.is_some() {
        return Ok(());
    }
    let Some((bound, value)) = first_broken(trials) else { return Ok(()) };
    let smallest = aims.contains(&Aim::Smallest);
    let forms = if smallest { "with the smallest formats" } else { "with the fastest formats" };
    Err(Error::Failed(out_of_reach(bound, value, forms)))
}

/// The aims of choices by bounds that are not measured: the smallest one where they are of sizes, the fastest one where
/// they are of speed.
fn aims(trials: &Trials<'_>) -> Vec<Aim> {
    let bounds = trials.job.bounds;
    let (sizes, speed) = (bounds.iter().any(|b| b.is_size()), bounds.iter().any(|b| matches!(b, Bound::Speed(_))));
    [(!sizes || speed).then_some(Aim::Fastest), sizes.then_some(Aim::Smallest)].into_iter().flatten().collect()
}

/// Compiles by some damage for one aim after the other, until the bounds that are not measured hold. Returns that aim.
fn first_that_keeps(trials: &mut Trials<'_>, damage: &Damage, aims: &[Aim]) -> Result<Option<Aim>, Error> {
    for aim in aims {
        trials.compile(&Damage { aim: *aim, ..damage.clone() })?;
        if first_broken(trials).is_none() {
            return Ok(Some(*aim));
        }
    }
    Ok(None)
}

/// Checks the bounds that are not measured, for a choice.
fn keeps_resources(trials: &mut Trials<'_>, best: &Tried) -> Result<(), Error> {
    trials.compile(&Damage { most: best.most, ..trials.damage.clone() })?;
    match first_broken(trials) {
        None => Ok(()),
        Some((bound, value)) => {
            let share = format!("with {:.0} % of the measured bounds used", best.load * 100.0);
            Err(Error::Failed(out_of_reach(bound, value, &share)))
        }
    }
}

/// The choice of the least predicted damage that keeps bounds of bytes, memory and speed.
fn least_damage(trials: &mut Trials<'_>) -> Result<Found, Error> {
    match trials.job.bounds.iter().any(|b| matches!(b, Bound::Speed(_))) {
        true => bisect(trials)?,
        false => fill_bytes(trials)?,
    }
    let made = trials.pack()?;
    let stored = trials.stored().to_vec();
    let domains = trials.meter.domains(made.path(), trials.job.texts, Part::Choice)?;
    Ok(Found { stored, domains, rounds: 1 })
}

/// Compiles the least damage where sizes alone are bounded: the bytes that are left for the chosen forms.
fn fill_bytes(trials: &mut Trials<'_>) -> Result<(), Error> {
    let most = f64::INFINITY;
    trials.compile(&Damage { most, aim: Aim::Smallest, ..trials.damage.clone() })?;
    let mut bytes = (trials.chosen_bytes() - excess(trials)) * (1.0 + ROUNDING);
    for _ in 0..CORRECTIONS {
        trials.compile(&Damage { most, aim: Aim::LeastDamage { bytes }, ..trials.damage.clone() })?;
        let excess = excess(trials);
        if excess <= 0.0 {
            return Ok(());
        }
        bytes -= excess;
    }
    // Blocks of rows take more than the sums know.
    bisect(trials)
}

/// Bytes beyond the tightest bound, of the model compiled last; negative where there is room.
fn excess(trials: &Trials<'_>) -> f64 {
    let beyond = |b: &Bound| match *b {
        Bound::Bytes(most) | Bound::Memory(most, _) => Some(trials.resource(*b) - most),
        Bound::Kl(_) | Bound::Perplexity(_) | Bound::Speed(_) => None,
    };
    trials.job.bounds.iter().filter_map(beyond).fold(f64::NEG_INFINITY, f64::max)
}

/// Compiles by the least bound of damage that keeps the other bounds. Faster and smaller programs do more damage, so
/// that it is bisected.
fn bisect(trials: &mut Trials<'_>) -> Result<(), Error> {
    let aims = aims(trials);
    let keeps = |trials: &mut Trials<'_>, most: f64| {
        let damage = Damage { most, ..trials.damage.clone() };
        first_that_keeps(trials, &damage, &aims)
    };
    let mut best = keeps(trials, f64::INFINITY)?.unwrap_or_default();
    // (Shares add up to 1 only nearly.)
    let mut high = trials.predicted() * (1.0 + 1e-9);
    if let Some(aim) = keeps(trials, 0.0)? {
        (high, best) = (0.0, aim);
    }
    let mut low = high / 2f64.powi(STEPS);
    for _ in 0..STEPS {
        let middle = (low * high).sqrt();
        match keeps(trials, middle)? {
            Some(aim) => (high, best) = (middle, aim),
            None => low = middle,
        }
    }
    trials.compile(&Damage { most: high, aim: best, ..trials.damage.clone() })
}
